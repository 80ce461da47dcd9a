package link

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/identity"
)

// maxFiles is the number of files that the server of this test may have open.
const maxFiles = 256

// The server runs in its own process, which may open few files, as in some containers. A thousand idle
// connections would use all of them, and block other clients for ten seconds at a time.
func TestIdleConnectionsLeaveFilesForOthers(t *testing.T) {
	if os.Getenv("SLICEFEED_FEW_FILES") != "" {
		serveWithFewFiles(t)
		return
	}
	r := &testLink{serverCA: newTestCA(t, "server CA"), clientCA: newTestCA(t, "client CA")}
	r.writeFiles(t, serverCert)
	child := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(
		os.Environ(),
		"SLICEFEED_FEW_FILES="+strings.Join([]string{r.files.Cert, r.files.Key, r.files.PeerCA, r.listPath}, ":"),
	)
	child.Stderr = os.Stderr
	stdin, stdout := must(child.StdinPipe())(t), must(child.StdoutPipe())(t)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		io.Copy(io.Discard, stdout)
		if err := child.Wait(); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	line := must(bufio.NewReader(stdout).ReadString('\n'))(t)
	r.address = strings.TrimSpace(line)

	for range 4 * maxFiles {
		r.dialFrom(t, "127.0.0.2")
	}
	startedAt := time.Now()
	for range 5 {
		if err := checkHealth(t, r.dial(t, writerCert, serverURI)); err != nil {
			t.Errorf("after %s: %v", time.Since(startedAt).Round(time.Millisecond), err)
		}
	}
	took := time.Since(startedAt)
	t.Logf("5 new clients took %s", took)
	if took > handshakeTimeout/2 {
		t.Errorf("5 new clients waited for %s", took)
	}
}

func serveWithFewFiles(t *testing.T) {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: maxFiles, Max: maxFiles}); err != nil {
		t.Fatal(err)
	}
	at := strings.Split(os.Getenv("SLICEFEED_FEW_FILES"), ":")
	r := &testLink{files: identity.Files{Cert: at[0], Key: at[1], PeerCA: at[2]}, listPath: at[3]}
	r.resetOutputs()
	r.start(t)
	fmt.Fprintln(os.Stdout, r.address)
	io.Copy(io.Discard, os.Stdin)
}

package process

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const roleEnv = "SLICEFEED_TEST_ROLE"

// In the role "parent" the test binary starts a child, tells its process ID and waits.
func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "parent" {
		p, err := Start(Spec{Name: "sleep", Path: "/bin/sleep", Args: []string{"60"}, Log: os.DevNull})
		if err != nil {
			os.Exit(99)
		}
		os.Stdout.WriteString(strconv.Itoa(p.PID()) + "\n")
		_ = p.Wait()
		os.Exit(98)
	}
	os.Exit(m.Run())
}

func shell(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(Spec{
		Name: "the script", Path: "/bin/sh", Args: []string{"-c", script},
		Log: filepath.Join(t.TempDir(), "script.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(0) })
	return p
}

// ready waits until the script has said so; its output is a file, so there is nothing to
// block on.
func ready(t *testing.T, p *Process) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		raw, err := os.ReadFile(p.Log())
		if err == nil && bytes.Contains(raw, []byte("ready")) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the script is not ready")
		}
	}
}

func TestAFailureShowsTheEndOfTheOutput(t *testing.T) {
	err := shell(t, "seq 1 1000; echo 'no address to advertise' >&2; exit 3").Wait()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"the script", "exit status 3", "script.log", "no address to advertise"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "\n  500\n") {
		t.Errorf("the whole output is shown: %v", err)
	}
}

func TestStop(t *testing.T) {
	for name, row := range map[string]struct {
		script, err string
		grace       time.Duration
	}{
		"asks first":                        {"trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done", "", time.Minute},
		"kills what does not listen":        {"trap '' TERM; echo ready; while :; do sleep 0.01; done", "", 50 * time.Millisecond},
		"kills at once without grace":       {"trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done", "", 0},
		"kills a stopped process":           {"echo ready; kill -STOP $$", "", 0},
		"tells of an exit code that is bad": {"trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done", "exit status 5", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			p := shell(t, row.script)
			ready(t, p)
			err := p.Stop(row.grace)
			if row.err == "" && err != nil || row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) {
				t.Errorf("got %v, want %q", err, row.err)
			}
			if err := p.Signal(syscall.Signal(0)); err == nil {
				t.Error("still there")
			}
		})
	}
}

func TestAChildDiesWithUs(t *testing.T) {
	parent := exec.Command("/proc/self/exe")
	parent.Env = append(os.Environ(), roleEnv+"=parent")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 32)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			t.Errorf("the child is still there (%v)", err)
		}
		return
	}
}

package probes

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
)

// The stand-in is a process of its own that answers for ten thousand backends: a listener of
// each protocol has all of 127.0.0.0/8. In our own process its sockets, its memory and its CPU
// would be taken for the prober's.

const roleEnv = "SLICEFEED_PROBES_STAND_IN"

// The stand-in's ports: the first keeps a record of who was probed when.
const (
	tcpPort = 30080 + iota
	httpPort
	httpsPort
	grpcPort
	silentPort
)

// record is what the stand-in saw of the targets of the mode tcp since it was last asked.
type record struct {
	Targets int           `json:"targets"`
	Probes  int           `json:"probes"`
	Gap     time.Duration `json:"gap"` // the longest that a target was not probed for
}

type visits struct {
	last map[netip.Addr]time.Time
	sum  record
}

func (v *visits) come(addr netip.Addr, now time.Time) {
	if last, again := v.last[addr]; again {
		v.sum.Gap = max(v.sum.Gap, now.Sub(last))
	}
	v.last[addr] = now
	v.sum.Probes++
}

// take counts those that are waiting at present too.
func (v *visits) take(now time.Time) record {
	for _, last := range v.last {
		v.sum.Gap = max(v.sum.Gap, now.Sub(last))
	}
	v.sum.Targets = len(v.last)
	sum := v.sum
	*v = visits{last: map[netip.Addr]time.Time{}}
	return sum
}

// standIn is the process: a line on in asks for a record, its end is the process's.
func standIn(in io.Reader, out io.Writer) int {
	if err := standInFor(in, out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func standInFor(in io.Reader, out io.Writer) error {
	everywhere := netip.IPv4Unspecified()
	for at, protocol := range map[uint16]backend.Protocol{httpPort: backend.HTTP, httpsPort: backend.HTTPS, grpcPort: backend.GRPC, silentPort: backend.HTTP} {
		b, err := backend.StartSpeaking(protocol, string(protocol), netip.AddrPortFrom(everywhere, at))
		if err != nil {
			return err
		}
		if at == silentPort {
			if err := b.Set(backend.Silent); err != nil {
				return err
			}
		}
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(everywhere, tcpPort).String())
	if err != nil {
		return err
	}
	came, asked := make(chan netip.Addr), make(chan struct{})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			came <- conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr()
			conn.Close()
		}
	}()
	go func() {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			asked <- struct{}{}
		}
		close(asked)
	}()
	v := visits{last: map[netip.Addr]time.Time{}}
	reports := json.NewEncoder(out)
	fmt.Fprintln(out, "ready")
	for {
		select {
		case addr := <-came:
			v.come(addr, time.Now())
		case _, open := <-asked:
			if !open {
				return nil
			}
			if err := reports.Encode(v.take(time.Now())); err != nil {
				return err
			}
		}
	}
}

// others is our end of the stand-in.
type others struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func startStandIn(t *testing.T) *others {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // which ends it, as our own death would
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	o := &others{in, bufio.NewReader(out)}
	if line, err := o.out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the stand-in says %q, %v", line, err)
	}
	return o
}

// record returns what came since the last call.
func (o *others) record(t *testing.T) record {
	if _, err := io.WriteString(o.in, "\n"); err != nil {
		t.Fatal(err)
	}
	line, err := o.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

package probes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/figures"
)

// The stand-in is a process of its own that answers for ten thousand backends: a listener has all of 127.0.0.0/8. In our own process its sockets, its memory and its CPU
// would be taken for the prober's.

const roleEnv = "SLICEFEED_PROBES_STAND_IN"

// The stand-in's ports: the first keeps a record of who was probed when.
const (
	TCPPort = 30080 + iota
	SilentPort
)

// Record is what the stand-in saw of the targets of the mode tcp since the last request.
type Record struct {
	Targets int           `json:"targets"`
	Probes  int           `json:"probes"`
	Longest time.Duration `json:"longest"` // that a target was not probed for

	// Between two probes of a target: a hundredth, half, and all but a hundredth are no longer.
	Gap1  time.Duration `json:"gap1"`
	Gap50 time.Duration `json:"gap50"`
	Gap99 time.Duration `json:"gap99"`
	// Probes in a tenth of a second: a hundredth, and all but a hundredth of these have no more.
	Slot1  int `json:"slot1"`
	Slot99 int `json:"slot99"`
}

type visits struct {
	last map[netip.Addr]time.Time
	gaps []time.Duration
	came []time.Time
}

func (v *visits) come(addr netip.Addr, now time.Time) {
	if last, again := v.last[addr]; again {
		v.gaps = append(v.gaps, now.Sub(last))
	}
	v.last[addr] = now
	v.came = append(v.came, now)
}

// take counts those that are waiting at present too.
func (v *visits) take(now time.Time) Record {
	sum := Record{Targets: len(v.last), Probes: len(v.came)}
	for _, last := range v.last {
		sum.Longest = max(sum.Longest, now.Sub(last))
	}
	if len(v.gaps) > 0 {
		sum.Longest = max(sum.Longest, slices.Max(v.gaps))
		sum.Gap1, sum.Gap50, sum.Gap99 = figures.Percentile(v.gaps, 1), figures.Percentile(v.gaps, 50), figures.Percentile(v.gaps, 99)
	}
	if slots := v.slots(); len(slots) > 0 {
		sum.Slot1, sum.Slot99 = slots[len(slots)/100], slots[len(slots)*99/100]
	}
	*v = visits{last: map[netip.Addr]time.Time{}}
	return sum
}

// slots is how many came in each whole tenth of a second, ascending.
func (v *visits) slots() []int {
	if len(v.came) == 0 {
		return nil
	}
	const slot = time.Second / 10
	counts := make([]int, v.came[len(v.came)-1].Sub(v.came[0])/slot)
	for _, at := range v.came {
		if n := int(at.Sub(v.came[0]) / slot); n < len(counts) {
			counts[n]++
		}
	}
	slices.Sort(counts)
	return counts
}

// IsStandIn reports whether this process was started to be one: then main calls BeStandIn, and
// nothing else.
func IsStandIn() bool { return os.Getenv(roleEnv) != "" }

// BeStandIn answers until its standard input ends, and returns the exit code. A line there
// requests a record.
func BeStandIn() int {
	if err := standIn(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func standIn(in io.Reader, out io.Writer) error {
	everywhere := netip.IPv4Unspecified()
	silent, err := backend.Start("silent", netip.AddrPortFrom(everywhere, SilentPort))
	if err != nil {
		return err
	}
	if err := silent.Set(backend.Silent); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(everywhere, TCPPort).String())
	if err != nil {
		return err
	}
	came, requested := make(chan netip.Addr), make(chan struct{})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			came <- conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr()
			_ = conn.Close()
		}
	}()
	go func() {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			requested <- struct{}{}
		}
		close(requested)
	}()
	v := visits{last: map[netip.Addr]time.Time{}}
	reports := json.NewEncoder(out)
	fmt.Fprintln(out, "ready")
	for {
		select {
		case addr := <-came:
			v.come(addr, time.Now())
		case _, open := <-requested:
			if !open {
				return nil
			}
			if err := reports.Encode(v.take(time.Now())); err != nil {
				return err
			}
		}
	}
}

// StandIn is our end of the stand-in.
type StandIn struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// StartStandIn starts this very program again, with its arguments.
func StartStandIn() (*StandIn, error) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), roleEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the stand-in: %w", err)
	}
	s := &StandIn{cmd, in, bufio.NewReader(out)}
	if line, err := s.out.ReadString('\n'); err != nil || line != "ready\n" {
		return nil, errors.Join(fmt.Errorf("the stand-in prints %q: %w", line, err), s.Close())
	}
	return s, nil
}

// Close ends it, as our own death would.
func (s *StandIn) Close() error {
	_ = s.in.Close()
	return s.cmd.Wait()
}

// Record returns what came since the last call.
func (s *StandIn) Record() (r Record, err error) {
	if _, err := io.WriteString(s.in, "\n"); err != nil {
		return r, err
	}
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return r, fmt.Errorf("request a record of the stand-in: %w", err)
	}
	return r, json.Unmarshal(line, &r)
}

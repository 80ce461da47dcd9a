package probes

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// At is the nth address of 127.0.0.0/8 at which the stand-in answers.
func At(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(1 + n>>16), byte(n >> 8), byte(n)})
}

// Many are n keys, from the first on.
func Many(first, n int, port uint16, mode probe.Mode) []probe.Key {
	keys := make([]probe.Key, n)
	for i := range keys {
		keys[i] = probe.Key{Address: At(first + i), Port: port, Spec: probe.Spec{Mode: mode}}
	}
	return keys
}

// ours is what this process takes from the machine, and its descriptors: sockets and all others.
func ours() (use figures.Usage, descriptors int, err error) {
	if use, err = figures.UsageOf(os.Getpid()); err != nil {
		return use, 0, err
	}
	open, err := os.ReadDir("/proc/self/fd")
	return use, len(open), err
}

// Connections is how many there are to the stand-in at our end, in whatever state.
func Connections() (n int, err error) {
	text, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(text)) {
		if remote := strings.Fields(l)[2]; len(remote) == len("0100007F:7580") {
			if to, err := strconv.ParseUint(remote[9:], 16, 16); err == nil && TCPPort <= to && to <= SilentPort {
				n++
			}
		}
	}
	return n, nil
}

// Load is a run of a prober with keys of a hundred targets each.
type Load struct {
	Keys        []probe.Key
	Start, Long time.Duration // before it counts, and while it does

	// Between and Inspect are called where that begins and ends; nil: nothing is.
	Between, Inspect func(*Bench) error
}

// Taken is what a load took.
type Taken struct {
	Probes   float64       // that ended, per second
	CPU      time.Duration // per 1,000 of them
	Sockets  int           // at most, more than before
	Resident int64         // bytes, likewise
}

// Run probes on a prober of its own.
func (l Load) Run() (t Taken, err error) {
	runtime.GC()
	idle, idleSockets, err := ours()
	if err != nil {
		return t, err
	}
	b := Start()
	defer func() { err = errors.Join(err, b.Stop()) }()
	began := time.Now()
	for first := 0; first < len(l.Keys); first += 100 {
		b.Set(fmt.Sprint("web/", first/100), requestsFor("blue", l.Keys[first:min(first+100, len(l.Keys))]...))
	}
	sample := func(until time.Time) error {
		for tick := time.NewTicker(200 * time.Millisecond); time.Now().Before(until); <-tick.C {
			use, sockets, err := ours()
			if err != nil {
				return err
			}
			t.Sockets, t.Resident = max(t.Sockets, sockets-idleSockets), max(t.Resident, use.Resident-idle.Resident)
		}
		return nil
	}
	err = errors.Join(sample(began.Add(l.Start)), call(l.Between, b))
	from, first, errFirst := spent(b)
	err = errors.Join(err, errFirst, sample(time.Now().Add(l.Long)))
	to, last, errLast := spent(b)
	if err := errors.Join(err, errLast, call(l.Inspect, b)); err != nil {
		return t, err
	}
	t.Probes = (last.probes - first.probes) / to.Sub(from).Seconds()
	t.CPU = time.Duration(float64(last.cpu-first.cpu) * 1000 / (last.probes - first.probes))
	return t, nil
}

func call(what func(*Bench) error, b *Bench) error {
	if what == nil {
		return nil
	}
	return what(b)
}

// cost is what was probed up to a moment, and what this process had computed by then.
type cost struct {
	probes float64
	cpu    time.Duration
}

func spent(b *Bench) (at time.Time, c cost, err error) {
	if c.probes, err = b.Probes("pass", "fail", "inconclusive"); err != nil {
		return at, c, err
	}
	use, _, err := ours()
	c.cpu = use.CPU
	return time.Now(), c, err
}

package probes

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/prober"
)

const (
	gate = "SLICEFEED_LOAD"

	// What ten thousand targets may take. The prober's own limit is 512 probes in flight, each
	// of one socket; the rest is what a Go program has anyway.
	mostSockets = 512 + 16
	mostMemory  = 96 << 20
	mostGap     = 3 * time.Second // one and a half intervals
)

// at is the nth address of 127.0.0.0/8 that is used.
func at(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(1 + n>>16), byte(n >> 8), byte(n)})
}

// many are n keys, from the first on.
func many(first, n int, port uint16, mode prober.Mode) []prober.Key {
	keys := make([]prober.Key, n)
	for i := range keys {
		keys[i] = prober.Key{Address: at(first + i), Port: port, Spec: prober.Spec{Mode: mode}}
	}
	return keys
}

// use is what this process takes from the machine.
type use struct {
	cpu      time.Duration
	sockets  int // with all other descriptors
	resident int
}

func usage(t *testing.T) use {
	t.Helper()
	var u use
	var times syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &times); err != nil {
		t.Fatal(err)
	}
	u.cpu = time.Duration(times.Utime.Nano() + times.Stime.Nano())
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	u.sockets = len(open)
	u.resident = number(t, "/proc/self/status", "VmRSS:", "VmRSS:") << 10
	return u
}

// number is the one that follows a word in the line that begins so.
func number(t *testing.T, file, line, word string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if !strings.HasPrefix(l, line) {
			continue
		}
		fields := strings.Fields(l)
		for i, f := range fields[:len(fields)-1] {
			if n, err := strconv.Atoi(fields[i+1]); f == word && err == nil {
				return n
			}
		}
	}
	t.Fatalf("%s: no %s in %s", file, word, line)
	return 0
}

// connections are those to the stand-in at our end, in whatever state.
func connections(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for l := range strings.Lines(string(text)) {
		if remote := strings.Fields(l)[2]; len(remote) == len("0100007F:7580") {
			if to, err := strconv.ParseUint(remote[9:], 16, 16); err == nil && tcpPort <= to && to <= silentPort {
				n++
			}
		}
	}
	return n
}

// load is a run of a prober with keys of a hundred targets each.
type load struct {
	probes  float64 // that ended, per second
	cpu     time.Duration
	most    use // more than before
	grown   int // live memory more than before
	left    int // connections after the end, TIME_WAIT and all
	judged  time.Duration
	failing int
}

// run probes for so long, after a start that is not counted: between and inspect are called
// where that begins and ends.
func run(t *testing.T, keys []prober.Key, start, long time.Duration, between, inspect func()) load {
	t.Helper()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	idle := usage(t)
	b := newBench(t)
	began := time.Now()
	for first := 0; first < len(keys); first += 100 {
		b.Set(fmt.Sprint("web/", first/100), keys[first:min(first+100, len(keys))])
	}
	var l load
	sample := func(until time.Time) {
		for tick := time.NewTicker(200 * time.Millisecond); time.Now().Before(until); <-tick.C {
			u := usage(t)
			l.most = use{sockets: max(l.most.sockets, u.sockets-idle.sockets), resident: max(l.most.resident, u.resident-idle.resident)}
			if l.judged == 0 && b.Word(keys[len(keys)-1]).Health != prober.Unjudged {
				l.judged = time.Since(began)
			}
		}
	}
	count := func() float64 { return b.probes(t, "pass") + b.probes(t, "fail") + b.probes(t, "void") }
	sample(began.Add(start))
	between()
	probes, cpu, from := count(), usage(t).cpu, time.Now()
	sample(from.Add(long))
	took := time.Since(from)
	probes, cpu = count()-probes, usage(t).cpu-cpu
	inspect()
	l.probes = probes / took.Seconds()
	l.cpu = time.Duration(float64(cpu) * 1000 / probes)
	runtime.GC()
	runtime.ReadMemStats(&after)
	l.grown = int(after.HeapAlloc+after.StackInuse) - int(before.HeapAlloc+before.StackInuse)
	for _, key := range keys {
		if b.Word(key).Health == prober.Failing {
			l.failing++
		}
	}
	for first := 0; first < len(keys); first += 100 {
		b.Set(fmt.Sprint("web/", first/100), nil)
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		if l.left = connections(t); l.left == 0 {
			break
		}
	}
	return l
}

func TestTenThousandTargets(t *testing.T) {
	if os.Getenv(gate) != "1" {
		t.Skipf("it takes two minutes and both cores: %s=1 (make verify does)", gate)
	}
	const all, dead = 10_000, 500
	answer := startStandIn(t)
	nothing := func() {}
	row := func(t *testing.T, l load, more string) {
		judged := "not judged by then"
		if l.judged > 0 {
			judged = "judged after " + l.judged.Round(10*time.Millisecond).String()
		}
		t.Logf("%.0f probes/s, %v of CPU per 1,000; at most %d sockets, %d left; %.1f MB live, %.1f MB resident more; the last one %s%s",
			l.probes, l.cpu.Round(time.Millisecond), l.most.sockets, l.left, float64(l.grown)/(1<<20), float64(l.most.resident)/(1<<20), judged, more)
		if l.most.sockets > mostSockets {
			t.Errorf("%d sockets, more than %d", l.most.sockets, mostSockets)
		}
		if l.left > 0 {
			t.Errorf("%d connections are left behind", l.left)
		}
		if l.grown > mostMemory || l.most.resident > 2*mostMemory {
			t.Errorf("%d bytes live, %d resident more", l.grown, l.most.resident)
		}
	}
	seen := func(t *testing.T, r record, targets int) string {
		if r.Targets != targets {
			t.Errorf("%d targets were probed, not %d", r.Targets, targets)
		}
		if r.Gap > mostGap {
			t.Errorf("a target was not probed for %v", r.Gap)
		}
		return fmt.Sprintf("; none waited more than %v", r.Gap.Round(10*time.Millisecond))
	}
	forget := func() { answer.record(t) }

	t.Run("all answer", func(t *testing.T) {
		var r record
		l := run(t, many(0, all, tcpPort, prober.TCP), 3*time.Second, 20*time.Second, forget, func() { r = answer.record(t) })
		row(t, l, seen(t, r, all))
		if l.failing > 0 {
			t.Errorf("%d are taken for dead", l.failing)
		}
	})
	t.Run("500 of them are silent", func(t *testing.T) {
		var r record
		keys := append(many(0, all-dead, tcpPort, prober.TCP), many(all, dead, silentPort, prober.TCP)...)
		l := run(t, keys, 6*time.Second, 20*time.Second, forget, func() { r = answer.record(t) })
		row(t, l, seen(t, r, all-dead))
		if l.failing != dead {
			t.Errorf("%d are taken for dead, not %d", l.failing, dead)
		}
	})
	t.Run("all are silent", func(t *testing.T) {
		l := run(t, many(0, all, silentPort, prober.TCP), 3*time.Second, 10*time.Second, nothing, nothing)
		row(t, l, "")
		if l.probes < 400 { // 512 in flight, each for a second
			t.Errorf("%.0f probes a second", l.probes)
		}
	})
	for _, each := range []struct {
		n    int
		mode prober.Mode
		port uint16
	}{
		{500, prober.TCP, tcpPort},
		{500, prober.HTTP, httpPort},
		{500, prober.HTTPS, httpsPort},
		{500, prober.GRPC, grpcPort},
		{1000, prober.GRPC, grpcPort},
		{all, prober.GRPC, grpcPort},
	} {
		t.Run(fmt.Sprintf("%d by %s", each.n, each.mode), func(t *testing.T) {
			l := run(t, many(0, each.n, each.port, each.mode), 3*time.Second, 8*time.Second, nothing, nothing)
			row(t, l, fmt.Sprintf("; %d are taken for dead", l.failing))
			// So many that a machine may have too little CPU for them, which the prober takes for
			// the backends' delay, are for the bounds alone.
			if l.failing > 0 && each.n < all {
				t.Errorf("%d are taken for dead", l.failing)
			}
		})
	}
}

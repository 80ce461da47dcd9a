package probes

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

const (
	gate = "SLICEFEED_LOAD"

	// What ten thousand targets may take. The prober's own limit is 512 probes in flight, each
	// of one socket; one source takes 384 of them at most; the rest is what a Go program has anyway.
	sourceProbes = 384
	mostSockets  = sourceProbes + 16
	mostMemory   = 96 << 20
	mostGap      = 3 * time.Second // one and a half intervals
)

func TestTenThousandTargets(t *testing.T) {
	if os.Getenv(gate) != "1" {
		t.Skipf("it takes two minutes and both cores: %s=1 (make verify does)", gate)
	}
	const all, dead = 10_000, 500
	answer, err := StartStandIn()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := answer.Close(); err != nil {
			t.Error(err)
		}
	}()
	run := func(t *testing.T, l Load) Taken {
		t.Helper()
		taken, err := l.Run()
		if err != nil {
			t.Fatal(err)
		}
		return taken
	}
	row := func(t *testing.T, l Taken, more string) {
		judged := "not judged by then"
		if l.Judged > 0 {
			judged = "judged after " + l.Judged.Round(10*time.Millisecond).String()
		}
		t.Logf("%.0f probes/s, %v of CPU per 1,000; at most %d sockets, %d left; %.1f MB live, %.1f MB resident more; the last one %s%s",
			l.Probes, l.CPU.Round(time.Millisecond), l.Sockets, l.Left, float64(l.Grown)/(1<<20), float64(l.Resident)/(1<<20), judged, more)
		if l.Sockets > mostSockets {
			t.Errorf("%d sockets, more than %d", l.Sockets, mostSockets)
		}
		if l.Left > 0 {
			t.Errorf("%d connections are left behind", l.Left)
		}
		if l.Grown > mostMemory || l.Resident > 2*mostMemory {
			t.Errorf("%d bytes live, %d resident more", l.Grown, l.Resident)
		}
	}
	seen := func(t *testing.T, r Record, targets int) string {
		if r.Targets != targets {
			t.Errorf("%d targets were probed, not %d", r.Targets, targets)
		}
		if r.Longest > mostGap {
			t.Errorf("a target was not probed for %v", r.Longest)
		}
		return fmt.Sprintf("; none waited more than %v", r.Longest.Round(10*time.Millisecond))
	}
	read := func(r *Record) func(*Bench) error {
		return func(*Bench) (err error) { *r, err = answer.Record(); return err }
	}
	forget := func(*Bench) error { _, err := answer.Record(); return err }

	t.Run("all answer", func(t *testing.T) {
		var r Record
		l := run(
			t,
			Load{
				Keys:    Many(0, all, TCPPort, probe.TCP),
				Start:   3 * time.Second,
				Long:    20 * time.Second,
				Between: forget,
				Inspect: read(&r),
			},
		)
		row(t, l, seen(t, r, all))
		if l.Failing > 0 {
			t.Errorf("%d are taken for dead", l.Failing)
		}
	})
	t.Run("500 of them are silent", func(t *testing.T) {
		var r Record
		keys := append(Many(0, all-dead, TCPPort, probe.TCP), Many(all, dead, SilentPort, probe.TCP)...)
		l := run(t, Load{Keys: keys, Start: 6 * time.Second, Long: 20 * time.Second, Between: forget, Inspect: read(&r)})
		row(t, l, seen(t, r, all-dead))
		if l.Failing != dead {
			t.Errorf("%d are taken for dead, not %d", l.Failing, dead)
		}
	})
	t.Run("all are silent", func(t *testing.T) {
		l := run(t, Load{Keys: Many(0, all, SilentPort, probe.TCP), Start: 3 * time.Second, Long: 10 * time.Second})
		row(t, l, "")
		if l.Probes < sourceProbes*3/4 { // each of them for a second
			t.Errorf("%.0f probes a second", l.Probes)
		}
	})
	for _, each := range []struct {
		n    int
		mode probe.Mode
		port uint16
	}{
		{500, probe.TCP, TCPPort},
		{500, probe.HTTP, HTTPPort},
		{500, probe.HTTPS, HTTPSPort},
		{500, probe.GRPC, GRPCPort},
		{1000, probe.GRPC, GRPCPort},
		{all, probe.GRPC, GRPCPort},
	} {
		t.Run(fmt.Sprintf("%d by %s", each.n, each.mode), func(t *testing.T) {
			l := run(t, Load{Keys: Many(0, each.n, each.port, each.mode), Start: 3 * time.Second, Long: 8 * time.Second})
			row(t, l, fmt.Sprintf("; %d are taken for dead", l.Failing))
			// So many that a machine may have too little CPU for them, which the prober takes for
			// the backends' delay, are for the bounds alone.
			if l.Failing > 0 && each.n < all {
				t.Errorf("%d are taken for dead", l.Failing)
			}
		})
	}
}

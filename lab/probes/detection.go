package probes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

const (
	targets = 10_000
	each    = 100 // backends that die by refusing, and as many by falling silent
)

// detection is how long deaths and recoveries took to be noticed.
type detection struct {
	deaths int // of each backend

	mu   sync.Mutex
	dead map[backend.Mode][]time.Duration
	back map[backend.Mode][]time.Duration
}

// MeasureDetection is the section of the bench: how soon the prober finds backends that die, with 10,000 targets at the
// default interval. A listener of this process answers for all others.
func MeasureDetection(ctx context.Context, env report.Env) (report.Report, error) {
	if err := netns.Enter(ctx); err != nil {
		return report.Report{}, err
	}
	d := &detection{deaths: 3, dead: map[backend.Mode][]time.Duration{}, back: map[backend.Mode][]time.Duration{}}
	if env.Quick {
		d.deaths = 1
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(netip.IPv4Unspecified(), port-1).String())
	if err != nil {
		return report.Report{}, err
	}
	var answering sync.WaitGroup
	answering.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
	fmt.Fprintf(env.Out, "%d targets, of which %d die, %d times each\n", targets, 2*each, d.deaths)
	err = errors.Join(d.measure(ctx), listener.Close())
	answering.Wait()
	if err != nil {
		return report.Report{}, err
	}
	return d.report(), nil
}

// measure has backends die and come back, while the others are probed on.
func (d *detection) measure(ctx context.Context) (err error) {
	b := Start()
	defer func() { err = errors.Join(err, b.Stop()) }()
	for first := 0; first < targets; first += 100 { // as many as a common Service has
		keys := make([]probe.Key, 100)
		for i := range keys {
			n := first + i
			address := netip.AddrFrom4([4]byte{127, 1, byte(n >> 8), byte(n)})
			keys[i] = probe.Key{Address: address, Port: port - 1, Spec: probe.Spec{Mode: probe.TCP}}
		}
		b.Set(fmt.Sprint("web/", first/100), requestsFor(keys...))
	}
	const warmUp = 3 * probe.DefaultInterval
	AnyTime(ctx, warmUp, warmUp+probe.DefaultInterval)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+d.deaths)*20*time.Second)
	defer cancel()
	var living sync.WaitGroup
	failed := make([]error, 2*each)
	for i := range failed {
		mode := backend.Refuse
		if i >= each {
			mode = backend.Silent
		}
		s, err := b.Add(Ways[0], netip.AddrFrom4([4]byte{10, 0, byte(i / each), byte(1 + i%each)}))
		if err != nil {
			return err
		}
		living.Go(func() {
			set := func(dead bool) error {
				if dead {
					return s.Set(mode)
				}
				return s.Set(backend.Serve)
			}
			failed[i] = s.Die(ctx, d.deaths, set, func(dead bool, after time.Duration) { d.note(mode, dead, after) })
		})
	}
	living.Wait()
	return errors.Join(failed...)
}

func (d *detection) note(mode backend.Mode, dead bool, after time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if dead {
		d.dead[mode] = append(d.dead[mode], after)
	} else {
		d.back[mode] = append(d.back[mode], after)
	}
}

func (d *detection) report() report.Report {
	return report.Report{
		Setup: fmt.Sprintf(
			"The prober of the writer by itself, in mode tcp with its defaults (interval 2 s, timeout 1 s) and %d targets on the same machine: "+
				"%d backends refuse and %d fall silent %d times each, while the others are probed on.",
			targets,
			each,
			each,
			d.deaths,
		),
		Goals: []report.Goal{
			d.goal("p99 until a backend that refuses is failing", Refuses, backend.Refuse),
			d.goal("p99 until one that is silent is failing", Silent, backend.Silent),
		},
		Tables: []report.Table{{
			Title:   "From a backend's death, or its return, to the status that says so:",
			Columns: []string{"", "bound", "p50", "p99", "back: p50", "p99"},
			Rows:    [][]string{d.row("refuses", Refuses, backend.Refuse), d.row("is silent", Silent, backend.Silent)},
		}},
	}
}

func (d *detection) goal(text string, bound time.Duration, mode backend.Mode) report.Goal {
	took := d.dead[mode]
	half := len(took) / 2
	noise := (figures.Percentile(took[:half], 99) - figures.Percentile(took[half:], 99)).Seconds()
	return report.Goal{
		Text: text, Figure: figures.Percentile(took, 99).Seconds(), AtMost: bound.Seconds(), Unit: "s", Noise: math.Abs(noise),
	}
}

func (d *detection) row(how string, bound time.Duration, mode backend.Mode) []string {
	sec := func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
	dead, back := d.dead[mode], d.back[mode]
	return []string{
		how, sec(bound), sec(figures.Percentile(dead, 50)), sec(figures.Percentile(dead, 99)),
		sec(figures.Percentile(back, 50)), sec(figures.Percentile(back, 99)),
	}
}

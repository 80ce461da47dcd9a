package probes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

const (
	many = 10_000
	few  = 100 // as a common Service has
	each = 100 // backends that die by refusing, and as many by falling silent
)

// plan is for how long is measured.
type plan struct {
	loop, start, long time.Duration
	deaths            int           // of each backend
	beside            time.Duration // during which backends die beside the neighbor
}

// detection is what was measured.
type detection struct {
	plan

	many, few     Taken
	pace          Record
	loop, fewLoop []time.Duration // CPU per 1,000 connections, before and after
	refuse, drop  noticed
	neighbor      *beside
}

// MeasureDetection is the section of the bench: the prober with 10,000 targets at the default interval, what it takes, how
// even its pace is, and how soon it finds backends that die meanwhile, also beside a Service whose probes are never
// answered. The baseline is a bare loop that connects to the same targets and hangs up, before and after, in the same
// process.
func MeasureDetection(ctx context.Context, env report.Env) (report.Report, error) {
	if err := netns.Enter(ctx); err != nil {
		return report.Report{}, err
	}
	if IsStandIn() {
		os.Exit(BeStandIn())
	}
	p := plan{loop: 5 * time.Second, start: 6 * time.Second, long: 24 * time.Second, deaths: 3, beside: 70 * time.Second}
	if env.Quick {
		p = plan{loop: 2 * time.Second, start: 4 * time.Second, long: 9 * time.Second, deaths: 1, beside: 10 * time.Second}
	}
	answering, err := StartStandIn()
	if err != nil {
		return report.Report{}, err
	}
	f, err := p.measure(ctx, env, answering)
	if err := errors.Join(err, answering.Close()); err != nil {
		return report.Report{}, err
	}
	return f.report(), nil
}

func (p plan) measure(ctx context.Context, env report.Env, answering *StandIn) (*detection, error) {
	f := &detection{plan: p}
	keys, some := Many(0, many, TCPPort, probe.TCP), Many(0, few, TCPPort, probe.TCP)
	for _, step := range []struct {
		doing string
		do    func() error
	}{
		{"a bare loop, 10,000 targets", bare(keys, p.loop, &f.loop)},
		{"a bare loop, 100 targets", bare(some, p.loop, &f.fewLoop)},
		{"the prober, 10,000 targets", func() (err error) {
			f.many, err = Load{
				Keys: keys, Start: p.start, Long: p.long,
				Between: func(*Bench) error { _, err := answering.Record(); return err },
				Inspect: func(b *Bench) error {
					if f.pace, err = answering.Record(); err != nil {
						return err
					}
					fmt.Fprintf(env.Out, "%d of them die, %d times each\n", 2*each, p.deaths)
					return f.kill(ctx, b)
				},
			}.Run()
			return err
		}},
		{"the prober, 100 targets", func() (err error) {
			f.few, err = Load{Keys: some, Start: 3 * time.Second, Long: 2 * p.loop}.Run()
			return err
		}},
		{"the prober beside a Service with a filtered port", func() (err error) {
			f.neighbor, err = p.measureBeside(ctx)
			return err
		}},
		{"the bare loops again", func() error {
			return errors.Join(bare(keys, p.loop, &f.loop)(), bare(some, p.loop, &f.fewLoop)())
		}},
	} {
		fmt.Fprintln(env.Out, step.doing)
		if err := step.do(); err != nil {
			return nil, fmt.Errorf("%s: %w", step.doing, err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// noticed is how long each death took to be found, and each recovery.
type noticed struct {
	mu   sync.Mutex
	dead []time.Duration
	back []time.Duration
}

func (n *noticed) note(dead bool, after time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if dead {
		n.dead = append(n.dead, after)
	} else {
		n.back = append(n.back, after)
	}
}

// kill has backends die and come back, while the others are probed on.
func (f *detection) kill(ctx context.Context, b *Bench) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+f.deaths)*20*time.Second)
	defer cancel()
	var living sync.WaitGroup
	failed := make([]error, 2*each)
	for i := range 2 * each {
		as, of := backend.Refuse, &f.refuse
		if i >= each {
			as, of = backend.Silent, &f.drop
		}
		s, err := b.Add(Ways[0], netip.AddrFrom4([4]byte{10, 0, byte(i / each), byte(1 + i%each)}))
		if err != nil {
			return err
		}
		living.Go(func() {
			failed[i] = s.Die(ctx, f.deaths, func(dead bool) error {
				if dead {
					return s.Set(as)
				}
				return s.Set(backend.Serve)
			}, of.note)
		})
	}
	living.Wait()
	return errors.Join(failed...)
}

// percentile is of no use where a run was cut short.
func percentile(samples []time.Duration, p int) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	return figures.Percentile(samples, p)
}

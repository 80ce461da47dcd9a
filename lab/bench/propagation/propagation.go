// Package propagation measures the main job: how long after a Node has changed in one API server the slices of the other
// say so, where that time goes, and what becomes of it and of its CPU with more nodes or more Services. The baseline is
// the floor: a loop that does nothing else. Both sides are measured by the same code, in turn, on the same parts.
package propagation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const warmUp = 20

// extent is how much is measured with one node of four.
type extent struct {
	toggles int           // of each side
	traced  time.Duration // then, for the stages
	freely  int           // then, of each side, without the admission policy; an even number
	joins   int
	undrain int // workers that are to be served again, once under each settings
	deaths  int // of each kind; fewer than undrain, since some have to live
}

var (
	whole = extent{toggles: 600, traced: 8 * time.Second, freely: 200, joins: 8, undrain: 40, deaths: 30}
	quick = extent{toggles: 60, traced: 2 * time.Second, freely: 20, joins: 1, undrain: 6, deaths: 3}
)

// Run is the section of the bench.
func Run(ctx context.Context, env report.Env) ([]*report.Part, error) {
	programs, err := controlplane.Build(ctx, env.Out)
	if err != nil {
		return nil, err
	}
	if err := netns.Enter(ctx, pair.Addresses()...); err != nil {
		return nil, err
	}
	p, err := pair.Start(ctx, pair.Options{Programs: programs, Writer: bare})
	if err != nil {
		return nil, err
	}
	found, err := measure(ctx, env, p)
	if err := errors.Join(err, p.Stop()); err != nil {
		return nil, err
	}
	sizes, err := measureSizes(ctx, env, programs)
	return append([]*report.Part{found.part()}, sizes...), err
}

// bare are the settings that have nothing hold a change up.
var bare = map[string]string{"HEALTH_CHECK_MODE": "off", "SHRINK_WINDOW": "0"}

// bench is what all parts of the section are measured with.
type bench struct {
	pair        *pair.Pair
	floor       *floor
	floorWorker *pair.Worker // its readiness is that of the floor's slice
	sight       *sight
	out         io.Writer

	workers []*pair.Worker
}

// findings are what was measured.
type findings struct {
	extent

	floor, pair  []sample // toggles
	floorStages  stages
	pairStages   stages
	free         sides // toggles without the admission policy
	joined, left []sample
	undrained    sides // served again, without guards and probes
	guarded      sides // with them
	// Backends that died, until they were out.
	refused, silent []sample
}

// sides are samples that were taken in turn.
type sides struct{ floor, pair []sample }

func measure(ctx context.Context, env report.Env, p *pair.Pair) (*findings, error) {
	b, err := prepare(ctx, env.Out, p)
	if err != nil {
		return nil, err
	}
	f := &findings{extent: whole}
	if env.Quick {
		f.extent = quick
	}
	measuring, stop := context.WithCancel(ctx)
	loops, measuring := errgroup.WithContext(measuring)
	loops.Go(func() error { return b.floor.run(measuring) })
	loops.Go(func() error {
		defer stop()
		for _, part := range []struct {
			what string
			do   func(context.Context, *findings) error
		}{
			{"a node toggles Ready", b.toggle},
			{"the same, traced", b.trace},
			{"the same, without the admission policy", b.withoutPolicy},
			{"nodes join and leave", b.come},
			{"draining nodes are served again", b.undrain},
			{"the same with guards and probes, and backends die", b.guarded},
		} {
			fmt.Fprintln(b.out, part.what)
			if err := part.do(measuring, f); err != nil {
				return fmt.Errorf("%s: %w", part.what, err)
			}
		}
		return nil
	})
	if err := loops.Wait(); err != nil {
		return nil, err
	}
	return f, nil
}

// readyWorkers are there beside the one that toggles.
const readyWorkers = 3

func prepare(ctx context.Context, out io.Writer, p *pair.Pair) (*bench, error) {
	if err := p.StartHalves(ctx); err != nil {
		return nil, err
	}
	if _, err := p.WaitLeading(ctx); err != nil {
		return nil, err
	}
	b := &bench{pair: p, out: out}
	var addresses []netip.Addr
	for range readyWorkers + 1 {
		w, err := b.hire(ctx)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, w.Address)
	}
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if _, err := p.WaitSlices(waiting, pair.AreJust(pair.Ready, addresses...)); err != nil {
		return nil, err
	}
	p.StopWatching()
	var err error
	if b.floor, b.floorWorker, err = newLeastPrivilegeFloor(ctx, p, netip.AddrFrom4([4]byte{10, 0, 1, 9})); err != nil {
		return nil, fmt.Errorf("prepare the floor: %w", err)
	}
	b.sight, err = newSight(ctx, p, pair.Namespace)
	return b, err
}

// hire adds a worker and has it join.
func (b *bench) hire(ctx context.Context) (*pair.Worker, error) {
	w, err := b.add()
	if err != nil {
		return nil, err
	}
	return w, w.Join(ctx)
}

// add adds a worker whose machine runs and that has not joined.
func (b *bench) add() (*pair.Worker, error) {
	n := len(b.workers)
	w, err := b.pair.AddWorker(
		pair.WorkerOptions{Name: fmt.Sprintf("worker-%d", n), Address: netip.AddrFrom4([4]byte{10, 0, 1, byte(10 + n)})},
	)
	if err == nil {
		b.workers = append(b.workers, w)
	}
	return w, err
}

// change is made to a worker, and seen in the slices when they list its address as told.
type change struct {
	of    *pair.Worker
	make  func(context.Context) error
	shows func(slice *discoveryv1.EndpointSlice, address string) bool
}

// sample makes a change and waits until it is seen.
func (c change) sample(ctx context.Context, at *sight) (sample, error) {
	if err := pause(ctx); err != nil {
		return sample{}, err
	}
	start := time.Now()
	if err := c.make(ctx); err != nil {
		return sample{}, err
	}
	address := c.of.Address.String()
	seen, err := at.until(ctx, 1, func(slice *discoveryv1.EndpointSlice) bool { return c.shows(slice, address) })
	if err != nil {
		return sample{}, fmt.Errorf("wait for the change of %s: %w", c.of.Name, err)
	}
	return sample{start, seen[0]}, nil
}

// both makes a change to a worker of each side, by chance of the floor first or of the pair.
func (b *bench) both(ctx context.Context, into *sides, of func(*pair.Worker) change, w *pair.Worker) error {
	turns := []func() error{
		func() error { return take(ctx, &into.floor, of(b.floorWorker), b.floor.sight) },
		func() error { return take(ctx, &into.pair, of(w), b.sight) },
	}
	first := rand.IntN(2)
	return errors.Join(turns[first](), turns[1-first]())
}

func take(ctx context.Context, into *[]sample, c change, at *sight) error {
	s, err := c.sample(ctx, at)
	*into = append(*into, s)
	return err
}

func isReady(slice *discoveryv1.EndpointSlice, address string) bool {
	return lists(slice, address, true)
}

func isUnready(slice *discoveryv1.EndpointSlice, address string) bool {
	return lists(slice, address, false)
}

func isGone(slice *discoveryv1.EndpointSlice, address string) bool {
	return !isReady(slice, address) && !isUnready(slice, address)
}

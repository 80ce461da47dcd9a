// Package growth measures what the cost of one change does when the fleet grows: the time until
// its slice is written, against the floor at that size, and the CPU of both halves; and how long
// an inventory takes to be of use at the largest size. It promises that all sizes are measured
// in one run, on the same processes.
package growth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/lab/bench/floor"
	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// plan is how much is measured.
type plan struct {
	sizes   []int // the first is too small for a whole slice; growth is told from the second on
	samples int   // of each kind at each size
	rounds  int   // of changes whose CPU is summed up
	changes int   // in a round
	starts  int   // of the inventory
}

const (
	warmUp   = 20
	perSlice = 100 // endpoints, as the writer has it
)

func planned(quick bool) plan {
	if quick {
		return plan{sizes: []int{10, 100, 1000}, samples: 60, rounds: 2, changes: 60, starts: 1}
	}
	return plan{sizes: []int{10, 100, 1000, 5000}, samples: 300, rounds: 3, changes: 200, starts: 5}
}

// Run is the section of the bench.
func Run(ctx context.Context, env report.Env) ([]*report.Part, error) {
	programs, err := controlplane.Build(ctx, env.Out)
	if err != nil {
		return nil, err
	}
	if err := netns.Enter(ctx, pair.Addresses()...); err != nil {
		return nil, err
	}
	p, err := pair.Start(ctx, pair.Options{
		Programs:  programs,
		Inventory: map[string]string{"SECURED_SUBNET_CIDR": pair.HerdSubnet},
		Writer:    map[string]string{"SECURED_SUBNET_CIDR": pair.HerdSubnet, "HEALTH_CHECK_MODE": "off", "SHRINK_WINDOW": "0"},
	})
	if err != nil {
		return nil, err
	}
	found, err := measure(ctx, env.Out, p, planned(env.Quick))
	return found, errors.Join(err, p.Stop())
}

func measure(ctx context.Context, out io.Writer, p *pair.Pair, plan plan) ([]*report.Part, error) {
	herd, err := p.NewHerd()
	if err != nil {
		return nil, err
	}
	if err := p.StartHalves(ctx); err != nil {
		return nil, err
	}
	if _, err := p.WaitLeading(ctx); err != nil {
		return nil, err
	}
	found := &findings{plan: plan}
	for _, size := range plan.sizes {
		began := time.Now()
		if err := grow(ctx, p, herd, size); err != nil {
			return nil, fmt.Errorf("grow to %d nodes: %w", size, err)
		}
		fmt.Fprintf(out, "%d nodes are served after %s\n", size, time.Since(began).Round(100*time.Millisecond))
		at, err := sample(ctx, p, herd, plan)
		if err != nil {
			return nil, fmt.Errorf("at %d nodes: %w", size, err)
		}
		fmt.Fprintf(out, "  %s\n", at)
		found.sizes = append(found.sizes, at)
	}
	if found.starts, err = starts(ctx, out, p, plan.starts); err != nil {
		return nil, fmt.Errorf("start the inventory: %w", err)
	}
	return []*report.Part{found.part()}, nil
}

// grow has so many nodes, and waits until the Service has them all.
func grow(ctx context.Context, p *pair.Pair, herd *pair.Herd, size int) error {
	if err := herd.Grow(ctx, size); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	_, err := p.WaitSlices(ctx, pair.AreJust(pair.Ready, herd.Addresses()...))
	return err
}

// size is what was found at one.
type size struct {
	nodes             int
	floor, pair       []time.Duration
	inventory, writer []float64 // milliseconds of CPU for a change, in each round
	memory            [2]int64  // resident, of inventory and writer
}

func (s *size) String() string {
	return fmt.Sprintf("p50 %.2f ms, floor %.2f ms; CPU of a change: inventory %.2f ms, writer %.2f ms; resident: %d MB, %d MB",
		milliseconds(s.pair), milliseconds(s.floor), least(s.inventory), least(s.writer), s.memory[0]>>20, s.memory[1]>>20)
}

// sample toggles nodes of the herd and the floor's own by turns, and then the herd's alone.
func sample(ctx context.Context, p *pair.Pair, herd *pair.Herd, plan plan) (*size, error) {
	found := &size{nodes: len(herd.Nodes())}
	raw, err := floor.New(ctx, p, herd, min(found.nodes, perSlice))
	if err != nil {
		return nil, err
	}
	ours, err := floor.NewSight(ctx, p, pair.Namespace)
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	measuring, stop := context.WithCancel(ctx)
	loops, measuring := errgroup.WithContext(measuring)
	loops.Go(func() error { return raw.Run(measuring) })
	loops.Go(func() error {
		defer stop()
		return found.byTurns(measuring, raw, ours, herd, plan.samples)
	})
	if err := loops.Wait(); err != nil {
		return nil, err
	}
	for range plan.rounds {
		if err := found.alone(ctx, p, ours, herd, plan.changes); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// toggled is the node that a change is about: each one there and back, all over the herd.
func toggled(herd *pair.Herd, change int) (node *pair.Node, ready bool) {
	const stride = 37 // prime to all sizes
	nodes := herd.Nodes()
	return nodes[change/2*stride%len(nodes)], change%2 == 1
}

func (s *size) byTurns(ctx context.Context, raw *floor.Floor, ours *floor.Sight, herd *pair.Herd, samples int) error {
	for i := range warmUp + samples {
		node, ready := toggled(herd, i)
		least, err := raw.Sight.Toggle(ctx, raw.Node, ready)
		if err != nil {
			return fmt.Errorf("sample %d of the floor: %w", i, err)
		}
		took, err := ours.Toggle(ctx, node, ready)
		if err != nil {
			return fmt.Errorf("sample %d of the pair: %w", i, err)
		}
		if i >= warmUp {
			s.floor, s.pair = append(s.floor, least), append(s.pair, took)
		}
	}
	return nil
}

// alone sums up what a round of changes costs the halves, one change after the other.
func (s *size) alone(ctx context.Context, p *pair.Pair, ours *floor.Sight, herd *pair.Herd, changes int) error {
	before, err := usage(p)
	if err != nil {
		return err
	}
	for i := range changes {
		node, ready := toggled(herd, i)
		if _, err := ours.Toggle(ctx, node, ready); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
	}
	after, err := usage(p)
	if err != nil {
		return err
	}
	each := func(half int) float64 {
		return figures.Milliseconds((after[half].CPU - before[half].CPU) / time.Duration(changes))
	}
	s.inventory, s.writer = append(s.inventory, each(0)), append(s.writer, each(1))
	s.memory = [2]int64{after[0].Resident, after[1].Resident}
	return nil
}

// usage is that of the inventory and the writer.
func usage(p *pair.Pair) (both [2]figures.Usage, err error) {
	for i, half := range []*pair.Half{p.Inventory, p.Writers[0]} {
		if both[i], err = figures.UsageOf(half.PID()); err != nil {
			return both, err
		}
	}
	return both, nil
}

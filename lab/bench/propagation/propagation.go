// Package propagation measures the main job: how long after a Node has changed in one API server the slice of the other
// shows it, and what CPU that takes, with few nodes, with 100 and with 5,000. The baseline is the floor, a loop without
// logic, on the same API servers. Both are measured by the same code, in turn.
package propagation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const warmUp = 20

// extent is how much is measured.
type extent struct {
	nodes   []int // the first is for the time alone; growth is from the second to the last
	samples int   // changes by either side, at each number of nodes
	rounds  int   // of changes whose CPU and writes are added up
	changes int   // in a round
}

var (
	whole = extent{nodes: []int{4, 100, 5000}, samples: 300, rounds: 3, changes: 200}
	quick = extent{nodes: []int{4, 100, 1000}, samples: 60, rounds: 2, changes: 60}
)

// size is what was measured with one number of nodes.
type size struct {
	nodes             int
	floor, pair       []time.Duration // of each change
	inventory, writer []float64       // milliseconds of CPU of a change, in each round
	resident          [2]int64        // bytes, of inventory and writer
	writes            float64         // of slices, for one change
}

// Run is the section of the bench.
func Run(ctx context.Context, env report.Env) (report.Report, error) {
	programs, err := controlplane.Build(ctx, env.Out)
	if err != nil {
		return report.Report{}, err
	}
	if err := netns.Enter(ctx, pair.Addresses()...); err != nil {
		return report.Report{}, err
	}
	p, err := pair.Start(ctx, pair.Options{
		Programs:  programs,
		Inventory: map[string]string{"SECURED_SUBNET_CIDR": pair.HerdSubnet},
		// Nothing holds a change up.
		Writer: map[string]string{"SECURED_SUBNET_CIDR": pair.HerdSubnet, "HEALTH_CHECK_MODE": "off", "SHRINK_WINDOW": "0"},
	})
	if err != nil {
		return report.Report{}, err
	}
	b := &bench{extent: whole, pair: p}
	if env.Quick {
		b.extent = quick
	}
	sizes, err := b.measure(ctx, env.Out)
	if err := errors.Join(err, p.Stop()); err != nil {
		return report.Report{}, err
	}
	return b.report(sizes), nil
}

type bench struct {
	extent

	pair *pair.Pair
	herd *pair.Herd
}

func (b *bench) measure(ctx context.Context, out io.Writer) (all []*size, err error) {
	b.pair.StopWatching()
	if b.herd, err = b.pair.NewHerd(); err != nil {
		return nil, err
	}
	if err := b.pair.StartComponents(ctx); err != nil {
		return nil, err
	}
	account, err := newAccount(ctx, b.pair)
	if err != nil {
		return nil, fmt.Errorf("prepare the floor: %w", err)
	}
	for _, nodes := range b.nodes {
		if err := b.grow(ctx, nodes); err != nil {
			return nil, fmt.Errorf("grow to %d nodes: %w", nodes, err)
		}
		fmt.Fprintf(out, "%d nodes are served\n", nodes)
		s := &size{nodes: nodes}
		if err := b.sample(ctx, account, s); err != nil {
			return nil, fmt.Errorf("%d nodes: %w", nodes, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// grow adds nodes, and polls until all of them are ready endpoints: nothing is measured yet.
func (b *bench) grow(ctx context.Context, nodes int) error {
	if err := b.herd.Grow(ctx, nodes); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		list, err := b.pair.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			for _, e := range list.Items[i].Endpoints {
				if e.Conditions.Ready != nil && *e.Conditions.Ready {
					ready++
				}
			}
		}
		if ready == nodes {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d endpoints are ready: %w", ready, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// sample toggles nodes of the herd and the floor's own in turn, and then the herd's alone.
func (b *bench) sample(ctx context.Context, account *account, s *size) error {
	floor, err := account.newFloor(ctx, b.herd)
	if err != nil {
		return err
	}
	ours, err := newSight(ctx, b.pair, pair.Namespace)
	if err != nil {
		return err
	}
	defer ours.close()
	measuring, stop := context.WithCancel(ctx)
	loops, measuring := errgroup.WithContext(measuring)
	loops.Go(func() error { return floor.run(measuring) })
	loops.Go(func() error {
		defer stop()
		return b.inTurn(measuring, s, floor, ours)
	})
	if err := loops.Wait(); err != nil {
		return err
	}
	return b.alone(ctx, s, ours)
}

// toggled is the node that a change is about: each one there and back, all over the herd.
func (b *bench) toggled(change int) (node *pair.Node, ready bool) {
	const stride = 37 // prime to all sizes
	nodes := b.herd.Nodes()
	return nodes[change/2*stride%len(nodes)], change%2 == 1
}

func (b *bench) inTurn(ctx context.Context, s *size, floor *floor, ours *sight) error {
	for i := range warmUp + b.samples {
		node, ready := b.toggled(i)
		least, err := floor.sight.toggle(ctx, floor.node, ready)
		if err != nil {
			return fmt.Errorf("change %d of the floor: %w", i, err)
		}
		took, err := ours.toggle(ctx, node, ready)
		if err != nil {
			return fmt.Errorf("change %d of the pair: %w", i, err)
		}
		if i >= warmUp {
			s.floor, s.pair = append(s.floor, least), append(s.pair, took)
		}
	}
	return nil
}

// alone adds up what rounds of changes cost both components and the API server, one change after the other.
func (b *bench) alone(ctx context.Context, s *size, ours *sight) error {
	earlier, err := b.pair.Writes(ctx)
	if err != nil {
		return err
	}
	for range b.rounds {
		before, err := b.usage()
		if err != nil {
			return err
		}
		for i := range b.changes {
			node, ready := b.toggled(i)
			if _, err := ours.toggle(ctx, node, ready); err != nil {
				return fmt.Errorf("change %d: %w", i, err)
			}
		}
		now, err := b.usage()
		if err != nil {
			return err
		}
		each := func(component int) float64 {
			return figures.Milliseconds((now[component].CPU - before[component].CPU) / time.Duration(b.changes))
		}
		s.inventory, s.writer = append(s.inventory, each(0)), append(s.writer, each(1))
		s.resident = [2]int64{now[0].Resident, now[1].Resident}
	}
	writes, err := b.pair.Writes(ctx)
	s.writes = float64(len(writes)-len(earlier)) / float64(b.rounds*b.changes)
	return err
}

// usage is that of the inventory and the writer.
func (b *bench) usage() (both [2]figures.Usage, err error) {
	for i, component := range []*pair.Component{b.pair.Inventory, b.pair.Writers[0]} {
		if both[i], err = figures.UsageOf(component.PID()); err != nil {
			return both, err
		}
	}
	return both, nil
}

// lists reports whether the slice lists the address with that readiness.
func lists(slice *discoveryv1.EndpointSlice, address string, ready bool) bool {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if e.Addresses[0] == address && e.Conditions.Ready != nil {
			return *e.Conditions.Ready == ready
		}
	}
	return false
}

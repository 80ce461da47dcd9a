package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/netns"
)

// size is how much is measured. A fifth of the subscribers are measured too.
type size struct{ nodes, subscribers, changes, altered, storms int }

var (
	whole = size{nodes: 5000, subscribers: 1000, changes: 100, altered: 5, storms: 5}
	quick = size{nodes: 1000, subscribers: 200, changes: 20, altered: 5, storms: 2}
)

const warmUp = 10 // changes before those that count

// side is one of the two servers and its subscribers.
type side struct {
	server     *Server
	crowd      *Crowd
	makeChange func() (time.Time, error) // returns when it was made

	took        []Times // of each change
	perChange   float64 // CPU seconds, with all subscribers
	allocations float64 // of a change, with all of them
	empty, full Memory
}

// smallCrowd is what a change costs the inventory with few subscribers.
type smallCrowd struct {
	subscribers      int
	took             []time.Duration // until the last of them had the change
	cpu, allocations float64         // of a change
}

// fanout is what was measured.
type fanout struct {
	size

	ours, bare side
	lone, few  smallCrowd
	storms     stormKinds

	out io.Writer
}

// MeasureFanout is the section of the bench: what a change costs that a thousand subscribers receive, what each of
// them costs at rest, and what it costs when all of them come back at once. The baseline is a gRPC server with the same
// TLS and options that sends one message to as many streams, in turn with the inventory.
func MeasureFanout(ctx context.Context, env report.Env) (report.Report, error) {
	if err := netns.Enter(ctx, ClusterAddress); err != nil {
		return report.Report{}, err
	}
	f := &fanout{size: whole, out: env.Out}
	if env.Quick {
		f.size = quick
	}
	dir, err := os.MkdirTemp("", "slicefeed-fanout-")
	if err != nil {
		return report.Report{}, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	if err := f.measure(ctx, dir); err != nil {
		return report.Report{}, err
	}
	return f.report(), nil
}

func (f *fanout) measure(ctx context.Context, dir string) error {
	site, err := NewSite(dir)
	if err != nil {
		return err
	}
	if f.bare.server, err = site.Bare(); err != nil {
		return err
	}
	f.bare.makeChange = f.bare.server.Send
	err = f.measureChanges(ctx, site)
	if err == nil {
		err = f.measureStorms(ctx, site, dir)
	}
	return errors.Join(err, f.bare.server.Stop(grace))
}

// grace is how long a server may take to end in order.
const grace = 20 * time.Second

func (f *fanout) measureChanges(ctx context.Context, site *Site) (err error) {
	fmt.Fprintf(f.out, "a control plane with %d Nodes\n", f.nodes)
	cluster, err := StartCluster(ctx, f.out, f.nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	if f.ours.server, err = site.Inventory(cluster); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.ours.server.Stop(grace)) }()
	flips := 0
	f.ours.makeChange = func() (time.Time, error) {
		flips++
		return cluster.Flip(ctx, flips/2%f.nodes) // each one there and back
	}
	for _, crowd := range []struct {
		subscribers int
		into        *smallCrowd
	}{{1, &f.lone}, {f.subscribers / 5, &f.few}} {
		fmt.Fprintf(f.out, "changes with %d subscribers\n", crowd.subscribers)
		if *crowd.into, err = f.measureSmall(ctx, crowd.subscribers); err != nil {
			return err
		}
	}
	return f.measureAll(ctx)
}

// measureSmall measures the inventory alone. With a single subscriber, it is what leads up to sending.
func (f *fanout) measureSmall(ctx context.Context, subscribers int) (m smallCrowd, err error) {
	s := side{server: f.ours.server, makeChange: f.ours.makeChange}
	if s.crowd, err = NewCrowd(s.server, subscribers, f.nodes); err != nil {
		return m, err
	}
	if _, err := s.crowd.Come(ctx); err != nil {
		return m, err
	}
	if err := f.changeInTurn(ctx, &s); err != nil {
		return m, err
	}
	m = smallCrowd{subscribers: subscribers, took: lasts(s.took), cpu: s.perChange, allocations: s.allocations}
	return m, s.crowd.Leave()
}

// measureAll measures both servers with all subscribers, at rest and with changes.
func (f *fanout) measureAll(ctx context.Context) (err error) {
	fmt.Fprintf(f.out, "changes with %d subscribers of each server\n", f.subscribers)
	for _, s := range []*side{&f.ours, &f.bare} {
		if s.empty, err = s.server.Memory(); err != nil {
			return err
		}
		if s.crowd, err = NewCrowd(s.server, f.subscribers, f.nodes); err != nil {
			return err
		}
		if _, err = s.crowd.Come(ctx); err != nil {
			return err
		}
		if s.full, err = s.server.Memory(); err != nil {
			return err
		}
	}
	return errors.Join(f.changeInTurn(ctx, &f.ours, &f.bare), f.ours.crowd.Leave(), f.bare.crowd.Leave())
}

// changeInTurn measures changes of each side, one after the other.
func (f *fanout) changeInTurn(ctx context.Context, sides ...*side) error {
	before := make([]Metrics, len(sides))
	for i := range warmUp + f.changes {
		for n, s := range sides {
			if i == warmUp {
				var err error
				if before[n], err = s.server.Metrics(); err != nil {
					return err
				}
			}
			took, err := s.change(ctx)
			if err != nil {
				return err
			}
			if i >= warmUp {
				s.took = append(s.took, took)
			}
		}
	}
	for n, s := range sides {
		after, err := s.server.Metrics()
		if err != nil {
			return err
		}
		changes := float64(f.changes)
		s.perChange = (after.CPU() - before[n].CPU()) / changes
		s.allocations = (after.Allocations() - before[n].Allocations()) / changes
	}
	return nil
}

func (s *side) change(ctx context.Context) (Times, error) {
	a := s.crowd.ExpectChange()
	at, err := s.makeChange()
	if err != nil {
		return nil, err
	}
	return s.crowd.Wait(ctx, a, at, time.Minute)
}

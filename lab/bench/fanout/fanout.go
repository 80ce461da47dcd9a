// Package fanout measures what a change costs when a thousand are told of it, and what each of
// them costs at rest: on the inventory's own program, beside a bare gRPC server with the same
// TLS and options that sends one message to as many streams. It promises that what is called
// ours is the difference between the two, in one run, by turns.
package fanout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/load"
	"github.com/slicefeed/slicefeed/lab/netns"
)

// size is how much is measured.
type size struct{ nodes, subscribers, changes int }

var (
	whole = size{nodes: 5000, subscribers: 1000, changes: 100}
	quick = size{nodes: 1000, subscribers: 200, changes: 20}
)

const warmUp = 10 // changes before those that count

// Run measures.
func Run(ctx context.Context, env report.Env) ([]*report.Part, error) {
	if err := netns.Enter(ctx, load.ClusterAddress); err != nil {
		return nil, err
	}
	of := whole
	if env.Quick {
		of = quick
	}
	dir, err := os.MkdirTemp("", "slicefeed-fanout-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is of no use to anyone
	found, err := measure(ctx, env, dir, of)
	if err != nil {
		return nil, err
	}
	return []*report.Part{found.part()}, nil
}

// side is one of the two servers, and what was found of it.
type side struct {
	server *load.Server
	crowd  *load.Crowd
	tell   func() (time.Time, error) // makes the next change, and returns when

	took        []load.Times // of each change
	perChange   float64      // CPU seconds, with all subscribers
	allocations float64      // per change, with all of them
	empty, full load.Memory
}

// found is what a run found.
type found struct {
	size

	ours, bare side

	// What the inventory needs until it can tell: the same change with a single subscriber.
	lone            []time.Duration
	loneCPU         float64 // a change
	loneAllocations float64
}

func measure(ctx context.Context, env report.Env, dir string, of size) (f *found, err error) {
	f = &found{size: of}
	fmt.Fprintf(env.Out, "a control plane with %d Nodes\n", of.nodes)
	cluster, err := load.StartCluster(ctx, env.Out, of.nodes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	site, err := load.NewSite(dir)
	if err != nil {
		return nil, err
	}
	if f.ours.server, err = site.Inventory(cluster); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.ours.server.Stop(20*time.Second)) }()
	if f.bare.server, err = site.Bare(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.bare.server.Stop(20*time.Second)) }()
	next := 0
	f.ours.tell = func() (time.Time, error) {
		next++
		return cluster.Flip(ctx, next/2%of.nodes) // each one there and back
	}
	f.bare.tell = f.bare.server.Send

	fmt.Fprintln(env.Out, "changes with a single subscriber")
	if err := f.single(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(env.Out, "%d subscribers come to each server\n", of.subscribers)
	for _, s := range []*side{&f.ours, &f.bare} {
		if err := s.come(ctx, of); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.crowd.Leave()) }()
	}
	return f, f.changeByTurns(ctx, env)
}

// single measures the inventory with one subscriber, so that what leads up to
// telling can be told from telling the others.
func (f *found) single(ctx context.Context) error {
	one := side{server: f.ours.server, tell: f.ours.tell}
	if err := one.come(ctx, size{nodes: f.nodes, subscribers: 1}); err != nil {
		return err
	}
	before, err := one.server.Metrics()
	if err != nil {
		return err
	}
	for i := range warmUp + f.changes {
		if i == warmUp {
			if before, err = one.server.Metrics(); err != nil {
				return err
			}
		}
		took, err := one.change(ctx)
		if err != nil {
			return err
		}
		if i >= warmUp {
			f.lone = append(f.lone, took.Last())
		}
	}
	f.loneCPU, f.loneAllocations, err = one.since(before, f.changes)
	return errors.Join(err, one.crowd.Leave())
}

// come measures what the crowd takes at rest.
func (s *side) come(ctx context.Context, of size) (err error) {
	if s.empty, err = s.server.Memory(); err != nil {
		return err
	}
	if s.crowd, err = load.NewCrowd(s.server, of.subscribers, of.nodes); err != nil {
		return err
	}
	if _, err = s.crowd.Come(ctx); err != nil {
		return err
	}
	s.full, err = s.server.Memory()
	return err
}

func (s *side) change(ctx context.Context) (load.Times, error) {
	a := s.crowd.ExpectChange()
	at, err := s.tell()
	if err != nil {
		return nil, err
	}
	return s.crowd.Wait(ctx, a, at, time.Minute)
}

// since returns the CPU seconds and the allocations of a change.
func (s *side) since(before load.Metrics, changes int) (cpu, allocations float64, err error) {
	after, err := s.server.Metrics()
	if err != nil {
		return 0, 0, err
	}
	n := float64(changes)
	return (after.CPU() - before.CPU()) / n, (after.Allocations() - before.Allocations()) / n, nil
}

func (f *found) changeByTurns(ctx context.Context, env report.Env) error {
	sides := []*side{&f.ours, &f.bare}
	before := make([]load.Metrics, len(sides))
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
		if done := i + 1 - warmUp; done > 0 && done%25 == 0 {
			fmt.Fprintf(env.Out, "%d of %d changes\n", done, f.changes)
		}
	}
	for n, s := range sides {
		var err error
		if s.perChange, s.allocations, err = s.since(before[n], f.changes); err != nil {
			return err
		}
	}
	return nil
}

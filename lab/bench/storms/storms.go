// Package storms measures what it costs when a thousand subscribers come back at once: to a set
// that did not change, to one that did, and to an inventory that was started anew meanwhile and sees
// the same nodes. It promises that bytes are those after the TLS handshake, as HTTP/2 has them,
// and to have a bare gRPC server with the same TLS and options beside it, in one run.
package storms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/load"
	"github.com/slicefeed/slicefeed/lab/netns"
)

// size is how much is measured.
type size struct{ nodes, subscribers, altered, times int }

var (
	whole = size{nodes: 5000, subscribers: 1000, altered: 5, times: 5}
	quick = size{nodes: 1000, subscribers: 200, altered: 5, times: 2}
)

// Run measures.
func Run(ctx context.Context, env report.Env) ([]*report.Part, error) {
	if err := netns.Enter(ctx); err != nil {
		return nil, err
	}
	of := whole
	if env.Quick {
		of = quick
	}
	dir, err := os.MkdirTemp("", "slicefeed-storms-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is of no use to anyone
	f, err := measure(ctx, env.Out, dir, of)
	if err != nil {
		return nil, err
	}
	return []*report.Part{f.part()}, nil
}

// storm is what was found of one kind, each time that it was made.
type storm struct {
	took   []load.Times
	bytes  []int64 // of each subscriber of each time, until it was in step
	cpu    float64 // seconds of the server, of all
	resets float64 // messages of resets that were sent
}

// found is what a run found.
type found struct {
	size

	bare, fresh, unchanged, changed, restarted storm
}

// stage is what the storms are made with.
type stage struct {
	size

	out             io.Writer
	fleet           *load.Fleet
	inventory, bare *load.Server
	crowd, others   *load.Crowd // of either
	flipped         int
}

func measure(ctx context.Context, out io.Writer, dir string, of size) (f *found, err error) {
	s := &stage{size: of, out: out}
	if s.fleet, err = load.NewFleet(dir, of.nodes); err != nil {
		return nil, err
	}
	site, err := load.NewSite(dir)
	if err != nil {
		return nil, err
	}
	if s.inventory, err = site.Inventory(s.fleet); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.inventory.Stop(20*time.Second)) }()
	if s.bare, err = site.Bare(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.bare.Stop(20*time.Second)) }()
	if s.crowd, err = load.NewCrowd(s.inventory, of.subscribers, of.nodes); err != nil {
		return nil, err
	}
	if s.others, err = load.NewCrowd(s.bare, of.subscribers, of.nodes); err != nil {
		return nil, err
	}
	f = &found{size: of}
	return f, s.play(ctx, f)
}

// play leaves nobody connected, so that each storm is the only one.
func (s *stage) play(ctx context.Context, f *found) error {
	if err := s.come(ctx, "with nothing", &f.fresh, s.inventory, s.crowd); err != nil {
		return err
	}
	for range s.times {
		if err := s.come(ctx, "to the bare server", &f.bare, s.bare, s.others); err != nil {
			return err
		}
		if err := s.come(ctx, "to what they hold", &f.unchanged, s.inventory, s.crowd); err != nil {
			return err
		}
		if err := s.alter(ctx); err != nil {
			return err
		}
		if err := s.come(ctx, "to some changes", &f.changed, s.inventory, s.crowd); err != nil {
			return err
		}
		if err := s.restart(ctx); err != nil {
			return err
		}
		if err := s.come(ctx, "to another life of the inventory", &f.restarted, s.inventory, s.crowd); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) come(ctx context.Context, to string, is *storm, server *load.Server, crowd *load.Crowd) error {
	before, err := server.Metrics()
	if err != nil {
		return err
	}
	took, err := crowd.Come(ctx)
	if err != nil {
		return err
	}
	after, err := server.Metrics()
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%d subscribers came %s in %s\n", s.subscribers, to, took.Last().Round(time.Millisecond))
	resets := func(m load.Metrics) float64 {
		return m.Sum("slicefeed_inventory_stream_messages_total", `kind="reset"`)
	}
	is.took = append(is.took, took)
	is.bytes = append(is.bytes, crowd.Bytes()...)
	is.cpu += after.CPU() - before.CPU()
	is.resets += resets(after) - resets(before)
	return crowd.Leave()
}

// alter changes some nodes while nobody is connected.
func (s *stage) alter(ctx context.Context) error {
	changes := func() (float64, error) {
		m, err := s.inventory.Metrics()
		return m.Sum("slicefeed_inventory_feed_changes_total"), err
	}
	before, err := changes()
	if err != nil {
		return err
	}
	var some []int
	for range s.altered {
		some = append(some, s.flipped%s.nodes)
		s.flipped++
	}
	if _, err := s.fleet.Flip(some...); err != nil {
		return err
	}
	return s.inventory.Until(ctx, "the changes are in the feed", time.Minute, func() (bool, error) {
		now, err := changes()
		return now >= before+float64(s.altered), err
	})
}

// restart ends the inventory and starts it again, over the same file.
func (s *stage) restart(ctx context.Context) error {
	if err := s.inventory.Stop(20 * time.Second); err != nil {
		return err
	}
	return s.inventory.Start(ctx)
}

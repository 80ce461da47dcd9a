package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/netns"
)

// The goals.
const (
	goalCPU   = 1.5
	goalTime  = 1.5
	goalBytes = 512 // some frames of HTTP/2, and a status
)

const (
	benchNodes = 500              // no message of one change depends on how many there are
	warmUp     = 10               // changes before those that count
	grace      = 20 * time.Second // in which a server ends in order
)

// side is one of the two servers and its subscribers.
type side struct {
	server     *Server
	crowd      *Crowd
	makeChange func() (time.Time, error) // returns when it was made

	perChange float64         // CPU seconds
	back      []time.Duration // until all were back, of each time
}

// fanout is what was measured.
type fanout struct {
	subscribers, changes, storms int

	ours, bare side
	lone       float64 // CPU seconds of a change with a single subscriber: what leads up to sending
	bytes      []int64 // to each subscriber that came back
	resets     float64 // messages of whole sets to those
}

// MeasureFanout is the section of the bench: what a change costs that a thousand subscribers receive, and what it costs
// when all of them come back at once. The baseline is a gRPC server with the same TLS and options that sends one message
// to as many streams, in turn with the inventory.
func MeasureFanout(ctx context.Context, env report.Env) (report.Report, error) {
	if err := netns.Enter(ctx); err != nil {
		return report.Report{}, err
	}
	f := &fanout{subscribers: 1000, changes: 100, storms: 5}
	if env.Quick {
		f = &fanout{subscribers: 200, changes: 20, storms: 2}
	}
	dir, err := os.MkdirTemp("", "slicefeed-fanout-")
	if err != nil {
		return report.Report{}, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	fmt.Fprintf(env.Out, "%d changes with %d subscribers of each server; %d times all come back\n", f.changes, f.subscribers, f.storms)
	if err := f.measure(ctx, dir); err != nil {
		return report.Report{}, err
	}
	return f.report(), nil
}

func (f *fanout) measure(ctx context.Context, dir string) (err error) {
	site, err := NewSite(dir)
	if err != nil {
		return err
	}
	fleet, err := NewFleet(dir, benchNodes)
	if err != nil {
		return err
	}
	if f.bare.server, err = site.Bare(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.bare.server.Stop(grace)) }()
	if f.ours.server, err = site.Inventory(fleet); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.ours.server.Stop(grace)) }()
	flips := 0
	f.bare.makeChange = f.bare.server.Send
	f.ours.makeChange = func() (time.Time, error) {
		flips++
		return fleet.Flip(flips / 2 % benchNodes) // each one there and back
	}
	lone := f.ours
	if err := f.measureChanges(ctx, 1, &lone); err != nil {
		return err
	}
	f.lone = lone.perChange
	if err := f.measureChanges(ctx, f.subscribers, &f.ours, &f.bare); err != nil {
		return err
	}
	return f.measureStorms(ctx)
}

// measureChanges measures changes of each side with so many subscribers, one after the other.
func (f *fanout) measureChanges(ctx context.Context, subscribers int, sides ...*side) (err error) {
	before := make([]Metrics, len(sides))
	for _, s := range sides {
		if s.crowd, err = NewCrowd(s.server, subscribers, benchNodes); err != nil {
			return err
		}
		if _, err = s.crowd.Come(ctx); err != nil {
			return err
		}
	}
	for i := range warmUp + f.changes {
		for n, s := range sides {
			if i == warmUp {
				if before[n], err = s.server.Metrics(); err != nil {
					return err
				}
			}
			a := s.crowd.ExpectChange()
			at, err := s.makeChange()
			if err != nil {
				return err
			}
			if _, err := s.crowd.Wait(ctx, a, at, time.Minute); err != nil {
				return err
			}
		}
	}
	for n, s := range sides {
		after, err := s.server.Metrics()
		if err != nil {
			return err
		}
		s.perChange = (after.CPU() - before[n].CPU()) / float64(f.changes)
		if err := s.crowd.Leave(); err != nil {
			return err
		}
	}
	return nil
}

// measureStorms has all subscribers come back at once, to what they hold, in turn to each server.
func (f *fanout) measureStorms(ctx context.Context) error {
	resets := func() (float64, error) {
		m, err := f.ours.server.Metrics()
		return m.Sum("slicefeed_inventory_stream_messages_total", `kind="reset"`), err
	}
	before, err := resets()
	if err != nil {
		return err
	}
	for range f.storms {
		for _, s := range []*side{&f.bare, &f.ours} {
			took, err := s.crowd.Come(ctx)
			if err != nil {
				return err
			}
			s.back = append(s.back, took.Last())
			if err := s.crowd.Leave(); err != nil {
				return err
			}
		}
		f.bytes = append(f.bytes, f.ours.crowd.Bytes()...)
	}
	after, err := resets()
	f.resets = after - before
	return err
}

func (f *fanout) report() report.Report {
	n := float64(f.subscribers)
	ours, bare := (f.ours.perChange-f.lone)/(n-1), f.bare.perChange/n // the one's message is in neither
	back, bareBack := median(f.ours.back).Seconds(), median(f.bare.back).Seconds()
	return report.Report{
		Setup: fmt.Sprintf(
			"%d nodes from a file, %d subscribers of one set with a connection each, %d changes of one node; in turn with a gRPC server of "+
				"the same TLS and options that sends one message, encoded once, to as many streams from a single loop. Then all subscribers "+
				"begin at once, %d times; none is connected between. Bytes are what a subscriber receives after the TLS handshake until it is "+
				"synced. Servers and subscribers share the machine.",
			benchNodes,
			f.subscribers,
			f.changes,
			f.storms,
		),
		Goals: []report.Goal{
			{Text: "CPU per message over the bare server's", Figure: ours / bare, AtMost: goalCPU, Unit: "×"},
			{Text: "most bytes to a subscriber that comes back to what it holds", Figure: float64(slices.Max(f.bytes)), AtMost: goalBytes},
			{Text: "whole sets sent to those that came back", Figure: f.resets},
			{
				Text: "time until all are back, over the bare server's", Figure: back / bareBack, AtMost: goalTime, Unit: "×",
				Noise: noise(f.ours.back, f.bare.back),
			},
		},
		Tables: []report.Table{{
			Columns: []string{"", "CPU per message", "all are back"},
			Rows: [][]string{
				{"the inventory", fmt.Sprintf("%.1f µs", ours*1e6), fmt.Sprintf("%.2f s", back)},
				{"bare gRPC", fmt.Sprintf("%.1f µs", bare*1e6), fmt.Sprintf("%.2f s", bareBack)},
			},
		}},
	}
}

func median(samples []time.Duration) time.Duration { return figures.Percentile(samples, 50) }

// noise is half of how far apart the ratios of the single storms are.
func noise(ours, bare []time.Duration) float64 {
	var ratios []float64
	for i := range ours {
		ratios = append(ratios, ours[i].Seconds()/bare[i].Seconds())
	}
	return (slices.Max(ratios) - slices.Min(ratios)) / 2
}

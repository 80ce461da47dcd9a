package storms

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
)

// The goals.
const (
	goalBytes  = 512  // of one who comes back to what it holds: some frames of HTTP/2, and a status
	goalChange = 100  // more, for each node that changed
	goalTime   = 1.5  // times the bare server's
	goalShare  = 0.01 // of the bytes of a whole set
)

func (f *found) part() *report.Part {
	middle := func(s *storm) float64 { return figures.Percentile(lasts(s), 50).Seconds() }
	share := float64(slices.Max(f.restarted.bytes)) / float64(half(f.fresh.bytes))
	return &report.Part{
		Setup: fmt.Sprintf("%d nodes from a file, %d subscribers with a connection each, all of which begin at once, %d times; bytes are what a subscriber is sent after the TLS handshake until it is in step. "+
			"Between the storms nobody is connected. The subscribers share the machine with the servers.", f.nodes, f.subscribers, f.times),
		Goals: []report.Goal{
			{Text: "most bytes to one who comes back to what it holds", Figure: float64(slices.Max(f.unchanged.bytes)), AtMost: goalBytes},
			{Text: "most bytes more to one for each node that changed meanwhile", Figure: float64(slices.Max(f.changed.bytes)-half(f.unchanged.bytes)) / float64(f.altered), AtMost: goalChange},
			{Text: "most bytes to one after a restart with the same truth, of those of a whole set", Figure: share, AtMost: goalShare},
			{Text: "whole sets sent to those who came back", Figure: f.unchanged.resets + f.changed.resets + f.restarted.resets, AtMost: 0},
			{Text: "time until all are back, over the bare server's", Figure: middle(&f.unchanged) / middle(&f.bare), AtMost: goalTime, Unit: "×", Noise: noise(lasts(&f.unchanged), lasts(&f.bare))},
		},
		Tables: []report.Table{{
			Title:   "They come, median of all storms of the kind:",
			Columns: []string{"", "half of them in step", "all of them", "bytes each, median", "bytes each, most", "CPU of the server each"},
			Rows: [][]string{
				f.line("bare gRPC, one message", &f.bare),
				f.line("nothing changed", &f.unchanged),
				f.line(fmt.Sprintf("%d nodes changed", f.altered), &f.changed),
				f.line("inventory started anew, nothing changed", &f.restarted),
				f.line("they hold nothing", &f.fresh),
			},
		}},
	}
}

func (f *found) line(name string, s *storm) []string {
	var halves []time.Duration
	for _, took := range s.took {
		halves = append(halves, took.Half())
	}
	return []string{
		name, seconds(halves), seconds(lasts(s)), strconv.FormatInt(half(s.bytes), 10), strconv.FormatInt(slices.Max(s.bytes), 10),
		fmt.Sprintf("%.2f ms", s.cpu*1000/float64(len(s.bytes))),
	}
}

func lasts(s *storm) []time.Duration {
	var all []time.Duration
	for _, took := range s.took {
		all = append(all, took.Last())
	}
	return all
}

func seconds(samples []time.Duration) string {
	return fmt.Sprintf("%.2f s", figures.Percentile(samples, 50).Seconds())
}

func half(bytes []int64) int64 { return slices.Sorted(slices.Values(bytes))[len(bytes)/2] }

// noise is half of how far apart the ratios are of the single storms, each over the one before it.
func noise(ours, bare []time.Duration) float64 {
	var ratios []float64
	for i := range ours {
		ratios = append(ratios, ours[i].Seconds()/bare[i].Seconds())
	}
	return (slices.Max(ratios) - slices.Min(ratios)) / 2
}

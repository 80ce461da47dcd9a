package fanout

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/load"
)

// The goals.
const (
	goalMemory      = 32 // KiB
	goalAllocations = 10
	goalTime        = 1.5
	goalCPU         = 1.5
)

func (f *found) part() *report.Part {
	ours, bare := f.costs(&f.ours), f.costs(&f.bare)
	lone := figures.Percentile(f.lone, 50)
	last := func(from, to int) float64 {
		return (median(lasts(f.ours.took[from:to])) - lone).Seconds() / median(lasts(f.bare.took[from:to])).Seconds()
	}
	n, half := f.changes, f.changes/2
	return &report.Part{
		Setup: fmt.Sprintf("%d Nodes of a real API server, %d subscribers of one view with a connection each, %d changes of one node; by turns with a gRPC server of the same TLS and options "+
			"that sends one message, encoded once, to as many streams from a single loop. All of them, and the subscribers, share the machine, with the API server.", f.nodes, f.subscribers, f.changes),
		Goals: []report.Goal{
			{Text: "live memory per subscriber beyond a bare stream's", Figure: ours.memory - bare.memory, AtMost: goalMemory, Unit: "KiB"},
			{Text: "allocations per subscriber and change beyond the bare server's", Figure: ours.allocations - bare.allocations, AtMost: goalAllocations},
			{Text: "time to the last subscriber, less that to a single one, over the bare server's, p50", Figure: last(0, n), AtMost: goalTime, Unit: "×", Noise: math.Abs(last(0, half) - last(half, n))},
			{Text: "CPU per message over the bare server's", Figure: ours.cpu / bare.cpu, AtMost: goalCPU, Unit: "×"},
		},
		Tables: []report.Table{
			{
				Title:   "From the change until so many have it, p50 and p99 of all changes:",
				Columns: []string{"", "the first", "half", "99 of 100", "the last"},
				Rows: [][]string{
					f.line("the inventory", f.ours.took),
					f.line("bare gRPC", f.bare.took),
					{"the inventory, with one subscriber only", spread(f.lone), "", "", ""},
				},
			},
			{
				Title:   "Of each subscriber:",
				Columns: []string{"", "CPU per message", "allocations per message", "live memory at rest"},
				Rows:    [][]string{ours.line("the inventory"), bare.line("bare gRPC")},
			},
		},
		Plots: []report.Plot{{
			Name: "fanout", Title: fmt.Sprintf("One change to %d subscribers, median of %d changes", f.subscribers, f.changes),
			X: report.Axis{Label: "ms since the change"}, Y: report.Axis{Label: "subscribers that have it"},
			Series: []report.Series{
				{Name: "the inventory, from the patch of a Node", Points: curve(f.ours.took)},
				{Name: "bare gRPC", Points: curve(f.bare.took)},
			},
		}},
	}
}

// costs are those of one subscriber.
type costs struct{ cpu, allocations, memory float64 } // seconds a message, a message, KiB

// costs takes off what a change costs the inventory with one subscriber: that one's message is
// counted among neither.
func (f *found) costs(s *side) costs {
	n, cpu, allocations := float64(f.subscribers), s.perChange, s.allocations
	if s == &f.ours {
		n, cpu, allocations = n-1, cpu-f.loneCPU, allocations-f.loneAllocations
	}
	return costs{cpu / n, allocations / n, (s.full.Live - s.empty.Live) * 1024 / float64(f.subscribers)}
}

func (c costs) line(name string) []string {
	return []string{name, fmt.Sprintf("%.1f µs", c.cpu*1e6), fmt.Sprintf("%.1f", c.allocations), fmt.Sprintf("%.1f KiB", c.memory)}
}

func (f *found) line(name string, took []load.Times) []string {
	line := []string{name}
	for _, k := range []int{0, f.subscribers / 2, f.subscribers * 99 / 100, f.subscribers - 1} {
		line = append(line, spread(nth(took, k)))
	}
	return line
}

func spread(samples []time.Duration) string {
	return fmt.Sprintf("%.1f / %.1f ms", figures.Milliseconds(figures.Percentile(samples, 50)), figures.Milliseconds(figures.Percentile(samples, 99)))
}

func median(samples []time.Duration) time.Duration { return figures.Percentile(samples, 50) }

// nth are the times of the subscriber that was the nth, of each change.
func nth(took []load.Times, n int) []time.Duration {
	var all []time.Duration
	for _, t := range took {
		all = append(all, t[n])
	}
	return all
}

func lasts(took []load.Times) []time.Duration { return nth(took, len(took[0])-1) }

// curve is the median time of each, thinned out to what can be seen.
func curve(took []load.Times) [][2]float64 {
	var points [][2]float64
	for k := range took[0] {
		if every := max(1, len(took[0])/100); k%every == 0 || k == len(took[0])-1 {
			points = append(points, [2]float64{figures.Milliseconds(median(nth(took, k))), float64(k + 1)})
		}
	}
	return slices.Clip(points)
}

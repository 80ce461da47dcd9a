package load

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
)

// The goals.
const (
	goalMemory      = 32 // KiB
	goalAllocations = 10
	goalTime        = 1.5
	goalCPU         = 1.5
	goalLinear      = 1.5

	goalBytes       = 512  // to a subscriber that comes back to what it holds: some frames of HTTP/2, and a status
	goalChangeBytes = 100  // more, for each node that changed
	goalShare       = 0.01 // of the bytes of a whole set
)

func (f *fanout) report() report.Report {
	return report.Report{
		Setup: fmt.Sprintf(
			"%d Nodes of a real API server, %d subscribers of one set with a connection each, %d changes of one node; in turn with "+
				"a gRPC server of the same TLS and options that sends one message, encoded once, to as many streams from a single loop. Then as many "+
				"nodes from a file, and all subscribers begin at once, %d times; none is connected between. Bytes are what a subscriber receives after "+
				"the TLS handshake until it is synced. Servers, subscribers and API server share the machine.",
			f.nodes,
			f.subscribers,
			f.changes,
			f.size.storms,
		),
		Goals:  slices.Concat(f.changeGoals(), f.stormGoals()),
		Tables: f.tables(),
	}
}

func (f *fanout) changeGoals() []report.Goal {
	ours, bare := f.costs(&f.ours), f.costs(&f.bare)
	lone := figures.Percentile(f.lone.took, 50)
	last := func(from, to int) float64 {
		return (median(lasts(f.ours.took[from:to])) - lone).Seconds() / median(lasts(f.bare.took[from:to])).Seconds()
	}
	n, half := f.changes, f.changes/2
	few := (f.few.cpu - f.lone.cpu) / float64(f.few.subscribers-1)
	return []report.Goal{
		{Text: "live memory per subscriber beyond a bare stream's", Figure: ours.memory - bare.memory, AtMost: goalMemory, Unit: "KiB"},
		{
			Text: "allocations per subscriber and change beyond the bare server's", Figure: ours.allocations - bare.allocations,
			AtMost: goalAllocations,
		},
		{
			Text: "time to the last subscriber, less that to a single one, over the bare server's, p50", Figure: last(0, n),
			AtMost: goalTime, Unit: "×", Noise: math.Abs(last(0, half) - last(half, n)),
		},
		{Text: "CPU per message over the bare server's", Figure: ours.cpu / bare.cpu, AtMost: goalCPU, Unit: "×"},
		{
			Text:   fmt.Sprintf("CPU of a message to %d subscribers over that to %d (or the inverse)", f.subscribers, f.few.subscribers),
			Figure: max(ours.cpu/few, few/ours.cpu), AtMost: goalLinear, Unit: "×",
		},
	}
}

func (f *fanout) stormGoals() []report.Goal {
	s := &f.storms
	middle := func(s *storm) float64 { return median(lasts(s.took)).Seconds() }
	return []report.Goal{
		{
			Text: "most bytes to a subscriber that comes back to what it holds", Figure: float64(slices.Max(s.unchanged.bytes)),
			AtMost: goalBytes,
		},
		{
			Text:   "most bytes more to one for each node that changed meanwhile",
			Figure: float64(slices.Max(s.changed.bytes)-medianBytes(s.unchanged.bytes)) / float64(f.altered), AtMost: goalChangeBytes,
		},
		{
			Text:   "most bytes to one after a restart with the same nodes, of those of a whole set",
			Figure: float64(slices.Max(s.restarted.bytes)) / float64(medianBytes(s.fresh.bytes)), AtMost: goalShare,
		},
		{Text: "whole sets sent to those that came back", Figure: s.unchanged.resets + s.changed.resets + s.restarted.resets},
		{
			Text:   "time until all are back, over the bare server's",
			Figure: middle(&s.unchanged) / middle(&s.bare),
			AtMost: goalTime,
			Unit:   "×",
			Noise:  noise(lasts(s.unchanged.took), lasts(s.bare.took)),
		},
	}
}

func (f *fanout) tables() []report.Table {
	ours, bare, s := f.costs(&f.ours), f.costs(&f.bare), &f.storms
	return []report.Table{
		{
			Title:   "From the change until so many have it, p50 and p99 of all changes:",
			Columns: []string{"", "the first", "half", "99 of 100", "the last"},
			Rows: [][]string{
				f.line("the inventory", f.ours.took),
				f.line("bare gRPC", f.bare.took),
				{"the inventory, with one subscriber only", spread(f.lone.took), "", "", ""},
			},
		},
		{
			Title:   "Of each subscriber:",
			Columns: []string{"", "CPU per message", "allocations per message", "live memory at rest"},
			Rows:    [][]string{ours.line("the inventory"), bare.line("bare gRPC")},
		},
		{
			Title:   "All come back at once, median of all storms of the kind:",
			Columns: []string{"", "half of them synced", "all of them", "bytes each, median", "bytes each, most", "CPU of the server each"},
			Rows: [][]string{
				s.bare.line("bare gRPC, one message"),
				s.unchanged.line("nothing changed"),
				s.changed.line(fmt.Sprintf("%d nodes changed", f.altered)),
				s.restarted.line("inventory restarted, nothing changed"),
				s.fresh.line("they hold nothing"),
			},
		},
	}
}

// costs are those of one subscriber.
type costs struct{ cpu, allocations, memory float64 } // seconds per message, per message, KiB

// costs subtracts what a change costs the inventory with one subscriber: that one's message is in neither.
func (f *fanout) costs(s *side) costs {
	n, cpu, allocations := float64(f.subscribers), s.perChange, s.allocations
	if s == &f.ours {
		n, cpu, allocations = n-1, cpu-f.lone.cpu, allocations-f.lone.allocations
	}
	return costs{cpu / n, allocations / n, (s.full.Live - s.empty.Live) * 1024 / float64(f.subscribers)}
}

func (c costs) line(name string) []string {
	return []string{name, fmt.Sprintf("%.1f µs", c.cpu*1e6), fmt.Sprintf("%.1f", c.allocations), fmt.Sprintf("%.1f KiB", c.memory)}
}

func (f *fanout) line(name string, took []Times) []string {
	line := []string{name}
	for _, k := range []int{0, f.subscribers / 2, f.subscribers * 99 / 100, f.subscribers - 1} {
		line = append(line, spread(nth(took, k)))
	}
	return line
}

func (s *storm) line(name string) []string {
	var halves []time.Duration
	for _, took := range s.took {
		halves = append(halves, took.Half())
	}
	return []string{
		name,
		seconds(halves),
		seconds(lasts(s.took)),
		strconv.FormatInt(medianBytes(s.bytes), 10),
		strconv.FormatInt(slices.Max(s.bytes), 10),
		fmt.Sprintf("%.2f ms", s.cpu*1000/float64(len(s.bytes))),
	}
}

func spread(samples []time.Duration) string {
	return fmt.Sprintf(
		"%.1f / %.1f ms",
		figures.Milliseconds(figures.Percentile(samples, 50)),
		figures.Milliseconds(figures.Percentile(samples, 99)),
	)
}

func seconds(samples []time.Duration) string { return fmt.Sprintf("%.2f s", median(samples).Seconds()) }

func median(samples []time.Duration) time.Duration { return figures.Percentile(samples, 50) }

func medianBytes(bytes []int64) int64 { return slices.Sorted(slices.Values(bytes))[len(bytes)/2] }

// nth are the times of the subscriber that was the nth, of each change.
func nth(took []Times, n int) []time.Duration {
	var all []time.Duration
	for _, t := range took {
		all = append(all, t[n])
	}
	return all
}

func lasts(took []Times) []time.Duration { return nth(took, len(took[0])-1) }

// noise is half of how far apart the ratios of the single storms are.
func noise(ours, bare []time.Duration) float64 {
	var ratios []float64
	for i := range ours {
		ratios = append(ratios, ours[i].Seconds()/bare[i].Seconds())
	}
	return (slices.Max(ratios) - slices.Min(ratios)) / 2
}

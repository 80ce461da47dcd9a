package services

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
)

// The goals. The writer shares the machine's cores with the API server, and its memory is
// what the chart allows it.
const (
	mostRatio  = 2.0
	mostMemory = 256 // MB
)

// findings are all that was measured.
type findings struct {
	plan        plan
	floor, pair []*spread
	idle, after figures.Usage // of the writer
}

func (f *findings) part() *report.Part {
	n := len(f.pair)
	return &report.Part{
		Setup: fmt.Sprintf("%d Services of one class in one namespace, each with all %d nodes; HEALTH_CHECK_MODE=off and SHRINK_WINDOW=0. %d times the readiness of one node changes, "+
			"by turns with a bare client that writes as many slices of the same size, with as many requests under way (%d at most); that one is an administrator, whom the API server's priority and fairness lets pass.",
			f.plan.services, f.plan.nodes, n, underWay),
		Goals: []report.Goal{
			f.ratio("p50 of all slices over the bare client's", 50),
			f.ratio("p99 of all slices over the bare client's", 99),
			{Text: "writes for a change, at most in any", Figure: most(f.pair, func(s *spread) float64 { return s.cost.writes }), AtMost: float64(f.plan.services)},
			{Text: "requests that the API server answered with 429, in all changes", Figure: sum(f.pair, func(s *spread) float64 { return s.cost.refused }), AtMost: 0},
			{Text: "the writer's memory at its peak", Figure: float64(f.after.Peak >> 20), AtMost: mostMemory, Unit: "MB"},
		},
		Tables: []report.Table{{
			Title:   "From the patch (or the first write) being sent to the event of a slice:",
			Columns: []string{"", "p50 of all slices", "p99 of all slices", "the last slice, p50", "the last slice, p99", "writes a change", "429"},
			Rows:    [][]string{line("bare client", f.floor), line("slicefeed", f.pair)},
		}, {
			Title:   "The writer:",
			Columns: []string{"", ""},
			Rows: [][]string{
				{"CPU of a change", fmt.Sprintf("%.0f ms, %.2f ms a Service", f.cpu(), f.cpu()/float64(f.plan.services))},
				{"resident before the changes", fmt.Sprintf("%d MB", f.idle.Resident>>20)},
				{"resident after them", fmt.Sprintf("%d MB", f.after.Resident>>20)},
				{"the most that ever was", fmt.Sprintf("%d MB", f.after.Peak>>20)},
			},
		}},
	}
}

// cpu is that of the writer for a change, in milliseconds.
func (f *findings) cpu() float64 {
	return figures.Milliseconds(f.after.CPU-f.idle.CPU) / float64(len(f.pair)+warmUp)
}

func (f *findings) ratio(text string, percentile int) report.Goal {
	ratio := func(floor, pair []*spread) float64 {
		return figures.Percentile(each(pair), percentile).Seconds() / figures.Percentile(each(floor), percentile).Seconds()
	}
	half := len(f.pair) / 2
	return report.Goal{
		Text: text, Figure: ratio(f.floor, f.pair), AtMost: mostRatio, Unit: "×",
		Noise: math.Abs(ratio(f.floor[:half], f.pair[:half]) - ratio(f.floor[half:], f.pair[half:])),
	}
}

// each is when every single slice was right, of all changes.
func each(of []*spread) (all []time.Duration) {
	for _, s := range of {
		all = append(all, s.each...)
	}
	return all
}

func line(name string, of []*spread) []string {
	last := make([]time.Duration, len(of))
	for i, s := range of {
		last[i] = s.all()
	}
	return []string{
		name, ms(each(of), 50), ms(each(of), 99), ms(last, 50), ms(last, 99),
		fmt.Sprintf("%.0f", most(of, func(s *spread) float64 { return s.cost.writes })),
		fmt.Sprintf("%.0f", sum(of, func(s *spread) float64 { return s.cost.refused })),
	}
}

func ms(samples []time.Duration, percentile int) string {
	return fmt.Sprintf("%.0f ms", figures.Milliseconds(figures.Percentile(samples, percentile)))
}

func values(of []*spread, what func(*spread) float64) []float64 {
	all := make([]float64, len(of))
	for i, s := range of {
		all[i] = what(s)
	}
	return all
}

func most(of []*spread, what func(*spread) float64) float64 { return slices.Max(values(of, what)) }

func sum(of []*spread, what func(*spread) float64) (all float64) {
	for _, value := range values(of, what) {
		all += value
	}
	return all
}

package propagation

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
)

// The goals: ratios to the floor, and the bounds of the prober, which the design gives.
const (
	goalP50       = 1.10
	goalP99       = 1.5
	refusalBound  = 2.5 // seconds
	silenceBound  = 4.5
	microseconds  = "µs"
	ofTheWhole    = "of the whole"
	floorName     = "floor"
	slicefeedName = "slicefeed"
)

func (f *findings) part() *report.Part {
	return &report.Part{
		Title: "One node of four",
		Setup: fmt.Sprintf("One node toggles Ready beside %d ready ones, with HEALTH_CHECK_MODE=off and SHRINK_WINDOW=0, %d times. "+
			"By chance before or after each of them a loop without logic, link, cache or process of its own does the same: the floor. "+
			"Its Node, its slice and the rights of its accounts are like the pair's, and the same admission policy checks what it writes.",
			readyWorkers, len(f.pair)),
		Goals: []report.Goal{
			goal("p50 over the floor's", f.floor, f.pair, 50, goalP50),
			goal("p99 over the floor's", f.floor, f.pair, 99, goalP99),
			bound("a backend that refuses is out, p99", f.refused, refusalBound),
			bound("a backend that is silent is out, p99", f.silent, silenceBound),
		},
		Tables: []report.Table{f.whole(), f.changes(), f.stageTable()},
		Plots: []report.Plot{{
			Name: "propagation", Title: "From patch to event",
			X: report.Axis{Label: "ms", Log: true}, Y: report.Axis{Label: "% of the changes are through"},
			Series: []report.Series{distribution(floorName, f.floor), distribution(slicefeedName, f.pair)},
		}},
		Notes: []string{
			"Guards and probes are measured by draining nodes that are served again, since no guard holds that up, and with probes on a node " +
				"that is not ready is served while its backend answers. A node that joins has its machine looked up in the cloud, at most every 5 s: " +
				"these joined 5 s apart.",
			"The stages are the means over the tenth of the samples that is nearest to the median, in a run of their own in which both halves are traced " +
				"(runtime/trace, read from /debug/pprof/trace; `go tool trace` shows the same milestones).",
			"The ValidatingAdmissionPolicy that the writer's chart installs is part of the last stage, of both. Its own cost is the difference between the " +
				"p50 with it and without it. More than half of that is the API server's conversion of both slices, four times per request, which no rule " +
				"in it can spare.",
		},
	}
}

func (f *findings) whole() report.Table {
	return report.Table{
		Title:   "From the patch being sent to the event being there:",
		Columns: []string{"", "p50", "p90", "p99"},
		Rows: [][]string{
			line("floor: two API servers, no logic", f.floor), line(slicefeedName, f.pair),
			line("floor, without the admission policy", f.free.floor), line("slicefeed, without the admission policy", f.free.pair),
			{"the admission policy's own cost, of the floor", policyCost(f.floor, f.free.floor), "", ""},
			{"the same, of slicefeed", policyCost(f.pair, f.free.pair), "", ""},
		},
	}
}

func (f *findings) changes() report.Table {
	return report.Table{
		Title:   "Other changes:",
		Columns: []string{"", "p50", "p90", "p99"},
		Rows: [][]string{
			line(fmt.Sprintf("one of %d draining nodes is served again: floor", f.undrain), f.undrained.floor),
			line("the same, slicefeed without probes and shrink guard", f.undrained.pair),
			line("floor, beside the next", f.guarded.floor),
			line("the same, slicefeed with default guards and tcp probes", f.guarded.pair),
			line("a node joins, its machine is in the cloud already", f.joined),
			line("a node is deleted", f.left),
			line("a backend refuses connections (bound 2.5 s)", f.refused),
			line("a backend is silent (bound 4.5 s)", f.silent),
		},
	}
}

func (f *findings) stageTable() report.Table {
	t := report.Table{
		Title:   fmt.Sprintf("Where the time of a typical change goes (%d traced):", f.pairStages.samples),
		Columns: []string{"stage", slicefeedName, ofTheWhole, floorName},
	}
	for i, each := range pairStages {
		row := []string{each.name, us(f.pairStages.took[i]), share(f.pairStages.took[i], f.pairStages.whole), ""}
		if j := slices.IndexFunc(floorStages, func(s stage) bool { return s.name == each.name }); j >= 0 {
			row[3] = us(f.floorStages.took[j])
		}
		t.Rows = append(t.Rows, row)
	}
	t.Rows = append(t.Rows,
		[]string{floorStages[1].name, "", "", us(f.floorStages.took[1])},
		[]string{"whole", us(f.pairStages.whole), "100 %", us(f.floorStages.whole)})
	return t
}

// policyCost is how much later the median change is through with something than without it.
func policyCost(with, without []sample) string {
	return ms(figures.Percentile(times(with), 50) - figures.Percentile(times(without), 50))
}

// distribution is the cumulative one, in per cent.
func distribution(name string, samples []sample) report.Series {
	series := report.Series{Name: name}
	for p := 1; p < 100; p++ {
		series.Points = append(series.Points, [2]float64{figures.Milliseconds(figures.Percentile(times(samples), p)), float64(p)})
	}
	return series
}

// beyond is why a ratio may not be what it should.
const beyond = "Beyond the floor is the way through two processes, by stage below. Writing before metrics and status, and a link without pings, were gained here."

func goal(text string, floor, pair []sample, percentile int, atMost float64) report.Goal {
	ratio := func(floor, pair []sample) float64 {
		return figures.Percentile(times(pair), percentile).Seconds() / figures.Percentile(times(floor), percentile).Seconds()
	}
	half := len(pair) / 2
	return report.Goal{
		Text: text, Figure: ratio(floor, pair), AtMost: atMost, Unit: "×",
		Noise:  math.Abs(ratio(floor[:half], pair[:half]) - ratio(floor[half:], pair[half:])),
		Remark: beyond,
	}
}

func bound(text string, samples []sample, seconds float64) report.Goal {
	return report.Goal{Text: text, Figure: figures.Percentile(times(samples), 99).Seconds(), AtMost: seconds, Unit: "s"}
}

func line(name string, samples []sample) []string {
	row := []string{name}
	for _, p := range []int{50, 90, 99} {
		row = append(row, ms(figures.Percentile(times(samples), p)))
	}
	return row
}

func times(samples []sample) []time.Duration {
	all := make([]time.Duration, 0, len(samples))
	for _, s := range samples {
		all = append(all, s.took())
	}
	return all
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", figures.Milliseconds(d)) }

func us(d time.Duration) string { return fmt.Sprintf("%d %s", d.Microseconds(), microseconds) }

func share(d, of time.Duration) string {
	return fmt.Sprintf("%.1f %%", 100*d.Seconds()/of.Seconds())
}

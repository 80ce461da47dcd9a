package growth

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
	mostGrowth = 1.3
	mostStart  = 2.0
)

// whole is why the writer's CPU grows at all, and what was tried.
const whole = "A change of one Service is two decisions (on the source's report, and on the watch event of the write) and two plans, " +
	"and each looks at all endpoints of that Service: the guards speak of the whole (is anything ready, how many leave, does any probe pass). " +
	"What they rest upon is read back and sorted only where it has changed, joined in one pass, and nothing is made that nobody asks for: by BenchmarkOneChange " +
	"34 MB of garbage for a change of one in 5,000 became 8. Decisions that are patched instead of made would be a second form of the rules, to be held to the first; " +
	"it is not worth that while the time of a change stays flat. Other Services cost a change nothing."

// findings are all that was measured.
type findings struct {
	plan   plan
	sizes  []*size
	starts *started
}

func (f *findings) part() *report.Part {
	from, to := f.sizes[1], f.sizes[len(f.sizes)-1]
	grown := fmt.Sprintf("%d nodes over %d", to.nodes, from.nodes)
	writer := f.growth("CPU of one change in the writer, "+grown, from, to, func(s *size) []float64 { return s.writer })
	writer.Remark = whole
	return &report.Part{
		Setup: fmt.Sprintf("Nodes of some 12 KB in the secured cluster, each with a server in the cloud's emulator; one Service; HEALTH_CHECK_MODE=off and SHRINK_WINDOW=0. "+
			"At each size %d changes of one Node's readiness, each of another Node, by turns with as many of the floor, whose slice is as large as the one that is written (%d endpoints at most); "+
			"then %d rounds of %d changes of the pair's alone, for its CPU.", f.plan.samples, perSlice, f.plan.rounds, f.plan.changes),
		Goals: []report.Goal{
			f.growth("time of one change as a multiple of the floor's, "+grown, from, to, (*size).ratios),
			f.growth("CPU of one change in the inventory, "+grown, from, to, func(s *size) []float64 { return s.inventory }),
			writer,
			f.start(),
		},
		Tables: []report.Table{f.changes(), f.startUp()},
		Plots:  []report.Plot{f.plot()},
	}
}

// growth is a goal about how much of something there is at one size and at another. Each has
// several figures of it, of which the least counts: what disturbs only adds.
func (f *findings) growth(text string, from, to *size, of func(*size) []float64) report.Goal {
	a, b := of(from), of(to)
	return report.Goal{
		Text: text, Figure: least(b) / least(a), AtMost: mostGrowth, Unit: "×",
		Noise: spread(a) + spread(b),
	}
}

// ratios are the medians of the pair over those of the floor, in each third of the samples.
func (s *size) ratios() []float64 {
	var all []float64
	third := len(s.pair) / 3
	for i := range 3 {
		part := func(samples []time.Duration) []time.Duration { return samples[i*third : (i+1)*third] }
		all = append(all, milliseconds(part(s.pair))/milliseconds(part(s.floor)))
	}
	return all
}

func (f *findings) start() report.Goal {
	ratios := make([]float64, len(f.starts.synced))
	for i, least := range f.starts.least() {
		ratios[i] = f.starts.own()[i].Seconds() / least.Seconds()
	}
	return report.Goal{
		Text:   fmt.Sprintf("an inventory's start to its first synced message with %d nodes, over a bare LIST of the Nodes and the cloud's pages", f.starts.nodes),
		Figure: median(ratios), AtMost: mostStart, Unit: "×", Noise: slices.Max(ratios) - slices.Min(ratios),
	}
}

func (f *findings) changes() report.Table {
	t := report.Table{
		Title:   "One change, from the patch being sent to the event of the slice:",
		Columns: []string{"nodes", "floor p50", "p50", "p99", "× floor", "CPU inventory", "CPU writer", "resident inventory", "resident writer"},
	}
	for _, s := range f.sizes {
		t.Rows = append(t.Rows, []string{
			strconv.Itoa(s.nodes), ms(milliseconds(s.floor)), ms(milliseconds(s.pair)), ms(figures.Milliseconds(figures.Percentile(s.pair, 99))),
			fmt.Sprintf("%.2f", milliseconds(s.pair)/milliseconds(s.floor)),
			ms(least(s.inventory)), ms(least(s.writer)), fmt.Sprintf("%d MB", s.memory[0]>>20), fmt.Sprintf("%d MB", s.memory[1]>>20),
		})
	}
	slope := []string{"each 1,000 nodes more"}
	from, to := f.sizes[1], f.sizes[len(f.sizes)-1]
	per := func(of func(*size) float64) string {
		return fmt.Sprintf("%+.2f ms", (of(to)-of(from))*1000/float64(to.nodes-from.nodes))
	}
	slope = append(slope, per(func(s *size) float64 { return milliseconds(s.floor) }), per(func(s *size) float64 { return milliseconds(s.pair) }), "", "",
		per(func(s *size) float64 { return least(s.inventory) }), per(func(s *size) float64 { return least(s.writer) }), "", "")
	t.Rows = append(t.Rows, slope)
	return t
}

func (f *findings) startUp() report.Table {
	s := f.starts
	row := func(what string, took []time.Duration) []string {
		return []string{what, ms(milliseconds(took)), ms(figures.Milliseconds(slices.Min(took))), ms(figures.Milliseconds(slices.Max(took)))}
	}
	return report.Table{
		Title:   fmt.Sprintf("An inventory's start with %d nodes, %d times:", s.nodes, len(s.synced)),
		Columns: []string{"", "median", "least", "most"},
		Rows: [][]string{
			row("bare LIST of the Nodes, in pages", s.listed),
			row("the cloud's pages", s.cloud),
			row("both, one after the other: the least", s.least()),
			row("the process alone (`version`)", s.program),
			row("from the process's start to the first synced message", s.synced),
			row("the same without the process alone", s.own()),
		},
	}
}

func (f *findings) plot() report.Plot {
	series := func(name string, of func(*size) float64) report.Series {
		line := report.Series{Name: name}
		for _, s := range f.sizes {
			line.Points = append(line.Points, [2]float64{float64(s.nodes), of(s)})
		}
		return line
	}
	return report.Plot{
		Name: "growth", Title: "Cost of one change",
		X: report.Axis{Label: "nodes", Log: true}, Y: report.Axis{Label: "ms"},
		Series: []report.Series{
			series("time, p50", func(s *size) float64 { return milliseconds(s.pair) }),
			series("time of the floor, p50", func(s *size) float64 { return milliseconds(s.floor) }),
			series("CPU of the inventory", func(s *size) float64 { return least(s.inventory) }),
			series("CPU of the writer", func(s *size) float64 { return least(s.writer) }),
		},
	}
}

// milliseconds is the median.
func milliseconds(samples []time.Duration) float64 {
	return figures.Milliseconds(figures.Percentile(samples, 50))
}

func ms(value float64) string { return fmt.Sprintf("%.2f ms", value) }

func least(of []float64) float64 { return slices.Min(of) }

func median(of []float64) float64 { return slices.Sorted(slices.Values(of))[len(of)/2] }

// spread is how far apart figures of the same are, as a part of the least.
func spread(of []float64) float64 { return (slices.Max(of) - least(of)) / least(of) }

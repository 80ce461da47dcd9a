package propagation

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
	goalP50    = 1.10
	goalP99    = 1.5
	goalGrowth = 1.3
)

func (b *bench) report(sizes []*size) report.Report {
	few, from, to := sizes[0], sizes[1], sizes[len(sizes)-1]
	grown := fmt.Sprintf("%d nodes over %d", to.nodes, from.nodes)
	r := report.Report{
		Setup: fmt.Sprintf(
			"Nodes of real size (50 images), one Service, HEALTH_CHECK_MODE=off and SHRINK_WINDOW=0. At each size %d changes of "+
				"one Node's readiness, each of another Node, in turn with as many of the floor: a loop without logic, link, cache or process of its "+
				"own, whose slice and rights are like the pair's, under the same admission policy. Then %d rounds of %d changes of the pair's alone, "+
				"for its CPU and writes.",
			b.samples,
			b.rounds,
			b.changes,
		),
		Goals: []report.Goal{
			few.overFloor(50, goalP50),
			few.overFloor(99, goalP99),
			growth("time of one change as a multiple of the floor's, "+grown, from.ratios(), to.ratios()),
			growth("CPU of one change in the inventory, "+grown, from.inventory, to.inventory),
			growth("CPU of one change in the writer, "+grown, from.writer, to.writer),
		},
		Tables: []report.Table{{
			Title: "One change, from the patch being sent to the event of the slice:",
			Columns: []string{
				"nodes", "floor p50", "p50", "floor p99", "p99", "CPU inventory", "CPU writer", "resident inventory", "resident writer",
			},
		}},
	}
	for _, s := range sizes {
		r.Goals = append(r.Goals,
			report.Goal{Text: fmt.Sprintf("writes for one change with %d nodes", s.nodes), Figure: s.writes, AtMost: 1})
		row := []string{strconv.Itoa(s.nodes)}
		for _, percentile := range []int{50, 99} {
			for _, side := range [][]time.Duration{s.floor, s.pair} {
				row = append(row, fmt.Sprintf("%.2f ms", figures.Milliseconds(figures.Percentile(side, percentile))))
			}
		}
		for _, cpu := range [][]float64{s.inventory, s.writer} {
			row = append(row, fmt.Sprintf("%.2f ms", slices.Min(cpu)))
		}
		for _, bytes := range s.resident {
			row = append(row, fmt.Sprintf("%d MB", bytes>>20))
		}
		r.Tables[0].Rows = append(r.Tables[0].Rows, row)
	}
	return r
}

// over is a percentile of some changes of the pair over that of the floor.
func (s *size) over(percentile, from, to int) float64 {
	return figures.Percentile(s.pair[from:to], percentile).Seconds() / figures.Percentile(s.floor[from:to], percentile).Seconds()
}

func (s *size) overFloor(percentile int, atMost float64) report.Goal {
	n := len(s.pair)
	return report.Goal{
		Text: fmt.Sprintf("p%d over the floor's with %d nodes", percentile, s.nodes), Figure: s.over(percentile, 0, n), AtMost: atMost,
		Unit: "×", Noise: math.Abs(s.over(percentile, 0, n/2) - s.over(percentile, n/2, n)),
	}
}

// ratios are the medians over the floor's, in each third of the samples.
func (s *size) ratios() (all []float64) {
	third := len(s.pair) / 3
	for i := range 3 {
		all = append(all, s.over(50, i*third, (i+1)*third))
	}
	return all
}

// growth is a goal about how much of something there is at one size and at another. Of several figures the least
// counts: what disturbs only adds.
func growth(text string, from, to []float64) report.Goal {
	spread := func(of []float64) float64 { return (slices.Max(of) - slices.Min(of)) / slices.Min(of) }
	return report.Goal{
		Text:   text,
		Figure: slices.Min(to) / slices.Min(from),
		AtMost: goalGrowth,
		Unit:   "×",
		Noise:  spread(from) + spread(to),
	}
}

package propagation

import (
	"fmt"
	"math"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
)

// The goals, as ratios to the floor.
const (
	goalP50 = 1.10
	goalP99 = 1.5
)

func section(floor, pair []time.Duration) *report.Section {
	return &report.Section{
		Title: "Propagation: Node patch in one API server to EndpointSlice event in the other",
		Settings: fmt.Sprintf("One node toggles Ready beside %d ready ones, with HEALTH_CHECK_MODE=off and SHRINK_WINDOW=0, %d times; "+
			"between each two a loop without logic, link or cache does the same (the floor).", readyWorkers, len(pair)),
		Goals: []report.Goal{
			goal("p50 over the floor's", floor, pair, 50, goalP50),
			goal("p99 over the floor's", floor, pair, 99, goalP99),
		},
		Tables: []report.Table{{
			Title:   "From the patch being sent to the event being there:",
			Columns: []string{"", "p50", "p99"},
			Rows: [][]string{
				line("floor: two API servers, no logic", floor),
				line("slicefeed", pair),
			},
		}},
	}
}

func goal(text string, floor, pair []time.Duration, percentile int, atMost float64) report.Goal {
	ratio := func(floor, pair []time.Duration) float64 {
		return figures.Percentile(pair, percentile).Seconds() / figures.Percentile(floor, percentile).Seconds()
	}
	half := len(pair) / 2
	return report.Goal{
		Text: text, Figure: ratio(floor, pair), AtMost: atMost, Unit: "×",
		Noise: math.Abs(ratio(floor[:half], pair[:half]) - ratio(floor[half:], pair[half:])),
	}
}

func line(name string, samples []time.Duration) []string {
	return []string{name, ms(figures.Percentile(samples, 50)), ms(figures.Percentile(samples, 99))}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", figures.Milliseconds(d)) }

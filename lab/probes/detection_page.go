package probes

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
)

// maxProbes is the prober's own limit of probes under way.
const maxProbes = 512

func (f *detection) report() report.Report {
	return report.Report{
		Setup: fmt.Sprintf(
			"The prober of the writer by itself, in mode tcp with its defaults (interval 2 s, timeout 1 s); a process beside it "+
				"answers for all targets on the same machine. Measured for %v, then %d backends refuse and %d fall silent %d times each, while the "+
				"others are probed on. The last two goals have one Service of %d backends, half of which refuse and half of which fall silent again "+
				"and again for %v, beside another Service of %d nodes of the same source with a filtered probe port and a timeout of %v, %d of whose "+
				"probes are under way.",
			f.long,
			each,
			each,
			f.deaths,
			2*besideEach,
			f.beside,
			neighborNodes,
			neighborTimeout,
			f.neighbor.probes,
		),
		Goals: []report.Goal{
			inSeconds("p99 until a backend that refuses is failing", Refuses, f.refuse.dead),
			inSeconds("p99 until one that is silent is failing", Silent, f.drop.dead),
			{Text: "sockets with 10,000 targets", Figure: float64(f.many.Sockets), AtMost: maxProbes},
			{Text: "p99 between two probes of a target", Figure: f.pace.Gap99.Seconds(), AtMost: 2.1, Unit: "s"},
			overBound("refuses", Refuses, f.neighbor.refuse.dead),
			overBound("is silent", Silent, f.neighbor.drop.dead),
		},
		Tables: []report.Table{
			{
				Title: "What it takes, beside a loop that does nothing but connect and hang up, one target after the other, at the same pace:",
				Columns: []string{
					"targets",
					"probes a second",
					"CPU per 1,000",
					"the loop's",
					"ratio",
					"sockets at most",
					"resident memory more",
				},
				Rows: [][]string{taken(many, f.many, f.loop), taken(few, f.few, f.fewLoop)},
			},
			{
				Title:   "The pace, as those who answer see it; jitter makes an interval up to a tenth shorter:",
				Columns: []string{"", "p1", "p50", "p99", "at most"},
				Rows: [][]string{
					{"between two probes of a target", sec(f.pace.Gap1), sec(f.pace.Gap50), sec(f.pace.Gap99), sec(f.pace.Longest)},
					{
						"probes in a tenth of a second", strconv.Itoa(f.pace.Slot1), fmt.Sprintf("%.0f (mean)", f.many.Probes/10),
						strconv.Itoa(f.pace.Slot99), "",
					},
				},
			},
			{
				Title: fmt.Sprintf(
					"From a backend's death, or its return, to the status that says so (%d of each; beside a Service with a "+
						"filtered port %d that refuse, %d that are silent):",
					len(f.refuse.dead),
					len(f.neighbor.refuse.dead),
					len(f.neighbor.drop.dead),
				),
				Columns: []string{"", "bound", "p50", "p99", "back: p50", "p99"},
				Rows: [][]string{
					noticedRow("refuses", Refuses, &f.refuse),
					noticedRow("is silent", Silent, &f.drop),
					noticedRow("refuses, beside a Service with a filtered port", Refuses, &f.neighbor.refuse),
					noticedRow("is silent, beside a Service with a filtered port", Silent, &f.neighbor.drop),
				},
			},
		},
	}
}

func taken(targets int, t Taken, loop []time.Duration) []string {
	var sum time.Duration
	for _, one := range loop {
		sum += one
	}
	mean := sum / time.Duration(len(loop))
	return []string{
		strconv.Itoa(targets), fmt.Sprintf("%.0f", t.Probes), fmt.Sprintf("%.0f ms", figures.Milliseconds(t.CPU)),
		fmt.Sprintf("%.0f ms", figures.Milliseconds(mean)), fmt.Sprintf("%.1f ×", t.CPU.Seconds()/mean.Seconds()),
		strconv.Itoa(t.Sockets), fmt.Sprintf("%.0f MB", float64(t.Resident)/(1<<20)),
	}
}

func noticedRow(how string, bound time.Duration, n *noticed) []string {
	return []string{
		how, sec(bound), sec(percentile(n.dead, 50)), sec(percentile(n.dead, 99)), sec(percentile(n.back, 50)), sec(percentile(n.back, 99)),
	}
}

func inSeconds(text string, bound time.Duration, took []time.Duration) report.Goal {
	return report.Goal{Text: text, Figure: percentile(took, 99).Seconds(), AtMost: bound.Seconds(), Unit: "s", Noise: halves(took)}
}

// overBound is the goal that a neighbor delays no detection.
func overBound(how string, bound time.Duration, took []time.Duration) report.Goal {
	return report.Goal{
		Text: fmt.Sprintf(
			"p99 until one that %s is failing, beside a Service with a filtered port, over its bound of %s",
			how,
			sec(bound),
		),
		Figure: percentile(took, 99).Seconds() / bound.Seconds(),
		AtMost: 1.2,
		Unit:   "×",
		Noise:  halves(took) / bound.Seconds(),
	}
}

// halves is how far the p99 of the first half of the samples is from that of the second.
func halves(samples []time.Duration) float64 {
	half := len(samples) / 2
	return math.Abs((percentile(samples[:half], 99) - percentile(samples[half:], 99)).Seconds())
}

func sec(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

package against

import (
	"fmt"
	"strconv"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
)

// section tells of ours, the in-tree controller, and whoever else there is.
func part(all []*contender) *report.Part {
	s := &report.Part{
		Setup: fmt.Sprintf("One endpoint of %d turns unready and ready again. Ours runs with HEALTH_CHECK_MODE=off and SHRINK_WINDOW=0, "+
			"the in-tree controller (kube-controller-manager with that controller alone) with --kube-api-qps=1000, so that its own limit of 20 requests a second is not what is measured; "+
			"the polling controller reads Nodes and applies a slice each %s, with one kubectl for each, and meets its changes at any time between two polls.", endpoints, pollInterval),
		Tables: []report.Table{{
			Title: "For 1,000 changes, one after the other:",
			Columns: []string{
				"", "changes measured", "to the right slice, p50", "p99", "API requests", "of them writes of slices", "cloud API requests", "CPU seconds", "resident memory",
			},
		}},
		Notes: []string{
			"Requests are counted from the audit logs of both API servers, which name who asked; CPU and memory are the kernel's accounts of the processes. " +
				"Where fewer or more than 1,000 changes were measured, requests and CPU are scaled to that. " +
				"Of the polling controller the memory is kubectl's while it runs, and its CPU that of all; it pays the same when nothing changes.",
			"Ours crosses two clusters and the in-tree controller none, so its time has one more API server in it. " +
				"endpoint-copier-operator is not here: its module cannot be had from the Go module proxy.",
		},
	}
	for _, c := range all {
		s.Tables[0].Rows = append(s.Tables[0].Rows, c.row())
	}
	s.Goals = []report.Goal{{
		Text:   "writes of slices for a change, over the in-tree controller's",
		Figure: all[0].writesPerChange() / all[1].writesPerChange(), AtMost: 1, Unit: "×",
	}}
	return s
}

func (c *contender) writesPerChange() float64 {
	return float64(c.taken.asked.slices) / float64(len(c.taken.times))
}

func (c *contender) row() []string {
	t, n := &c.taken, len(c.taken.times)
	scaled := func(count int) string { return strconv.Itoa((count*1000 + n/2) / n) }
	return []string{
		c.name, strconv.Itoa(n),
		ms(figures.Percentile(t.times, 50)), ms(figures.Percentile(t.times, 99)),
		scaled(t.asked.requests), scaled(t.asked.slices), scaled(t.cloud),
		fmt.Sprintf("%.2f", t.cpu.Seconds()*1000/float64(n)),
		fmt.Sprintf("%.0f MB", float64(t.resident)/1e6),
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", figures.Milliseconds(d)) }

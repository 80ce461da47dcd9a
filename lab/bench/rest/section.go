package rest

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
)

// The goals of each component.
const (
	mostCPU      = 0.5 // % of a core
	mostFew      = 64  // MB
	mostMany     = 120
	mostRequests = 2 // a minute
)

func part(rows []row) *report.Part {
	s := &report.Part{
		Setup: fmt.Sprintf(
			"Nodes of %.0f KB (50 images, managed fields), each with a kubelet's heartbeat every 5 min, and a server of the cloud each; "+
				"IONOS_POLL_INTERVAL is 1m as by default. Goals are with HEALTH_CHECK_MODE=off: what probes cost is measured by detection, and by a row here. "+
				"Each size has %v to come to rest after its start and is then watched for %v; the highest resident memory counts.",
			float64(rows[0].weight)/1024,
			rows[0].settle,
			rows[0].watch,
		),
		Tables: []report.Table{
			{
				Title: "What they take. Mapped is of the resident memory: the program's own code, which several of them on a machine share. " +
					"The heap is what Go has in use, garbage since the last collection included:",
				Columns: []string{"Nodes", "", "CPU", "resident at most", "mapped", "since the start", "Go heap"},
			},
			{
				Title:   "What they asked, by the audit logs of the API servers and the cloud's journal:",
				Columns: []string{"Nodes", "", "Lease", "watches begun", "others", "writes", "cloud: pages", "LANs", "others"},
			},
		},
	}
	for i := range rows {
		r := &rows[i]
		for _, h := range r.halves() {
			s.Tables[0].Rows = append(s.Tables[0].Rows, []string{
				strconv.Itoa(r.workers), h.name, fmt.Sprintf("%.2f %%", h.cpu*100), mb(h.resident), mb(h.mapped), mb(h.peak), mb(h.heap),
			})
			asked := []string{
				strconv.Itoa(r.workers), h.name, strconv.Itoa(h.asked.lease), strconv.Itoa(h.asked.watches),
				cmp.Or(strings.Join(h.asked.others, ", "), "none"), strconv.Itoa(h.asked.writes), "", "", "",
			}
			if h.taken == &r.inventory {
				copy(asked[6:], []string{strconv.Itoa(r.cloud.pages), strconv.Itoa(r.cloud.lans), strconv.Itoa(r.cloud.others)})
			}
			s.Tables[1].Rows = append(s.Tables[1].Rows, asked)
		}
		if !r.probing {
			s.Goals = append(s.Goals, r.goals()...)
		}
		if r.workers == many {
			s.Notes = append(s.Notes, fmt.Sprintf("With %d Nodes the heartbeats are %.1f changes a second, none of which matters. "+
				"To decode them, by the API's own types and with nothing else done, takes %.2f %% of a core in this run.",
				many, float64(many)/heartbeat.Seconds(), r.decoding*100))
		}
	}
	return s
}

type half struct {
	*taken

	name string
}

func (r *row) halves() []half {
	writer := half{&r.writer, "writer"}
	if r.probing {
		writer.name = "writer, probing by tcp"
	}
	return []half{{&r.inventory, "inventory"}, writer}
}

func (r *row) goals() []report.Goal {
	with := fmt.Sprintf(" with %d Nodes", r.workers)
	most := float64(mostFew)
	if r.workers > few {
		most = mostMany
	}
	writes, rate := 0, 0.0
	var goals []report.Goal
	for _, h := range r.halves() {
		writes += h.asked.writes
		rate = max(rate, float64(len(h.asked.others))*time.Minute.Seconds()/r.took.Seconds())
		cpu := report.Goal{Text: "CPU of the " + h.name + with, Figure: h.cpu * 100, AtMost: mostCPU, Unit: "%", Noise: h.noise * 100}
		memory := report.Goal{
			Text:   "resident memory of the " + h.name + with,
			Figure: float64(h.resident) / (1 << 20),
			AtMost: most,
			Unit:   "MB",
		}
		if !cpu.Met() && h.taken == &r.inventory {
			cpu.Remark = fmt.Sprintf(
				"Decoding the heartbeats in a tight loop takes %.2f %% (see above). In profiles, on a machine with much else to do, "+
					"a fifth was decoding them as they come, one by one, a sixth reading them from the connection, a seventh waking goroutines and parking "+
					"them, a fifth the JSON of the cloud's servers by its SDK, and a tenth collecting the garbage of it all. Nothing in the API leaves images "+
					"and managed fields out of a watch of Nodes. Not tried: a decoder of our own that skips them.",
				r.decoding*100,
			)
		}
		goals = append(goals, cpu, memory)
	}
	goals = append(goals, report.Goal{Text: "writes" + with, Figure: float64(writes)})
	if r.took < time.Minute {
		return goals // too short for rates
	}
	return append(goals,
		report.Goal{Text: "Kubernetes requests a minute and half, beside Lease and watches," + with, Figure: rate, AtMost: mostRequests},
		report.Goal{
			Text: "requests to the cloud in a listing, its pages and one LAN read," + with,
			Figure: float64(
				r.cloud.pages+r.cloud.lans+r.cloud.others,
			) / float64(
				max(r.cloud.begun, 1),
			),
			AtMost: float64(pages(r.workers) + 1),
		},
		report.Goal{Text: "listings of the cloud a minute" + with, Figure: float64(r.cloud.begun), AtMost: 1})
}

// pages is how many a listing takes: each overlaps the one before by a server.
func pages(servers int) int {
	const size = 1000
	n := 1
	for got := size; got <= servers; got += size - 1 {
		n++
	}
	return n
}

func mb(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/(1<<20)) }

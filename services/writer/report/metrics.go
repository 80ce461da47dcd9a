package report

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Metrics are those of the targets in a Store: their problems, and what was decided. They are read from it, like reports.
type Metrics struct{ Store *endpoints.Store }

var (
	healthy        = newDesc("target_healthy", "1 if the target has no problem, or only notes.")
	unhealthySince = newDesc(
		"target_unhealthy_since_timestamp_seconds",
		"Unix time since which the target has been unhealthy, as far as this process has observed; 0: it is healthy.",
	)
	problem = newDesc(
		"target_problem",
		"1 while the target has a problem, by its reason, such as OutOfSync, and its level: note, warning or error.",
		"reason", "level",
	)
	listed = newDesc(
		"endpoints",
		"Number of endpoints that the decision lists, by state: ready, draining (serving and terminating) or not_ready.",
		"state",
	)
	held    = newDesc("guard_held_endpoints", "Number of endpoints whose change a guard holds.", "guard")
	managed = newDesc("target_managed", "1 if the target is written; 0 if its Service is missing, rejected or paused.")
)

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("slicefeed_writer_"+name, help, append([]string{"namespace", "service"}, labels...), nil)
}

// Describe implements prometheus.Collector.
func (m Metrics) Describe(all chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{healthy, unhealthySince, problem, listed, held, managed} {
		all <- d
	}
}

// Collect implements prometheus.Collector. A problem that a target does not have has no series: there are many reasons.
func (m Metrics) Collect(all chan<- prometheus.Metric) {
	views, _ := m.Store.Views(nil)
	for i := range views {
		v, t := &views[i], views[i].Target
		if v.State == endpoints.ReadOnly {
			continue
		}
		send := func(d *prometheus.Desc, n float64, labels ...string) {
			all <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, append([]string{v.Namespace, v.Service}, labels...)...)
		}
		since, series := 0.0, map[[2]string]bool{} // by reason and level
		if !t.UnhealthySince.IsZero() {
			since = float64(t.UnhealthySince.UnixMilli()) / 1000
		}
		for _, p := range t.Problems {
			series[[2]string{p.GetReason(), strings.ToLower(strings.TrimPrefix(p.GetLevel().String(), "LEVEL_"))}] = true
		}
		for labels := range series {
			send(problem, 1, labels[:]...)
		}
		send(healthy, gaugeValue(report.IsHealthy(t.Problems)))
		send(unhealthySince, since)
		send(managed, gaugeValue(v.State == endpoints.Managed))
		if len(t.Sources) > 0 { // else nothing is decided
			sendDecision(send, &t.Decision)
		}
	}
}

// sendDecision sends what is decided about a target.
func sendDecision(send func(d *prometheus.Desc, n float64, labels ...string), decision *verdict.Decision) {
	states, guards := map[string]int{"ready": 0, "draining": 0, "not_ready": 0}, map[verdict.Rule]int{}
	for i := range decision.Endpoints {
		switch e := &decision.Endpoints[i]; {
		case !e.Listed:
		case e.Conditions.Ready:
			states["ready"]++
		case e.Conditions.Serving:
			states["draining"]++
		default:
			states["not_ready"]++
		}
	}
	for state, n := range states {
		send(listed, float64(n), state)
	}
	for _, g := range decision.Guards {
		guards[g.Rule] += g.Held
	}
	for _, rule := range verdict.GuardOrder {
		send(held, float64(guards[rule]), string(rule))
	}
}

func gaugeValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

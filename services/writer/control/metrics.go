package control

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// metrics say of each target whether it is right. The verdict is pure, so its shell counts.
type metrics struct {
	targets []*prometheus.GaugeVec // all that have series of each target

	right      *prometheus.GaugeVec
	wrongSince *prometheus.GaugeVec
	problem    *prometheus.GaugeVec
	endpoints  *prometheus.GaugeVec
	heldBack   *prometheus.GaugeVec
	managed    *prometheus.GaugeVec
	paused     *prometheus.GaugeVec

	propagation *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "slicefeed", Subsystem: "writer", Name: name, Help: help}, append([]string{"namespace", "service"}, labels...))
		m.targets = append(m.targets, g)
		reg.MustRegister(g)
		return g
	}
	m.right = gauge("target_healthy", "1 if the target is managed and in sync, has a ready endpoint, and no guard is active.")
	m.wrongSince = gauge("target_unhealthy_since_timestamp_seconds", "Unix time since which the target has been unhealthy, as far as this process has observed; 0: it is healthy.")
	m.problem = gauge("target_problem", "1 if the target has this problem: rejected, paused, writes_blocked (a guard blocks all writes), out_of_sync (its slices differ from the decision), no_ready_endpoints or guard_active.", "problem")
	m.endpoints = gauge("endpoints", "Number of endpoints that the decision lists, by state: ready, draining (serving and terminating) or not_ready.", "state")
	m.heldBack = gauge("guard_held_endpoints", "Number of endpoints whose change a guard holds.", "guard")
	m.managed = gauge("target_managed", "1 if the target is written; 0 if its Service is missing, rejected or paused.")
	m.paused = gauge("target_paused", "1 if the target's Service is paused, so that nothing is written.")
	m.propagation = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "slicefeed", Subsystem: "writer", Name: "propagation_seconds",
		Help:    "Time from an update of a source or of a probe status (cause: feed, probe) to the decision (stage: decided), and to the response to the resulting write (stage: written).",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},

		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
	}, []string{"cause", "stage"})
	reg.MustRegister(m.propagation)
	for _, c := range []cause{causeFeed, causeProbe} {
		for _, stage := range []string{stageDecided, stageWritten} {
			m.propagation.WithLabelValues(string(c), stage)
		}
	}
	return m
}

// show says of a target what is decided.
func (m *metrics) show(key targets.Key, d verdict.Decision, rejected, paused bool, h health) {
	states := map[string]int{"ready": 0, "draining": 0, "not_ready": 0}
	for _, e := range d.Endpoints {
		switch {
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
		m.endpoints.WithLabelValues(key.Namespace, key.Name, state).Set(float64(n))
	}
	held := map[verdict.Rule]int{}
	for rule := range reasons {
		held[rule] = 0
	}
	for _, g := range d.Guards {
		held[g.Rule] += g.Held
	}
	for rule, n := range held {
		m.heldBack.WithLabelValues(key.Namespace, key.Name, string(rule)).Set(float64(n))
	}
	m.judged(key, !rejected && !paused, paused, h)
}

// aside says of a target that nothing is decided.
func (m *metrics) handleInactive(key targets.Key, paused bool, h health) {
	m.judged(key, false, paused, h)
}

func (m *metrics) judged(key targets.Key, managed, paused bool, h health) {
	since := 0.0
	if !h.since.IsZero() {
		since = float64(h.since.UnixMilli()) / 1000
	}
	m.right.WithLabelValues(key.Namespace, key.Name).Set(one(len(h.wrong) == 0))
	m.wrongSince.WithLabelValues(key.Namespace, key.Name).Set(since)
	for _, p := range problems {
		m.problem.WithLabelValues(key.Namespace, key.Name, string(p)).Set(one(h.wrong[p]))
	}
	m.managed.WithLabelValues(key.Namespace, key.Name).Set(one(managed))
	m.paused.WithLabelValues(key.Namespace, key.Name).Set(one(paused))
}

// forget takes away all series of a target.
func (m *metrics) forget(key targets.Key) {
	for _, g := range m.targets {
		g.DeletePartialMatch(prometheus.Labels{"namespace": key.Namespace, "service": key.Name})
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

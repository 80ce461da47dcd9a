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
	m.right = gauge("target_right", "1 while the target is served and written as decided, has a ready endpoint and no guard acts; 0 otherwise.")
	m.wrongSince = gauge("target_wrong_since_timestamp_seconds", "Since when, in Unix time, the target is not right, as far as this process has seen; 0 while it is.")
	m.problem = gauge("target_problem", "1 while this keeps the target from being right: it is refused, paused, forbidden (nothing may be written at all), unwritten (the slices are not as decided), nothing_ready or held_back (a guard acts).", "problem")
	m.endpoints = gauge("endpoints", "Endpoints that the decision lists, by what they are good for: ready, draining (serving and terminating) or out.", "state")
	m.heldBack = gauge("guard_held_endpoints", "Endpoints that a guard holds back at present.", "guard")
	m.managed = gauge("target_managed", "1 while the target is written, 0 while it is missing, refused or paused.")
	m.paused = gauge("target_paused", "1 while nothing is written because the target's Service says so.")
	m.propagation = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "slicefeed", Subsystem: "writer", Name: "propagation_seconds",
		Help:    "Time from the word of a source or of a probe (cause: feed, probe) until it was decided upon, and until the write that it led to was answered (stage: decided, written).",
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
	states := map[string]int{"ready": 0, "draining": 0, "out": 0}
	for _, e := range d.Endpoints {
		switch {
		case !e.Listed:
		case e.Conditions.Ready:
			states["ready"]++
		case e.Conditions.Serving:
			states["draining"]++
		default:
			states["out"]++
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
func (m *metrics) aside(key targets.Key, paused bool, h health) {
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

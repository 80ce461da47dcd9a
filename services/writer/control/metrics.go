package control

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// metrics say of each target whether it is right. The verdict is pure, so its shell counts.
type metrics struct {
	endpoints *prometheus.GaugeVec
	heldBack  *prometheus.GaugeVec
	managed   *prometheus.GaugeVec
	paused    *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "slicefeed", Subsystem: "writer", Name: name, Help: help}, append([]string{"namespace", "service"}, labels...))
	}
	m := &metrics{
		endpoints: gauge("endpoints", "Endpoints that the decision lists, by what they are good for: ready, draining (serving and terminating) or out.", "state"),
		heldBack:  gauge("guard_held_endpoints", "Endpoints that a guard holds back at present.", "guard"),
		managed:   gauge("target_managed", "1 while the target is written, 0 while it is missing, refused or paused."),
		paused:    gauge("target_paused", "1 while nothing is written because the target's Service says so."),
	}
	reg.MustRegister(m.endpoints, m.heldBack, m.managed, m.paused)
	return m
}

func (m *metrics) show(key targets.Key, d verdict.Decision, paused bool) {
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
	m.managed.WithLabelValues(key.Namespace, key.Name).Set(one(!paused))
	m.paused.WithLabelValues(key.Namespace, key.Name).Set(one(paused))
}

func (m *metrics) refused(key targets.Key) {
	m.forget(key)
	m.managed.WithLabelValues(key.Namespace, key.Name).Set(0)
}

// forget takes away all series of a target.
func (m *metrics) forget(key targets.Key) {
	for _, g := range []*prometheus.GaugeVec{m.endpoints, m.heldBack, m.managed, m.paused} {
		g.DeletePartialMatch(prometheus.Labels{"namespace": key.Namespace, "service": key.Name})
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

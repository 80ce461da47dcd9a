package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// metrics say of the target whether it is right. The verdict is pure, so its shell counts.
type metrics struct {
	endpoints *prometheus.GaugeVec
	heldBack  *prometheus.GaugeVec
	managed   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "slicefeed", Subsystem: "writer", Name: name, Help: help}, labels)
	}
	m := &metrics{
		endpoints: gauge("endpoints", "Endpoints that the decision lists, by what they are good for: ready, draining (serving and terminating) or out.", "state"),
		heldBack:  gauge("guard_held_endpoints", "Endpoints that a guard holds back at present.", "guard"),
		managed: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "slicefeed", Subsystem: "writer", Name: "target_managed",
			Help: "1 while the target is written, 0 while it is missing or refused.",
		}),
	}
	reg.MustRegister(m.endpoints, m.heldBack, m.managed)
	return m
}

func (m *metrics) show(d verdict.Decision) {
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
		m.endpoints.WithLabelValues(state).Set(float64(n))
	}
	held := map[verdict.Rule]int{}
	for rule := range reasons {
		held[rule] = 0
	}
	for _, g := range d.Guards {
		held[g.Rule] += g.Held
	}
	for rule, n := range held {
		m.heldBack.WithLabelValues(string(rule)).Set(float64(n))
	}
	m.managed.Set(1)
}

func (m *metrics) refused() {
	m.endpoints.Reset()
	m.heldBack.Reset()
	m.managed.Set(0)
}

package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// metrics are what the roster is worth at a glance. The roster is pure, so its shell counts.
type metrics struct {
	nodes, omitted, parts *prometheus.GaugeVec
	observation           prometheus.Counter
	observedAt            prometheus.Gauge
	last                  uint64
}

func newMetrics(reg prometheus.Registerer) *metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "slicefeed", Subsystem: "inventory", Name: name, Help: help}, labels)
	}
	m := &metrics{
		nodes:   gauge("nodes", "Nodes that are told to subscribers, by state.", "state"),
		omitted: gauge("nodes_omitted", "Nodes of the cluster that are left out, by reason.", "reason"),
		parts:   gauge("source_synced", "1 while this part of the source (membership, addresses) is fresh and complete.", "part"),
		observation: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: "inventory", Name: "observations_total",
			Help: "Complete, fresh observations of the cluster and the cloud.",
		}),
		observedAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "slicefeed", Subsystem: "inventory", Name: "last_observation_timestamp_seconds",
			Help: "When the last complete observation was made, in seconds since 1970; 0: none yet.",
		}),
	}
	reg.MustRegister(m.nodes, m.omitted, m.parts, m.observation, m.observedAt)
	return m
}

func (m *metrics) set(counts roster.Counts, status roster.Status) {
	for state, n := range counts.States {
		m.nodes.WithLabelValues(state.String()).Set(float64(n))
	}
	for reason, n := range counts.Omitted {
		m.omitted.WithLabelValues(reason.String()).Set(float64(n))
	}
	for part, p := range map[string]roster.Part{"membership": status.Membership, "addresses": status.Addresses} {
		v := 0.0
		if p.Sync == roster.Synced {
			v = 1
		}
		m.parts.WithLabelValues(part).Set(v)
	}
	if status.Observation > m.last {
		m.observation.Add(float64(status.Observation - m.last))
		m.last = status.Observation
		m.observedAt.Set(float64(status.ObservedAt.UnixNano()) / 1e9)
	}
}

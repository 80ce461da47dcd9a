package app

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// metrics are what the roster is worth at a glance. The roster is pure, so its shell counts.
type metrics struct {
	nodes, omitted, partSynced, partSince *prometheus.GaugeVec
	observations                          prometheus.Counter
	observedAt, lastContact               prometheus.Gauge
	lastObservation                       uint64

	propagation *prometheus.HistogramVec
	changedAt   atomic.Pointer[time.Time] // when the last change came that the stores took in; zero: not known
}

func newMetrics(reg prometheus.Registerer) *metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "slicefeed", Subsystem: "inventory", Name: name, Help: help}, labels)
	}
	m := &metrics{
		nodes:      gauge("nodes", "Nodes that are told to subscribers, by state.", "state"),
		omitted:    gauge("nodes_omitted", "Nodes of the cluster that are left out, by reason.", "reason"),
		partSynced: gauge("source_synced", "1 while this part of the source (membership, addresses) is fresh and complete, 0 otherwise.", "part"),
		partSince:  gauge("source_state_since_timestamp_seconds", "Since when, in Unix time, this part of the source (membership, addresses) is in its present state.", "part"),
		observations: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: "inventory", Name: "observations_total",
			Help: "Complete, fresh observations of the cluster and the cloud.",
		}),
		observedAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "slicefeed", Subsystem: "inventory", Name: "last_observation_timestamp_seconds",
			Help: "When the last complete observation was made, in Unix time; 0: none yet.",
		}),
		lastContact: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "slicefeed", Subsystem: "inventory", Name: "source_last_heard_timestamp_seconds",
			Help: "When the source last spoke, be it to say that nothing is new, in Unix time; 0: not yet.",
		}),
		propagation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "slicefeed", Subsystem: "inventory", Name: "propagation_seconds",
			Help:    "Time from a word of the source that changes what is told until it is in the feed, and until each subscriber was sent it (stage: stored, sent). A node that waits for its address is not in it.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},

			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}, []string{"stage"}),
	}
	m.changedAt.Store(&time.Time{})
	for _, stage := range []string{stageStored, stageSent} {
		m.propagation.WithLabelValues(stage)
	}
	for _, part := range []string{"membership", "addresses"} {
		m.partSynced.WithLabelValues(part)
		m.partSince.WithLabelValues(part)
	}
	reg.MustRegister(m.nodes, m.omitted, m.partSynced, m.partSince, m.observations, m.observedAt, m.lastContact, m.propagation)
	return m
}

// How far a change has come.
const (
	stageStored = "stored"
	stageSent   = "sent"
)

// changeReceived notes that the stores are about to take changes in that came at this time; zero: it is not
// known, as of addresses, which are asked for and do not come.
func (m *metrics) changeReceived(at time.Time) { m.changedAt.Store(&at) }

func (m *metrics) recordStored() { m.observePropagation(stageStored) }

// recordSent notes that a subscriber was sent the last changes.
func (m *metrics) recordSent() { m.observePropagation(stageSent) }

func (m *metrics) observePropagation(stage string) {
	if at := *m.changedAt.Load(); !at.IsZero() {
		m.propagation.WithLabelValues(stage).Observe(time.Since(at).Seconds())
	}
}

func (m *metrics) update(counts roster.Counts, status roster.Status, lastContact time.Time) {
	if !lastContact.IsZero() {
		m.lastContact.Set(unixSeconds(lastContact))
	}
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
		m.partSynced.WithLabelValues(part).Set(v)
		if !p.Since.IsZero() {
			m.partSince.WithLabelValues(part).Set(unixSeconds(p.Since))
		}
	}
	if status.Observation > m.lastObservation {
		m.observations.Add(float64(status.Observation - m.lastObservation))
		m.lastObservation = status.Observation
		m.observedAt.Set(unixSeconds(status.ObservedAt))
	}
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

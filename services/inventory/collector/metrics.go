package collector

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// metrics describe the roster. The collector updates them, because the roster is pure.
type metrics struct {
	nodes, omitted, partSynced, partSince *prometheus.GaugeVec
	observations                          prometheus.Counter
	observedAt, lastContact               prometheus.Gauge
	lastObservation                       uint64 // number of the last counted one

	propagation *prometheus.HistogramVec
	changedAt   atomic.Pointer[time.Time] // when the source reported the last stored change; zero if unknown
}

// NewPropagation registers the histogram of propagation times. Collectors can share one.
func NewPropagation(reg prometheus.Registerer) *prometheus.HistogramVec {
	h := promauto.With(reg).NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "slicefeed",
		Subsystem: "inventory",
		Name:      "propagation_seconds",
		Help:      "Time from an update of the source until its change is stored (stage stored), and until it is sent to each subscriber (stage sent). Changes by a listing of the cloud are not included.",
		Buckets:   []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},

		NativeHistogramBucketFactor:    1.1,
		NativeHistogramMaxBucketNumber: 100,
	}, []string{"stage"})
	for _, stage := range []string{stageStored, stageSent} {
		h.WithLabelValues(stage)
	}
	return h
}

func newMetrics(reg prometheus.Registerer, propagation *prometheus.HistogramVec) *metrics {
	with := promauto.With(reg)
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return with.NewGaugeVec(prometheus.GaugeOpts{Namespace: "slicefeed", Subsystem: "inventory", Name: name, Help: help}, labels)
	}
	m := &metrics{
		nodes:   gauge("nodes", "Number of published nodes, by state.", "state"),
		omitted: gauge("nodes_omitted", "Number of omitted nodes, by reason.", "reason"),
		partSynced: gauge(
			"source_synced",
			"1 if this part of the source (membership, addresses) is synced: complete and fresh. 0 otherwise.",
			"part",
		),
		partSince: gauge(
			"source_state_since_timestamp_seconds",
			"Unix time at which this part of the source (membership, addresses) entered its current state.",
			"part",
		),
		observations: with.NewCounter(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: "inventory", Name: "observations_total",
			Help: "Number of complete observations of the source and the cloud.",
		}),
		observedAt: gauge(
			"last_observation_timestamp_seconds",
			"Unix time of the last complete observation; 0 if there was none yet.",
		).WithLabelValues(),
		lastContact: gauge(
			"source_last_contact_timestamp_seconds",
			"Unix time of the last message of the source, even one without changes; 0 if there was none yet.",
		).WithLabelValues(),
		propagation: propagation,
	}
	m.changedAt.Store(&time.Time{})
	for _, part := range []string{"membership", "addresses"} {
		m.partSynced.WithLabelValues(part)
		m.partSince.WithLabelValues(part)
	}
	return m
}

// Values of the label stage.
const (
	stageStored = "stored"
	stageSent   = "sent"
)

// observePropagation observes the time since the source reported the changes that were stored last. It is not known for
// addresses: a listing shows that they changed, but not when.
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
	for part, p := range map[string]roster.PartStatus{"membership": status.Membership, "addresses": status.Addresses} {
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

package applier

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are shared by all Appliers of a process.
type Metrics struct {
	writes   *prometheus.CounterVec
	duration prometheus.Histogram
	repairs  prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	auto := promauto.With(registerer)
	m := &Metrics{
		writes: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "slicefeed_writer_slice_writes_total",
			Help: "Number of requests that change EndpointSlices, by verb and result: ok, conflict, throttled, rejected, terminating (the namespace is being deleted), or unknown (no response, or an inconclusive one).",
		}, []string{"verb", "result"}),
		duration: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "slicefeed_writer_slice_write_duration_seconds",
			Help:    "Time from a request that changes EndpointSlices to its response.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
		repairs: auto.NewCounter(prometheus.CounterOpts{
			Name: "slicefeed_writer_repairs_total",
			Help: "Number of writes that repair owned slices after another client modified, deleted or added them.",
		}),
	}
	for _, verb := range []verb{create, update, remove} {
		for _, outcome := range []outcome{outcomeOK, outcomeConflict, outcomeThrottled, outcomeRejected, outcomeTerminating, outcomeUnknown} {
			m.writes.WithLabelValues(string(verb), string(outcome)) // so that a rate sees the first one
		}
	}
	return m
}

func (m *Metrics) observe(verb verb, outcome outcome, took time.Duration) {
	m.writes.WithLabelValues(string(verb), string(outcome)).Inc()
	m.duration.Observe(took.Seconds())
}

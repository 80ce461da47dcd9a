package applier

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Metrics are shared by all Appliers of a process.
type Metrics struct {
	writes   *prometheus.CounterVec
	duration prometheus.Histogram
	repairs  prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	m := &Metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicefeed_writer_slice_writes_total",
			Help: "Number of requests that change EndpointSlices, by verb and result: ok, conflict, throttled, rejected, terminating (the namespace is being deleted), or unknown (no response, or an inconclusive one).",
		}, []string{"verb", "result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "slicefeed_writer_slice_write_duration_seconds",
			Help:    "Time from a request that changes EndpointSlices to its response.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slicefeed_writer_repairs_total",
			Help: "Number of writes that repair owned slices after another client modified, deleted or added them.",
		}),
	}
	for _, verb := range []verb{create, update, remove} {
		for _, result := range []string{"ok", "conflict", "throttled", "rejected", "terminating", "unknown"} { // so that a rate sees the first one
			m.writes.WithLabelValues(string(verb), result)
		}
	}
	registerer.MustRegister(m.writes, m.duration, m.repairs)
	return m
}

func (m *Metrics) observe(verb verb, err error, took time.Duration) {
	m.writes.WithLabelValues(string(verb), result(verb, err)).Inc()
	m.duration.Observe(took.Seconds())
}

const resultOK = "ok"

// result classifies the outcome of a request.
func result(verb verb, err error) string {
	switch {
	case err == nil, verb == remove && apierrors.IsNotFound(err):
		return resultOK
	case isConflict(verb, err):
		return "conflict"
	case apierrors.IsTooManyRequests(err):
		return "throttled"
	case isNamespaceTerminating(err):
		return "terminating"
	case isRejected(err):
		return "rejected"
	}
	return "unknown"
}

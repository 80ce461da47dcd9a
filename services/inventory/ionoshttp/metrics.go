package ionoshttp

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	requests *prometheus.CounterVec
	duration prometheus.Histogram
	// Vectors without labels are absent while unknown; plain gauges would be zero.
	remaining *prometheus.GaugeVec
	expiry    *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	const ns, sub = "slicefeed", "inventory_ionos"
	with := promauto.With(registry)
	m := &metrics{
		requests: with.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "requests_total",
			Help: "Number of requests to the IONOS API, by HTTP status code; error: no response.",
		}, []string{"code"}),
		duration: with.NewHistogram(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "request_duration_seconds",
			Help:    "Time from a request to the IONOS API to the headers of its response.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		remaining: with.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "rate_limit_remaining",
			Help: "Number of requests that the IONOS API still allows, according to its last response.",
		}, nil),
		expiry: with.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "token_expiry_timestamp_seconds",
			Help: "Unix time at which the token in use expires; absent if the token does not contain it.",
		}, nil),
	}
	for _, code := range []string{"200", "error"} { // exported as 0 before the first request
		m.requests.WithLabelValues(code)
	}
	return m
}

func (m *metrics) observeRequest(code string, took time.Duration) {
	m.requests.WithLabelValues(code).Inc()
	m.duration.Observe(took.Seconds())
}

func (m *metrics) setRateLimit(header string) {
	if n, err := strconv.ParseUint(header, 10, 32); err == nil {
		m.remaining.WithLabelValues().Set(float64(n))
	}
}

func (m *metrics) setTokenExpiry(expires time.Time, known bool) {
	if !known {
		m.expiry.Reset()
		return
	}
	m.expiry.WithLabelValues().Set(float64(expires.Unix()))
}

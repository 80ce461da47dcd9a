package ionos

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
	remaining, expiry *prometheus.GaugeVec

	budgetWait  prometheus.Counter
	lastListing prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, budgetRemaining func() float64) *metrics {
	with := promauto.With(registry)
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "slicefeed", Subsystem: "inventory_ionos", Name: name, Help: help}
	}
	m := &metrics{
		requests: with.NewCounterVec(prometheus.CounterOpts(opts(
			"requests_total", "Number of requests to the IONOS API, by HTTP status code; error: no response.",
		)), []string{"code"}),
		duration: with.NewHistogram(prometheus.HistogramOpts{
			Namespace: "slicefeed", Subsystem: "inventory_ionos", Name: "request_duration_seconds",
			Help:    "Time from a request to the IONOS API to the headers of its response.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		remaining: with.NewGaugeVec(prometheus.GaugeOpts(opts(
			"rate_limit_remaining", "Number of requests that the IONOS API still allows, according to its last response.",
		)), nil),
		expiry: with.NewGaugeVec(prometheus.GaugeOpts(opts(
			"token_expiry_timestamp_seconds",
			"Unix time at which the token in use expires; absent if the token does not contain it.",
		)), nil),
		budgetWait: with.NewCounter(prometheus.CounterOpts(opts(
			"budget_wait_seconds_total", "Time that requests to the IONOS API have waited for the request budget.",
		))),
		lastListing: with.NewGauge(prometheus.GaugeOpts(opts(
			"last_listing_timestamp_seconds", "Unix time of the last complete listing; 0: none yet.",
		))),
	}
	with.NewGaugeFunc(prometheus.GaugeOpts(opts(
		"budget_remaining", "Number of requests that the request budget allows now; below 1, the next request waits.",
	)), budgetRemaining)
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

package ionos

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests    *prometheus.CounterVec
	duration    prometheus.Histogram
	budgetWait  prometheus.Counter
	lastListing prometheus.Gauge
	// Vectors without labels are absent while unknown; plain gauges would be zero.
	remaining *prometheus.GaugeVec
	expiry    *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	const ns, sub = "slicefeed", "inventory_ionos"
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "requests_total",
			Help: "Number of requests to the IONOS API, by HTTP status code; error: no response.",
		}, []string{"code"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "request_duration_seconds",
			Help:    "Time from a request to the IONOS API to the headers of its response.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		budgetWait: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "budget_wait_seconds_total",
			Help: "Time that requests to the IONOS API have waited for the request budget.",
		}),
		lastListing: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "last_listing_timestamp_seconds",
			Help: "Unix time of the last complete listing; 0: none yet.",
		}),
		remaining: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "rate_limit_remaining",
			Help: "Number of requests that the IONOS API still allows, according to its last response.",
		}, nil),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "token_expiry_timestamp_seconds",
			Help: "Unix time at which the token in use expires; absent if the token does not contain it.",
		}, nil),
	}
	for _, code := range []string{"200", "error"} { // exported as 0 before the first request
		m.requests.WithLabelValues(code)
	}
	return m, errors.Join(
		reg.Register(m.requests), reg.Register(m.duration), reg.Register(m.budgetWait), reg.Register(m.lastListing),
		reg.Register(m.remaining), reg.Register(m.expiry),
	)
}

// registerBudget registers the number of requests that a budget allows now.
func (m *metrics) registerBudget(reg prometheus.Registerer, b *budget) error {
	return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: "inventory_ionos", Name: "budget_remaining",
		Help: "Number of requests that the request budget allows now; below 1, the next request waits.",
	}, func() float64 { return b.limiter.Tokens() }))
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

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
	// Vectors without labels: unlike plain gauges they are absent, not zero, while unknown.
	remaining *prometheus.GaugeVec
	expiry    *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	const ns, sub = "slicefeed", "inventory_ionos"
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "requests_total",
			Help: "Requests to the cloud API by HTTP status code; error: no answer.",
		}, []string{"code"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "request_duration_seconds",
			Help:    "Time from a request to the cloud API to the headers of its answer.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		budgetWait: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "budget_wait_seconds_total",
			Help: "Time that requests to the cloud API waited because the request budget was used up.",
		}),
		lastListing: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "last_listing_timestamp_seconds",
			Help: "When the cloud was last listed whole, in Unix time; 0: not yet.",
		}),
		remaining: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "rate_limit_remaining",
			Help: "Requests that the cloud API still allows, as its last answer said.",
		}, nil),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "token_expiry_timestamp_seconds",
			Help: "When the token last used expires; absent while it does not say.",
		}, nil),
	}
	for _, code := range []string{"200", "error"} { // so that they are there, at 0, before the first
		m.requests.WithLabelValues(code)
	}
	return m, errors.Join(
		reg.Register(m.requests), reg.Register(m.duration), reg.Register(m.budgetWait), reg.Register(m.lastListing),
		reg.Register(m.remaining), reg.Register(m.expiry),
	)
}

// registerBudget has it shown how many requests a budget would let through at once.
func (m *metrics) registerBudget(reg prometheus.Registerer, b *budget) error {
	return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: "inventory_ionos", Name: "budget_remaining",
		Help: "Requests to the cloud API that our own budget would let through at once; below 1 the next one waits.",
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

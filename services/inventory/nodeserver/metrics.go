package nodeserver

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
)

// Metrics are those of the service.
type Metrics struct {
	subscribers prometheus.Gauge
	messages    *prometheus.CounterVec
	ended       *prometheus.CounterVec
}

// The kinds of messages, by what is foremost in them.
const (
	kindReset     = "reset"
	kindDelta     = "delta"
	kindStatus    = "status"
	kindHeartbeat = "heartbeat"
)

// The ends of a stream.
const (
	endClient   = "client" // it went away, or its connection came of age
	endStopping = "stopping"
	endStalled  = "stalled"
	endRefused  = "too_many_streams"
	endFailed   = "send_failed"
)

// NewMetrics registers the metrics of a server that tells what the stores hold.
func NewMetrics(reg prometheus.Registerer, stores *feed.Stores) *Metrics {
	m := &Metrics{
		subscribers: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "slicefeed", Subsystem: "inventory", Name: "subscribers",
			Help: "Live streams of WatchNodes.",
		}),
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: "inventory", Name: "stream_messages_total",
			Help: "Messages sent to subscribers, by what is foremost in them.",
		}, []string{"kind"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: "inventory", Name: "streams_ended_total",
			Help: "Streams of WatchNodes that ended, by reason.",
		}, []string{"reason"}),
	}
	for _, kind := range []string{kindReset, kindDelta, kindStatus, kindHeartbeat} {
		m.messages.WithLabelValues(kind)
	}
	for _, reason := range []string{endClient, endStopping, endStalled, endRefused, endFailed} {
		m.ended.WithLabelValues(reason)
	}
	reg.MustRegister(m.subscribers, m.messages, m.ended, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: "inventory", Name: "feed_revision",
		Help: "Changes of the set since the start, summed over all views that clients have.",
	}, func() float64 { return float64(stores.Revisions()) }))
	return m
}

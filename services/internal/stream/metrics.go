package stream

import "github.com/prometheus/client_golang/prometheus"

// Kind is what is foremost in a message.
type Kind string

// The kinds of messages.
const (
	Reset     Kind = "reset"
	Delta     Kind = "delta"
	Status    Kind = "status"
	Heartbeat Kind = "heartbeat" // nothing is new
)

// The ends of a stream.
const (
	endClient         = "client" // it went away, or its connection came of age
	endStopping       = "stopping"
	endStalled        = "stalled"
	endTooManyStreams = "too_many_streams"
	endFailed         = "send_failed"
)

// Metrics are those of the streams of a service.
type Metrics struct {
	Subscribers prometheus.Gauge
	Messages    *prometheus.CounterVec // by kind
	Ended       *prometheus.CounterVec // by reason
}

// NewMetrics registers the metrics of the streams of a half's method, and the number of changes
// that there were of what it tells.
func NewMetrics(reg prometheus.Registerer, component, method string, revision func() uint64) *Metrics {
	m := &Metrics{
		Subscribers: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "slicefeed", Subsystem: component, Name: "subscribers",
			Help: "Live streams of " + method + ".",
		}),
		Messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: component, Name: "stream_messages_total",
			Help: "Messages sent to subscribers, by what is foremost in them.",
		}, []string{"kind"}),
		Ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: component, Name: "streams_ended_total",
			Help: "Streams of " + method + " that ended, by reason.",
		}, []string{"reason"}),
	}
	for _, kind := range []Kind{Reset, Delta, Status, Heartbeat} {
		m.Messages.WithLabelValues(string(kind))
	}
	for _, reason := range []string{endClient, endStopping, endStalled, endTooManyStreams, endFailed} {
		m.Ended.WithLabelValues(reason)
	}
	reg.MustRegister(m.Subscribers, m.Messages, m.Ended, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "slicefeed", Subsystem: component, Name: "feed_changes_total",
		Help: "Changes of what " + method + " tells since the start, summed over all views that clients have.",
	}, func() float64 { return float64(revision()) }))
	return m
}

package stream

import "github.com/prometheus/client_golang/prometheus"

// Kind classifies a message by the most important thing in it.
type Kind string

// The kinds of messages.
const (
	Reset     Kind = "reset"
	Delta     Kind = "delta"
	Status    Kind = "status"
	Heartbeat Kind = "heartbeat" // nothing has changed
)

// Reasons why a stream ends.
const (
	endClient         = "client" // the client left, or its connection reached its maximum age
	endStopping       = "stopping"
	endStalled        = "stalled"
	endTooManyStreams = "too_many_streams"
	endFailed         = "send_failed"
)

// Metrics are the metrics of a service's streams.
type Metrics struct {
	Subscribers prometheus.Gauge
	Messages    *prometheus.CounterVec // by kind
	Ended       *prometheus.CounterVec // by reason
}

// NewMetrics registers the metrics of a component's streaming method. revision returns the number of
// changes so far.
func NewMetrics(reg prometheus.Registerer, component, method string, revision func() uint64) *Metrics {
	m := &Metrics{
		Subscribers: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "slicefeed", Subsystem: component, Name: "subscribers",
			Help: "Number of active streams of " + method + ".",
		}),
		Messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: component, Name: "stream_messages_total",
			Help: "Number of messages sent to subscribers, by kind.",
		}, []string{"kind"}),
		Ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: component, Name: "streams_ended_total",
			Help: "Number of streams of " + method + " that ended, by reason.",
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
		Help: "Number of changes that " + method + " published since the start, over all client views.",
	}, func() float64 { return float64(revision()) }))
	return m
}

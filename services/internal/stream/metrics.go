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

// The reasons why a stream ended.
const (
	reasonClient         = "client" // it went away, or its connection came of age
	reasonStopping       = "stopping"
	reasonStalled        = "stalled"
	reasonTooManyStreams = "too_many_streams"
	reasonFailed         = "send_failed"
)

// Metrics are those of the streams of a service.
type Metrics struct {
	Subscribers prometheus.Gauge
	Messages    *prometheus.CounterVec // by kind
	Ended       *prometheus.CounterVec // by reason
}

func newMetrics(cfg Config) *Metrics {
	m := &Metrics{
		Subscribers: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "slicefeed", Subsystem: cfg.Component, Name: "subscribers",
			Help: "Number of open " + cfg.Method + " streams.",
		}),
		Messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: cfg.Component, Name: "stream_messages_total",
			Help: "Number of messages sent to subscribers, by kind.",
		}, []string{"kind"}),
		Ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: cfg.Component, Name: "streams_ended_total",
			Help: "Number of " + cfg.Method + " streams that ended, by reason.",
		}, []string{"reason"}),
	}
	for _, kind := range []Kind{Reset, Delta, Status, Heartbeat} {
		m.Messages.WithLabelValues(string(kind))
	}
	for _, reason := range []string{reasonClient, reasonStopping, reasonStalled, reasonTooManyStreams, reasonFailed} {
		m.Ended.WithLabelValues(reason)
	}
	cfg.Registerer.MustRegister(m.Subscribers, m.Messages, m.Ended, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "slicefeed", Subsystem: cfg.Component, Name: "feed_changes_total",
		Help: "Number of changes that " + cfg.Method + " has published since the start.",
	}, func() float64 { return float64(cfg.Revision()) }))
	return m
}

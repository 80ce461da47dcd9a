package subscriber

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of all sources of a process.
type Metrics struct {
	connected, synced, members, membership, addresses *prometheus.GaugeVec
	lastMessage, lastMembershipSync, lastObservation  *prometheus.GaugeVec
	messages, reconnects, violations                  *prometheus.CounterVec
}

// NewMetrics registers the metrics. The label source is a name from the configuration, with the Service if the source
// exports Services.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	gauge := func(name, help string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "slicefeed", Subsystem: "writer_source", Name: name, Help: help,
		}, []string{"source"})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: "writer_source", Name: name, Help: help,
		}, append([]string{"source"}, labels...))
	}
	return &Metrics{
		connected:   gauge("connected", "1 if the inventory is connected."),
		synced:      gauge("synced", "1 if the current stream has delivered a complete, verified set."),
		members:     gauge("members", "Number of nodes in the current set."),
		membership:  gauge("membership_synced", "1 if the inventory last reported its membership as synced."),
		addresses:   gauge("addresses_synced", "1 if the inventory last reported its addresses as synced."),
		lastMessage: gauge("last_message_timestamp_seconds", "Unix time of the last message from the inventory; 0: none yet."),
		lastMembershipSync: gauge(
			"membership_last_synced_timestamp_seconds",
			"Unix time at which the inventory last reported its membership as synced; 0: never. MAX_STALENESS counts from here.",
		),
		lastObservation: gauge(
			"last_observation_timestamp_seconds",
			"Unix time of the inventory's last observation, by the clock of the writer; 0: none known.",
		),
		messages:   counter("messages_total", "Number of messages received from the inventory."),
		reconnects: counter("reconnects_total", "Number of streams that ended and were reconnected."),
		violations: counter("protocol_violations_total", "Number of protocol violations by the inventory, by kind.", "kind"),
	}
}

// initSource creates all series of a source, so that a rate shows its first protocol violation.
func (m *Metrics) initSource(source string) {
	m.lastMessage.WithLabelValues(source)
	m.messages.WithLabelValues(source)
	m.reconnects.WithLabelValues(source)
	for _, k := range ViolationKinds {
		m.violations.WithLabelValues(source, string(k))
	}
}

// forget removes the series of the set of an exported Service.
func (m *Metrics) forget(feed string) {
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{
		m.connected, m.synced, m.members, m.membership, m.addresses, m.lastMessage, m.lastMembershipSync, m.lastObservation,
		m.messages, m.reconnects, m.violations,
	} {
		v.DeletePartialMatch(prometheus.Labels{"source": feed})
	}
}

func (m *Metrics) setSnapshot(s Snapshot) {
	feed := s.FeedName()
	set := func(g *prometheus.GaugeVec, on bool) {
		value := 0.0
		if on {
			value = 1
		}
		g.WithLabelValues(feed).Set(value)
	}
	set(m.connected, s.Connected)
	set(m.synced, s.SyncedInStream)
	set(m.membership, s.Membership.State == Synced)
	set(m.addresses, s.Addresses.State == Synced)
	m.members.WithLabelValues(feed).Set(float64(s.Nodes))
	m.lastMembershipSync.WithLabelValues(feed).Set(unixSeconds(s.MembershipSyncedAt))
	m.lastObservation.WithLabelValues(feed).Set(unixSeconds(s.ObservedAt))
}

// unixSeconds returns the Unix time in seconds, or 0 for the zero time.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

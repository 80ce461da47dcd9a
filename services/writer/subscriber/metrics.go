package subscriber

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are those of all sources of a process.
type Metrics struct {
	connected, synced, members, membership, addresses *prometheus.GaugeVec
	lastMessage, lastMembershipSync, lastObservation  *prometheus.GaugeVec
	messages, reconnects, violations                  *prometheus.CounterVec
}

// NewMetrics registers the metrics. The label source is a name from the configuration.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "slicefeed", Subsystem: "writer_source", Name: name, Help: help,
		}, []string{"source"})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: "writer_source", Name: name, Help: help,
		}, append([]string{"source"}, labels...))
	}
	m := &Metrics{
		connected:          gauge("connected", "1 while the inventory is heard, 0 otherwise."),
		synced:             gauge("synced", "1 when the inventory gave a whole, checked set in the present stream, 0 otherwise."),
		members:            gauge("members", "Nodes in the set in force."),
		membership:         gauge("membership_synced", "1 when the inventory last said that its list of nodes is fresh and complete."),
		addresses:          gauge("addresses_synced", "1 when the inventory last said that its addresses are fresh and complete."),
		lastMessage:        gauge("last_message_timestamp_seconds", "When the inventory was last heard, in Unix time; 0: not yet."),
		lastMembershipSync: gauge("last_word_timestamp_seconds", "When the inventory last said that its list of nodes is fresh and complete, in Unix time; 0: not yet. From here MAX_STALENESS is counted."),
		lastObservation:    gauge("last_observation_timestamp_seconds", "When the inventory's last complete look at its own world was made, in Unix time by our clock; 0: none is known."),
		messages:           counter("messages_total", "Messages received from the inventory."),
		reconnects:         counter("reconnects_total", "Streams that ended and were tried again."),
		violations:         counter("breaches_total", "Breaches of the contract by the inventory.", "kind"),
	}
	reg.MustRegister(m.connected, m.synced, m.members, m.membership, m.addresses,
		m.lastMessage, m.lastMembershipSync, m.lastObservation, m.messages, m.reconnects, m.violations)
	return m
}

// initSource makes all series of a source, so that a rate of its first breach is seen.
func (m *Metrics) initSource(source string) {
	m.lastMessage.WithLabelValues(source)
	m.messages.WithLabelValues(source)
	m.reconnects.WithLabelValues(source)
	for _, k := range ViolationKinds {
		m.violations.WithLabelValues(source, string(k))
	}
}

func (m *Metrics) setSnapshot(s Snapshot) {
	set := func(g *prometheus.GaugeVec, on bool) {
		value := 0.0
		if on {
			value = 1
		}
		g.WithLabelValues(s.Source).Set(value)
	}
	set(m.connected, s.Connected)
	set(m.synced, s.SyncedInStream)
	set(m.membership, s.Membership.State == Synced)
	set(m.addresses, s.Addresses.State == Synced)
	m.members.WithLabelValues(s.Source).Set(float64(len(s.Members)))
	m.lastMembershipSync.WithLabelValues(s.Source).Set(unixSeconds(s.MembershipSyncedAt))
	m.lastObservation.WithLabelValues(s.Source).Set(unixSeconds(s.ObservedAt))
}

// unixSeconds is a time as metrics have it; 0: there was none.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

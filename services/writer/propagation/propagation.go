// Package propagation measures how long changes of sources and probes take to a decision, and to the write that follows
// from it. It guarantees that only what a decision waited for counts, not what was known before the first one. It does not
// find out whether a change mattered.
package propagation

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// What may lead to a write, and how far it has come.
const (
	causeFeed    = "feed"
	causeProbe   = "probe"
	stageDecided = "decided"
	stageWritten = "written"
)

// Metrics are the durations of all targets.
type Metrics struct{ seconds *prometheus.HistogramVec }

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "slicefeed",
		Subsystem: "writer",
		Name:      "propagation_seconds",
		Help:      "Time from an update of a source or of a probe status (cause: feed, probe) to the decision (stage: decided), and to the response to the resulting write (stage: written).",
		Buckets:   []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},

		NativeHistogramBucketFactor:    1.1,
		NativeHistogramMaxBucketNumber: 100,
	}, []string{"cause", "stage"})
	reg.MustRegister(m)
	for _, stage := range []string{stageDecided, stageWritten} {
		m.WithLabelValues(causeFeed, stage)
		m.WithLabelValues(causeProbe, stage)
	}
	return &Metrics{m}
}

// ObserveWrite measures how long the causes of a write took to its response.
func (m *Metrics) ObserveWrite(c Causes, now time.Time) { m.observe(c, stageWritten, now) }

func (m *Metrics) observe(c Causes, stage string, now time.Time) {
	if !c.Feed.IsZero() {
		m.seconds.WithLabelValues(causeFeed, stage).Observe(now.Sub(c.Feed).Seconds())
	}
	if !c.Probe.IsZero() {
		m.seconds.WithLabelValues(causeProbe, stage).Observe(now.Sub(c.Probe).Seconds())
	}
}

// Causes are when a source's report or a probe status changed that leads to a write; zero: none did.
type Causes struct{ Feed, Probe time.Time }

// With returns the older one of each kind.
func (c Causes) With(other Causes) Causes {
	return Causes{verdict.Earliest(c.Feed, other.Feed), verdict.Earliest(c.Probe, other.Probe)}
}

// Tracker has what the last decision about a target depended on, to find out what is new in the next one. What
// changed before the first decision is not measured: it did not wait. Neither is what only time releases.
type Tracker struct {
	changed map[string]time.Time // when each source's report last changed
	probes  []probe.Status
	causes  Causes
}

// Causes returns those of the last decision.
func (t *Tracker) Causes() Causes { return t.causes }

// Observe records what a decision depends on, and measures how long that waited for it.
func (t *Tracker) Observe(m *Metrics, now time.Time, snapshots []subscriber.Snapshot, probes []probe.Status) {
	var found Causes
	changed := make(map[string]time.Time, len(snapshots))
	for i := range snapshots {
		source, at := snapshots[i].Source, snapshots[i].ChangedAt
		if before, known := t.changed[source]; known && !before.Equal(at) {
			found = found.With(Causes{Feed: at})
		}
		changed[source] = at
	}
	before := t.probes
	for i := range probes {
		p := &probes[i]
		for len(before) > 0 && before[0].Address.Less(p.Address) {
			before = before[1:]
		}
		if len(before) > 0 && before[0].Address == p.Address && p.Since.After(before[0].Since) && p.Since.After(found.Probe) {
			found.Probe = p.Since
		}
	}
	m.observe(found, stageDecided, now)
	*t = Tracker{changed, probes, found}
}

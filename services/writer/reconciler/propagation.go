package reconciler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

func newPropagation(reg prometheus.Registerer) *prometheus.HistogramVec {
	m := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "slicefeed", Subsystem: "writer", Name: "propagation_seconds",
		Help:    "Time from an update of a source or of a probe status (cause: feed, probe) to the decision (stage: decided), and to the response to the resulting write (stage: written).",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},

		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
	}, []string{"cause", "stage"})
	reg.MustRegister(m)
	for _, stage := range []string{stageDecided, stageWritten} {
		m.WithLabelValues(causeFeed, stage)
		m.WithLabelValues(causeProbe, stage)
	}
	return m
}

// causes are when a source's report or a probe status changed that leads to a write; zero: none did.
type causes struct{ feed, probe time.Time }

// with returns the older one of each kind.
func (c causes) with(other causes) causes {
	return causes{earliest(c.feed, other.feed), earliest(c.probe, other.probe)}
}

// observe measures the time since the causes.
func (c causes) observe(m *prometheus.HistogramVec, stage string, now time.Time) {
	if !c.feed.IsZero() {
		m.WithLabelValues(causeFeed, stage).Observe(now.Sub(c.feed).Seconds())
	}
	if !c.probe.IsZero() {
		m.WithLabelValues(causeProbe, stage).Observe(now.Sub(c.probe).Seconds())
	}
}

// stimuli are what the last decision about a target depended on, to find out what is new in the next one. What
// changed before the first decision is not measured: it did not wait. Neither is what only time releases.
type stimuli struct {
	changed map[string]time.Time // when each source's report last changed
	probes  []verdict.Probe
	causes  causes // of the last decision
}

// observe records what a decision depends on, and measures how long that waited for it.
func (s *stimuli) observe(m *prometheus.HistogramVec, now time.Time, snapshots []subscriber.Snapshot, probes []verdict.Probe) {
	var found causes
	changed := make(map[string]time.Time, len(snapshots))
	for i := range snapshots {
		source, at := snapshots[i].Source, snapshots[i].ChangedAt
		if before, known := s.changed[source]; known && !before.Equal(at) {
			found = found.with(causes{feed: at})
		}
		changed[source] = at
	}
	before := s.probes
	for i := range probes {
		p := &probes[i]
		for len(before) > 0 && before[0].Address.Less(p.Address) {
			before = before[1:]
		}
		if len(before) > 0 && before[0].Address == p.Address && p.Since.After(before[0].Since) && p.Since.After(found.probe) {
			found.probe = p.Since
		}
	}
	found.observe(m, stageDecided, now)
	*s = stimuli{changed, probes, found}
}

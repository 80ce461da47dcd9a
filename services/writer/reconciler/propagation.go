package reconciler

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// The stages of a change.
const (
	stageDecided = "decided"
	stageWritten = "written"
)

// causes are when a source's report or a probe status changed that leads to a write; zero: none did.
type causes struct{ feed, probe time.Time }

// with returns the older one of each kind.
func (c causes) with(other causes) causes {
	return causes{verdict.Earliest(c.feed, other.feed), verdict.Earliest(c.probe, other.probe)}
}

// newCauses returns what changed since the last decision about a target. What changed before the first one did not wait
// for it, and neither did what only time releases.
func newCauses(before, now *basis) (found causes) {
	if !before.view.Active() || !now.view.Active() {
		return causes{}
	}
	for _, snapshot := range now.snapshots {
		at := slices.IndexFunc(before.snapshots, func(s subscriber.Snapshot) bool { return s.FeedName() == snapshot.FeedName() })
		if at >= 0 && !snapshot.ChangedAt.Equal(before.snapshots[at].ChangedAt) {
			found = found.with(causes{feed: snapshot.ChangedAt})
		}
	}
	known := before.input.Probes
	for i := range now.input.Probes {
		p := &now.input.Probes[i]
		for len(known) > 0 && known[0].Address.Less(p.Address) {
			known = known[1:]
		}
		if len(known) > 0 && known[0].Address == p.Address && p.Since.After(known[0].Since) && p.Since.After(found.probe) {
			found.probe = p.Since
		}
	}
	return found
}

// propagation measures how long a change takes.
type propagation struct{ seconds *prometheus.HistogramVec }

func newPropagation(reg prometheus.Registerer) propagation {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "slicefeed",
		Subsystem: "writer",
		Name:      "propagation_seconds",
		Help:      "Time from an update of a source or of a probe status (cause: feed, probe) to the decision (stage: decided), and to the response to the resulting write (stage: written).",
		Buckets:   []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},

		NativeHistogramBucketFactor:    1.1,
		NativeHistogramMaxBucketNumber: 100,
	}, []string{"cause", "stage"})
	reg.MustRegister(seconds)
	p := propagation{seconds}
	p.observe(causes{}, stageDecided, time.Time{}) // so that the series exist
	p.observe(causes{}, stageWritten, time.Time{})
	return p
}

// observe measures how long it took from the causes to a stage.
func (p propagation) observe(c causes, stage string, now time.Time) {
	for cause, changed := range map[string]time.Time{"feed": c.feed, "probe": c.probe} {
		if series := p.seconds.WithLabelValues(cause, stage); !changed.IsZero() {
			series.Observe(now.Sub(changed).Seconds())
		}
	}
}

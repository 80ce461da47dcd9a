package control

import (
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// cause is what may lead to a write.
type cause string

// The causes, as metrics label them.
const (
	causeFeed  cause = "feed"  // a source's word
	causeProbe cause = "probe" // a probe's word
)

// How far a cause has come.
const (
	stageDecided = "decided"
	stageWritten = "written"
)

// stimuli follow the causes of a target's writes, to measure how long they take. What came
// before the target heard of it is not measured: it did not wait for us. Neither is what time
// alone releases, such as a window of a guard.
type stimuli struct {
	changed  map[string]time.Time         // when each source said something new last, as far as decided upon
	statuses map[netip.Addr]verdict.Probe // as far as decided upon

	pending map[cause]time.Time // decided upon, and in no write yet: the oldest
	sent    map[cause]time.Time // in the write that is under way
	wrote   bool                // that write has changed something; the write's own until it is over
}

// forget lets go of all but the write that is under way.
func (s *stimuli) forget() { s.changed, s.statuses, s.pending, s.sent = nil, nil, nil, nil }

// decided notes what a decision rests upon.
func (s *stimuli) decided(m *prometheus.HistogramVec, now time.Time, snapshots []subscriber.Snapshot, statuses map[netip.Addr]verdict.Probe) {
	changed := make(map[string]time.Time, len(snapshots))
	for i := range snapshots {
		h := &snapshots[i]
		if was, known := s.changed[h.Source]; known && !was.Equal(h.ChangedAt) {
			s.came(m, now, causeFeed, h.ChangedAt)
		}
		changed[h.Source] = h.ChangedAt
	}
	var last time.Time
	for address, status := range statuses {
		if was, known := s.statuses[address]; known && status.Since.After(was.Since) && status.Since.After(last) {
			last = status.Since
		}
	}
	if !last.IsZero() {
		s.came(m, now, causeProbe, last)
	}
	s.changed, s.statuses = changed, statuses
}

func (s *stimuli) came(m *prometheus.HistogramVec, now time.Time, c cause, at time.Time) {
	m.WithLabelValues(string(c), stageDecided).Observe(now.Sub(at).Seconds())
	if s.pending == nil {
		s.pending = map[cause]time.Time{}
	}
	if was, waits := s.pending[c]; !waits || at.Before(was) {
		s.pending[c] = at
	}
}

// drop forgets what waits for a write that will not be.
func (s *stimuli) drop() { s.pending = nil }

// sending notes that what waits goes into the write that begins.
func (s *stimuli) sending() { s.sent, s.pending, s.wrote = s.pending, nil, false }

// answered notes how the write ended. What failed waits for the next one.
func (s *stimuli) answered(m *prometheus.HistogramVec, now time.Time, err error) {
	for c, at := range s.sent {
		switch {
		case err != nil:
			if s.pending == nil {
				s.pending = map[cause]time.Time{}
			}
			s.pending[c] = at // older than any that came since
		case s.wrote:
			m.WithLabelValues(string(c), stageWritten).Observe(now.Sub(at).Seconds())
		}
	}
	s.sent = nil
}

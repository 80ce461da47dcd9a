package verdict

import (
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// emptyGap is how far apart, by our clock, observations must come to count as two.
const emptyGap = 4 * time.Second

// lostReason says why nothing current is known of a source; empty: it is.
func (s *Source) lostReason(input *Input, now time.Time) string {
	switch {
	case input.Rejected:
		return "the Service is rejected"
	case !s.EverSynced:
		return "not synced yet"
	case !s.Connected:
		return "link down"
	case !s.MembershipSynced:
		return "membership not synced"
	case now.Sub(s.MembershipSyncedAt) > input.Limits.MaxStaleness:
		return "membership older than MAX_STALENESS"
	}
	return ""
}

// suppression is three input guards, which keep a source's report from counting: it was not synced since this process
// started, it is not trusted, or it reports nothing usable and not enough observations confirm that. It returns the one
// that acts, and why; nil: the report counts.
func (e *evaluation) suppression(source int) (by *message, why string) {
	s := &e.sources[source]
	if !s.EverSynced {
		return &sourceNotSynced, s.distrust
	}
	empty := e.isEmpty(source)
	s.countObservation(empty)
	switch {
	case s.distrust != "":
		s.lastReportUsable = slices.ContainsFunc(s.Trusted, func(m Member) bool { return e.couldServe(s, &m) })
		return &sourceNotTrusted, "not trusted: " + s.distrust
	case empty && s.memory.empty.count < e.input.Limits.EmptyThreshold:
		return &sourceEmpty, "empty, not confirmed yet"
	}
	s.confirmedEmpty = empty
	return nil, ""
}

// couldServe reports whether something that a source reported while it was trusted could serve.
func (e *evaluation) couldServe(s *sourceState, m *Member) bool {
	if m.Unusable != "" || s.Allowlist.denyReason(m.Address) != "" {
		return false
	}
	found, _ := e.input.Probe(m.Address, m.Ports.Probe)
	return m.State != NotReady || e.input.Limits.Probing && found.Health == probe.Passing
}

// emptyCount counts the complete observations of one epoch that reported a source empty, in a row.
type emptyCount struct {
	epoch string
	// observation is the last that counted; before any did, the one in force when the source was last seen not empty, or
	// first seen at all.
	observation uint64
	count       int
	at          time.Time // when the last that counted was received
}

// countObservation counts the observations in a row that find a source empty.
func (s *sourceState) countObservation(empty bool) {
	c := &s.memory.empty
	switch {
	case !empty:
		c.observation, c.count = s.Observation, 0
	case s.distrust == "" && s.Observation > c.observation && (c.count == 0 || s.ObservationAt.Sub(c.at) >= emptyGap):
		c.observation, c.count, c.at = s.Observation, c.count+1, s.ObservationAt
	}
}

// isEmpty reports whether a source has nothing for this target that could serve. What its allowlist denies does not
// count: otherwise a lie outside the allowlist would do what an empty one may not. A node that is not ready could
// serve if it passes.
func (e *evaluation) isEmpty(source int) bool {
	return !slices.ContainsFunc(e.rows, func(r *row) bool {
		m := r.members[source]
		return m != nil && (m.State != NotReady || r.passing() != nil)
	})
}

// noteSuppressions reports what is kept for each suppressed source, and which endpoints keep their ports because those
// that their source reports cannot be used. A rejection says it already.
func (e *evaluation) noteSuppressions() {
	for i := range e.sources {
		switch s := &e.sources[i]; {
		case e.input.Rejected:
		case s.suppressedBy == nil:
			e.notePorts(i)
		default:
			held := filter(e.rows, func(r *row) bool { return r.owner == i && r.report == suppressed && e.isHeld(r) })
			e.note(*s.suppressedBy, s.Name, len(held), s.suppressedFor)
		}
	}
}

func (e *evaluation) notePorts(source int) {
	keep := filter(e.rows, func(r *row) bool {
		m := r.members[source]
		return r.owner == source && r.current != nil && m != nil && m.Unusable != ""
	})
	if len(keep) > 0 {
		e.note(portsUnusable, e.sources[source].Name, len(keep), keep[len(keep)-1].members[source].Unusable)
	}
}

// isHeld reports whether the suppression of a source changes what becomes of a current endpoint: an empty source
// holds what its report would change, any other one all that the probe does not make not ready.
func (e *evaluation) isHeld(r *row) bool {
	if r.current == nil || r.dropped || r.result.Verdict == Unready {
		return false
	}
	if e.sources[r.owner].suppressedBy != &sourceEmpty || r.reported == unlisted {
		return true
	}
	_, otherwise := r.apply(table[r.reported][r.status])
	return otherwise != r.result.Conditions
}

package verdict

import (
	"fmt"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// expireSources removes the endpoints of each source that has not been trusted for Limits.ExpireAfter, while another
// source, which has not expired itself, has ready ones that answer. A new leader waits for as long, because it cannot know
// since when the source has not been trusted. A source that answers, and whose report only cannot be used, does not
// expire: that is a mistake in settings, and its endpoints may work.
//
// It runs after the table. Shrink does not count what it removes, because our own setting asks for that; floor may keep
// an endpoint.
func (e *evaluation) expireSources() (guards []Guard) {
	after := e.input.Limits.ExpireAfter
	if after <= 0 || e.input.Rejected || e.input.LeadingSince.IsZero() {
		return nil
	}
	expired, anyExpired := make([]bool, len(e.sources)), false
	for i := range e.sources {
		s := &e.sources[i]
		if s.memory.lostSince.IsZero() {
			continue
		}
		at := s.memory.lostSince.Add(after)
		if first := e.input.LeadingSince.Add(after); at.Before(first) {
			at = first
		}
		expired[i] = !e.now.Before(at)
		anyExpired = anyExpired || expired[i]
		e.wakeAt(at)
	}
	if !anyExpired || !e.anyReadyBesides(expired) {
		return nil
	}
	for i := range e.sources {
		if !expired[i] {
			continue
		}
		s, held := &e.sources[i], 0
		for j := range e.rows {
			r := &e.rows[j]
			if r.owner != i || r.report != suppressed || e.reportedByOther(r) {
				continue
			}
			held++
			r.result.Rule = RuleExpiry
			if r.dropped = r.current != nil; r.dropped {
				r.result.Verdict, r.result.Conditions, r.result.Listed = Remove, notReady, false
			}
		}
		guards = append(guards, Guard{Rule: RuleExpiry, Source: s.Name, Held: held, Message: fmt.Sprintf(
			"Source %s is not trusted for %s: %s; its %s removed.", s.Name, after, s.distrust,
			display.Count(held, "endpoint is", "endpoints are"))})
	}
	return guards
}

// anyReadyBesides reports whether a source that has not expired has an endpoint that the table makes ready and that
// answers. What is ready only because nobody knows better, as in a panic, is no replacement.
func (e *evaluation) anyReadyBesides(expired []bool) bool {
	for i := range e.rows {
		r := &e.rows[i]
		if r.result.Listed && r.result.Conditions.Ready && r.owner != noSource && !expired[r.owner] &&
			(r.status == probe.Passing || r.status == notProbed) {
			return true
		}
	}
	return false
}

// reportedByOther reports whether a source whose report counts reports the address of a source that has expired.
func (e *evaluation) reportedByOther(r *row) bool {
	for j, m := range r.members {
		if m != nil && e.sources[j].suppressedBy == "" {
			return true
		}
	}
	return false
}

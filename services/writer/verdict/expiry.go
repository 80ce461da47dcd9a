package verdict

import (
	"fmt"
	"slices"
)

// expiredEndpoints returns the endpoints of each source that has not been trusted for Limits.ExpireAfter, while another
// source, which has not expired itself, has ready ones that answer. A new leader waits for as long, because it cannot know
// since when the source has not been trusted. A source that answers, and whose report only cannot be used, does not
// expire: that is a mistake in settings, and its endpoints may work.
//
// It runs after the table. Shrink does not count what it removes, because our own setting asks for that; floor may keep
// an endpoint.
func (e *evaluation) expiredEndpoints() (rows []*row) {
	after := e.input.Limits.ExpireAfter
	if after <= 0 || e.input.Rejected || e.input.LeadingSince.IsZero() {
		return nil
	}
	expired := make([]bool, len(e.sources))
	for i := range e.sources {
		since := e.sources[i].memory.lostSince
		if since.IsZero() {
			continue
		}
		if since.Before(e.input.LeadingSince) {
			since = e.input.LeadingSince
		}
		expired[i] = !e.now.Before(since.Add(after))
		e.wakeAt(since.Add(after))
	}
	if !slices.Contains(expired, true) || !e.anyReadyBesides(expired) {
		return nil
	}
	for i := range e.sources {
		held := filter(e.rows, func(r *row) bool {
			return expired[i] && r.owner == i && r.report == suppressed && !r.isReported(e.counts)
		})
		e.note(sourceExpired, e.sources[i].Name, len(held), fmt.Sprintf("%s: %s", after, e.sources[i].distrust))
		rows = append(rows, held...)
	}
	return rows
}

// counts reports whether the report of a source counts.
func (e *evaluation) counts(source int, _ *Member) bool { return e.sources[source].suppressedBy == nil }

// anyReadyBesides reports whether a source that has not expired has an endpoint that the table makes ready and that
// answers. What is ready only because nobody knows better, as in a panic, is no replacement.
func (e *evaluation) anyReadyBesides(expired []bool) bool {
	return slices.ContainsFunc(e.rows, func(r *row) bool {
		return r.isReady() && r.answers() && r.owner != noSource && !expired[r.owner]
	})
}

// expire drops an endpoint whose source has expired.
func (r *row) expire() {
	r.result.Rule = RuleExpiry
	if r.dropped = r.current != nil; r.dropped {
		r.overrule(Remove, notReady, RuleExpiry)
	}
}

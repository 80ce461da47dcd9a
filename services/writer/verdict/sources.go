package verdict

import (
	"fmt"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
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

// suppressSources is three input guards that keep a source's report from counting: it was not synced since this
// process started, it is not trusted, or it reports nothing usable and not enough observations confirm that.
func (e *evaluation) suppressSources() {
	for i := range e.sources {
		s := &e.sources[i]
		if !s.EverSynced {
			s.suppressedBy, s.suppressReason = RuleInitialSync, s.distrust
			continue
		}
		empty := e.isEmpty(i)
		s.countObservation(empty)
		switch {
		case !s.trusted():
			s.suppressedBy, s.suppressReason = RuleTrust, "not trusted: "+s.distrust
		case empty && s.memory.emptyCount < e.input.Limits.EmptyThreshold:
			s.suppressedBy, s.suppressReason = RuleEmpty, "empty, not confirmed yet"
		case empty:
			s.confirmedEmpty = true
		}
	}
}

// countObservation counts the observations in a row that find a source empty.
func (s *sourceState) countObservation(empty bool) {
	m := &s.memory
	switch {
	case !empty:
		m.emptyLast, m.emptyCount = s.Observation, 0
	case s.trusted() && s.Observation > m.emptyLast && (m.emptyCount == 0 || s.ObservationAt.Sub(m.emptyAt) >= emptyGap):
		m.emptyLast, m.emptyAt = s.Observation, s.ObservationAt
		m.emptyCount++
	}
}

// isEmpty reports whether a source has nothing for this target that could serve. What its allowlist denies does not
// count: otherwise a lie outside the allowlist would do what an empty one may not. A node that is not ready could
// serve if it passes.
func (e *evaluation) isEmpty(source int) bool {
	for i := range e.rows {
		r := &e.rows[i]
		if m := r.members[source]; m != nil && (m.State != NotReady || r.passing() != nil) {
			return false
		}
	}
	return true
}

// suppressionGuards counts what is kept for each suppressed source.
func (e *evaluation) suppressionGuards() (guards []Guard) {
	if e.input.Rejected {
		return nil // the rejection says it already
	}
	for i := range e.sources {
		s := &e.sources[i]
		if s.suppressedBy == "" {
			guards = append(guards, e.portsGuard(i))
			continue
		}
		g := Guard{Rule: s.suppressedBy, Source: s.Name}
		for j := range e.rows {
			if r := &e.rows[j]; r.report == suppressed && r.owner == i && e.isHeld(r) {
				g.Held++
			}
		}
		kept := display.Count(g.Held, "endpoint is", "endpoints are")
		switch s.suppressedBy {
		case RuleInitialSync:
			g.Message = fmt.Sprintf("Source %s has not synced; its %s kept.", s.Name, kept)
		case RuleEmpty:
			g.Message = fmt.Sprintf("Source %s reports no usable nodes (%s so far); its %s kept.", s.Name,
				display.Count(s.memory.emptyCount, "observation", "observations"), kept)
		default:
			g.Message = fmt.Sprintf("Source %s is %s; its %s kept.", s.Name, s.suppressReason, kept)
		}
		guards = append(guards, g)
	}
	return guards
}

// portsGuard counts the endpoints of a source that keep their ports, because those that it reports cannot be used.
func (e *evaluation) portsGuard(source int) Guard {
	g := Guard{Rule: RuleTrust, Source: e.sources[source].Name}
	for i := range e.rows {
		r := &e.rows[i]
		if m := r.members[source]; r.owner == source && r.current != nil && m != nil && m.Unusable != "" {
			g.Held++
			g.Message = m.Unusable
		}
	}
	g.Message = fmt.Sprintf("Ports of source %s cannot be used: %s. %s the ports that their slices list.",
		g.Source, g.Message, display.Count(g.Held, "endpoint keeps", "endpoints keep"))
	return g
}

// isHeld reports whether the suppression of a source changes what becomes of a current endpoint: an empty source
// holds what its report would change, any other one all that the probe does not make not ready.
func (e *evaluation) isHeld(r *row) bool {
	if r.current == nil || r.dropped || r.result.Verdict == Unready {
		return false
	}
	if e.sources[r.owner].suppressedBy != RuleEmpty || r.reported == unlisted {
		return true
	}
	_, otherwise := r.apply(table[r.reported][r.status])
	return otherwise != r.result.Conditions
}

package verdict

import "fmt"

// keepLastEndpoints is the output guard floor: while anything of a target could serve (it passes; without probes, it
// exists), something stays ready, whatever the other rules decide. So draining everything at once changes nothing,
// and consumers that do not know draining endpoints are not cut off. It never prefers an endpoint that fails, and
// never keeps one that the allowlist denies.
//
// Within each rank, endpoints with a report that counts come before those whose report is unknown or suppressed.
func (e *evaluation) keepLastEndpoints() Guard {
	best, answers := noRank, false
	ranks := make([]int, len(e.rows))
	for i := range e.rows {
		r := &e.rows[i]
		if r.result.Listed && r.result.Conditions.Ready {
			return Guard{}
		}
		ranks[i] = noRank
		if !e.mayKeep(r) {
			continue
		}
		ranks[i] = r.floorRank()
		best = min(best, ranks[i])
		answers = answers || r.status == Passing || r.status == notProbed || r.status == Pending && r.conditions().inUse()
	}
	g := Guard{Rule: RuleFloor}
	if !answers || best == noRank {
		return g
	}
	for i := range e.rows {
		if ranks[i] != best {
			continue
		}
		r, out := &e.rows[i], &e.rows[i].result
		out.Verdict = Serve
		if r.current != nil {
			out.Verdict = Hold
		}
		out.Conditions, out.Listed, out.Rule = ready, true, RuleFloor
		g.Held++
	}
	g.Message = fmt.Sprintf("No endpoint of this Service would be ready: all are draining or no longer listed, though they may still answer. %d "+
		"are kept ready until another one is. To empty the Service, delete it or opt it out.", g.Held)
	return g
}

const noRank = 8

// floorRank is lower for what is better kept.
func (r *row) floorRank() int {
	var rank int
	drains := r.result.Listed && r.result.Conditions == draining
	readyNow := r.conditions().Ready && !r.fails()
	switch {
	case drains && readyNow:
		rank = 0
	case drains && (r.status == Passing || r.status == notProbed):
		rank = 2
	case readyNow:
		rank = 4
	case r.current != nil && r.status == Passing:
		rank = 6
	default:
		return noRank
	}
	if r.report == Unknown || r.report == suppressed {
		rank++
	}
	return rank
}

// mayKeep reports whether floor may keep an endpoint ready: it is allowed, it is or may be listed, no resync removes
// it, and, without probes, its source has not confirmed that it is empty.
func (e *evaluation) mayKeep(r *row) bool {
	switch {
	case r.report == disallowed, r.current == nil && !r.result.Listed:
		return false
	case r.result.Verdict == Remove && (e.resyncs || r.memory.resyncTakes):
		return false
	}
	return r.status != notProbed || r.owner == noSource || !e.sources[r.owner].confirmedEmpty
}

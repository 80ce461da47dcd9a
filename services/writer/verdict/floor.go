package verdict

import (
	"slices"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// lastEndpoints is the output guard floor, for each address family: while anything of a target could serve (it passes;
// without probes, it exists), something stays ready, whatever the other rules decide. So draining everything at once
// changes nothing, and consumers that do not know draining endpoints are not cut off. It never prefers an endpoint that
// fails, and never keeps one that the allowlist denies. In a panic with nothing left in use, it returns a last resort.
//
// Within each rank, endpoints with a report that counts come before those whose report is unknown or suppressed.
func (e *evaluation) lastEndpoints(families []family) (kept, lastResort []*row) {
	for _, f := range families {
		if slices.ContainsFunc(f.rows, func(r *row) bool { return r.isReady() && r.status != uncorroborated }) {
			continue
		}
		var keeps []*row
		if slices.ContainsFunc(f.rows, e.couldKeep) {
			keeps = lowestRanked(f.rows, e.floorRank)
		}
		kept = append(kept, keeps...)
		isInUse := func(r *row) bool { return r.result.Listed && r.result.Conditions.inUse() }
		if len(keeps) == 0 && f.panics && !slices.ContainsFunc(f.rows, isInUse) {
			lastResort = append(lastResort, lowestRanked(f.rows, (*row).lastResortRank)...)
		}
	}
	e.note(lastKept, "", len(kept), "")
	return kept, lastResort
}

// couldKeep reports whether an endpoint could serve, and may be kept.
func (e *evaluation) couldKeep(r *row) bool {
	return (r.answers() || r.status == probe.Pending && r.conditions().inUse()) && e.mayKeep(r)
}

// noRank is the rank of what may not be kept.
const noRank = 8

// lowestRanked returns the endpoints of the lowest rank.
func lowestRanked(rows []*row, rank func(*row) int) []*row {
	best := noRank - 1
	for _, r := range rows {
		best = min(best, rank(r))
	}
	return filter(rows, func(r *row) bool { return rank(r) == best })
}

// floorRank is lower for what is better kept.
func (e *evaluation) floorRank(r *row) int {
	var rank int
	drains := r.result.Listed && r.result.Conditions == draining
	readyNow := r.conditions().Ready && !r.fails()
	switch {
	case !e.mayKeep(r):
		return noRank
	case drains && readyNow:
		rank = 0
	case drains && r.answers():
		rank = 2
	case readyNow:
		rank = 4
	case r.current != nil && r.status == probe.Passing:
		rank = 6
	default:
		return noRank
	}
	if r.report == Unknown || r.report == suppressed {
		rank++
	}
	return rank
}

// mayKeep reports whether floor may keep an endpoint ready: it is allowed, it is or may be listed, and, without probes,
// its source has not confirmed that it is empty.
func (e *evaluation) mayKeep(r *row) bool {
	if r.report == disallowed || r.current == nil && !r.result.Listed {
		return false
	}
	return r.status != notProbed || r.owner == noSource || !e.sources[r.owner].confirmedEmpty
}

// lastResortRank ranks what becomes ready in a panic with nothing in use: what is not ready only because of its probe,
// first what its source reports READY.
func (r *row) lastResortRank() int {
	switch {
	case r.current == nil && !r.previous.unlisted, r.result.Verdict == Remove, r.report == NotReady:
		return noRank
	case r.report == Ready:
		return 0
	default:
		return 1
	}
}

// keepReady replaces the result of what floor keeps.
func (r *row) keepReady() {
	verdict := Hold
	if r.current == nil {
		verdict = Serve
	}
	r.overrule(verdict, ready, RuleFloor)
}

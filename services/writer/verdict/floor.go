package verdict

import (
	"fmt"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// keepLastOfEachFamily is the output guard floor, for each address family.
func (e *evaluation) keepLastOfEachFamily() Guard {
	g := Guard{Rule: RuleFloor}
	for i, family := range e.families() {
		g.Held += e.keepLastEndpoints(family, e.panics[i])
	}
	g.Message = fmt.Sprintf(
		"No endpoint of this Service would be ready, as all are draining or no longer listed: %s kept ready.",
		display.Count(g.Held, "is", "are"),
	)
	return g
}

// keepLastEndpoints is the guard for one family, and returns how many endpoints it keeps: while anything of a target
// could serve (it passes; without probes, it exists), something stays ready, whatever the other rules decide. So draining
// everything at once changes nothing, and consumers that do not know draining endpoints are not cut off. It never prefers an endpoint that fails, and
// never keeps one that the allowlist denies.
//
// Within each rank, endpoints with a report that counts come before those whose report is unknown or suppressed.
func (e *evaluation) keepLastEndpoints(family []row, panics bool) (held int) {
	anyAnswers, anyInUse := false, false
	for i := range family {
		r := &family[i]
		inUse := r.result.Listed && r.result.Conditions.inUse()
		if inUse && r.result.Conditions.Ready && r.status != uncorroborated {
			return 0
		}
		anyInUse = anyInUse || inUse
		answers := r.status == probe.Passing || r.status == notProbed || r.status == probe.Pending && r.conditions().inUse()
		anyAnswers = anyAnswers || answers && e.mayKeep(r)
	}
	if anyAnswers {
		kept := lowestRanked(family, func(r *row) int {
			if !e.mayKeep(r) {
				return noRank
			}
			return r.floorRank()
		})
		for _, r := range kept {
			r.result.Verdict = Serve
			if r.current != nil {
				r.result.Verdict = Hold
			}
			r.result.Conditions, r.result.Listed, r.result.Rule = ready, true, RuleFloor
		}
		held = len(kept)
	}
	if held == 0 && panics && !anyInUse {
		for _, r := range lowestRanked(family, (*row).lastResortRank) {
			r.result.Verdict, r.result.Conditions, r.result.Listed, r.result.Rule = Hold, ready, true, RulePanic
		}
	}
	return held
}

// noRank is the rank of what may not be kept.
const noRank = 8

// lowestRanked returns the endpoints of the lowest rank.
func lowestRanked(rows []row, rank func(*row) int) (kept []*row) {
	best := noRank
	for i := range rows {
		switch r := &rows[i]; {
		case rank(r) < best:
			best, kept = rank(r), []*row{r}
		case rank(r) == best && best < noRank:
			kept = append(kept, r)
		}
	}
	return kept
}

// floorRank is lower for what is better kept.
func (r *row) floorRank() int {
	var rank int
	drains := r.result.Listed && r.result.Conditions == draining
	readyNow := r.conditions().Ready && !r.fails()
	switch {
	case drains && readyNow:
		rank = 0
	case drains && (r.status == probe.Passing || r.status == notProbed):
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

// mayKeep reports whether floor may keep an endpoint ready: it is allowed, it is or may be listed, and, without probes,
// its source has not confirmed that it is empty.
func (e *evaluation) mayKeep(r *row) bool {
	if r.report == disallowed || r.current == nil && !r.result.Listed {
		return false
	}
	return r.status != notProbed || r.owner == noSource || !e.sources[r.owner].confirmedEmpty
}

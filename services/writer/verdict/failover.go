package verdict

import (
	"cmp"
	"fmt"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// DefaultFailoverBelow is the default of Limits.FailoverBelow.
const DefaultFailoverBelow = 1

// failbackDelay is how long the earlier tiers must have enough ready endpoints before a later tier leaves.
const failbackDelay = time.Minute

// holdBackTiers lists the endpoints of a later failover tier only while fewer than Limits.FailoverBelow endpoints of the
// earlier tiers are ready. They leave once enough have been ready for failbackDelay; until then none is added.
//
// It runs between the table and the output guards. Shrink does not count what it removes, because our own setting asks
// for that. A rejected Service keeps what is listed.
func (e *evaluation) holdBackTiers() (guards []Guard) {
	last := 0
	for i := range e.sources {
		last = max(last, e.sources[i].Tier)
	}
	if e.input.Rejected {
		return nil
	}
	for tier := 1; tier <= last; tier++ {
		guards = append(guards, e.holdBackTier(tier)...)
	}
	return guards
}

func (e *evaluation) holdBackTier(tier int) (guards []Guard) {
	below := cmp.Or(max(0, e.input.Limits.FailoverBelow), DefaultFailoverBelow)
	enough, since := e.countReadyBefore(tier) >= below, time.Time{}
	if enough {
		since = e.rememberEnough(tier)
	}
	failsBack := enough && !e.now.Before(since.Add(failbackDelay))
	keepsOut := enough || e.isUnprobedBefore(tier)
	listed := make([]int, len(e.sources))
	for i := range e.rows {
		r := &e.rows[i]
		switch {
		case r.owner == noSource || e.tierOf(r) != tier:
		case failsBack, keepsOut && r.current == nil:
			r.standBy()
		case r.result.Listed:
			listed[r.owner]++
		}
	}
	for i, n := range listed {
		if n > 0 && enough {
			e.wakeAt(since.Add(failbackDelay))
		}
		guards = append(guards, Guard{Rule: RuleFailover, Source: e.sources[i].Name, Held: n, Message: fmt.Sprintf(
			"Source %s: %s in use, as those before it have fewer than %d ready.",
			e.sources[i].Name,
			display.Count(n, "endpoint is", "endpoints are"),
			below,
		)})
	}
	return guards
}

// tierOf returns the earliest tier of the sources that report an address or own it.
func (e *evaluation) tierOf(r *row) int {
	tier := e.sources[r.owner].Tier
	for j, m := range r.members {
		if m != nil {
			tier = min(tier, e.sources[j].Tier)
		}
	}
	return tier
}

// countReadyBefore counts the ready endpoints of the tiers before one. What no source of this Service owns is among them.
func (e *evaluation) countReadyBefore(tier int) (n int) {
	for i := range e.rows {
		r := &e.rows[i]
		if r.result.Listed && r.result.Conditions.Ready && (r.owner == noSource || e.tierOf(r) < tier) {
			n++
		}
	}
	return n
}

// isUnprobedBefore reports whether the tiers before one have endpoints, and no probe of any has come to a conclusion yet:
// in a new Service, which lists nothing yet, they are not less ready than its later tiers only because they answer a
// moment later.
func (e *evaluation) isUnprobedBefore(tier int) (unprobed bool) {
	if len(e.input.Current) > 0 {
		return false
	}
	for i := range e.rows {
		r := &e.rows[i]
		switch {
		case r.owner == noSource || e.tierOf(r) >= tier || r.report != Ready:
		case r.status != probe.Pending || r.probe.Expired:
			return false
		default:
			unprobed = true
		}
	}
	return unprobed
}

// rememberEnough notes that the tiers before one have enough ready endpoints, and returns since when.
func (e *evaluation) rememberEnough(tier int) time.Time {
	since := e.now
	for i := range e.sources {
		if s := &e.sources[i]; s.Tier == tier && !s.enoughBefore.IsZero() {
			since = s.enoughBefore
		}
	}
	for i := range e.sources {
		if s := &e.sources[i]; s.Tier == tier {
			s.memory.enoughSince = since
		}
	}
	return since
}

// standBy takes an endpoint of a later tier out of the slices, or keeps it out. It is probed all along.
func (r *row) standBy() {
	r.dropped = r.current != nil
	if r.result.Verdict != Remove {
		r.result.Verdict, r.result.Conditions, r.result.Listed, r.result.Rule = StandBy, notReady, false, RuleFailover
	}
}

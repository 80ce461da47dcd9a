package verdict

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// DefaultFailoverBelow is the default of Limits.FailoverBelow.
const DefaultFailoverBelow = 1

// failbackDelay is how long the earlier tiers must have enough ready endpoints before a later tier leaves.
const failbackDelay = time.Minute

// lastTier returns the last failover tier that has to stand by: a rejected Service keeps what is listed.
func (e *evaluation) lastTier() (last int) {
	for i := range e.sources {
		if !e.input.Rejected {
			last = max(last, e.sources[i].Tier)
		}
	}
	return last
}

// standbyEndpoints returns the endpoints of a later failover tier that are not listed. Its endpoints are, while fewer than
// Limits.FailoverBelow endpoints of the earlier tiers are ready. They leave once enough have been ready for
// failbackDelay; until then none is added.
//
// It runs between the table and the output guards. Shrink does not count what it removes, because our own setting asks
// for that.
func (e *evaluation) standbyEndpoints(tier int) []*row {
	below := cmp.Or(max(0, e.input.Limits.FailoverBelow), DefaultFailoverBelow)
	readyBefore := filter(e.rows, func(r *row) bool { return r.isReady() && e.tierOf(r) < tier })
	enough, failsBackAt := len(readyBefore) >= below, time.Time{}
	if enough {
		failsBackAt = e.rememberEnough(tier).Add(failbackDelay)
	}
	failsBack := enough && !e.now.Before(failsBackAt)
	keepsOut := enough || e.isUnprobedBefore(tier)
	ofTier := filter(e.rows, func(r *row) bool { return e.tierOf(r) == tier })
	standsBy := func(r *row) bool { return failsBack || keepsOut && r.current == nil }
	for i := range e.sources {
		inUse := filter(ofTier, func(r *row) bool { return r.owner == i && r.result.Listed && !standsBy(r) })
		e.note(tierInUse, e.sources[i].Name, len(inUse), strconv.Itoa(below))
		if len(inUse) > 0 && enough {
			e.wakeAt(failsBackAt)
		}
	}
	return filter(ofTier, standsBy)
}

// tierOf returns the earliest tier of the sources that report an address or own it. What no source of this Service owns
// is before all of them.
func (e *evaluation) tierOf(r *row) int {
	if r.owner == noSource {
		return -1
	}
	tier := e.sources[r.owner].Tier
	for j, m := range r.members {
		if m != nil {
			tier = min(tier, e.sources[j].Tier)
		}
	}
	return tier
}

// isUnprobedBefore reports whether the tiers before one have endpoints, and no probe of any has come to a conclusion yet:
// in a new Service, which lists nothing yet, they are not less ready than its later tiers only because they answer a
// moment later.
func (e *evaluation) isUnprobedBefore(tier int) bool {
	if len(e.input.Current) > 0 {
		return false
	}
	before := filter(e.rows, func(r *row) bool { return r.owner != noSource && e.tierOf(r) < tier && r.report == Ready })
	isProbed := func(r *row) bool { return r.status != probe.Pending || r.probe.Expired }
	return len(before) > 0 && !slices.ContainsFunc(before, isProbed)
}

// rememberEnough notes that the tiers before one have enough ready endpoints, and returns since when.
func (e *evaluation) rememberEnough(tier int) time.Time {
	since := e.now
	for i := range e.sources {
		if s := &e.sources[i]; s.Tier == tier {
			since = cmp.Or(s.previous.enoughSince, since)
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
		r.overrule(StandBy, notReady, RuleFailover)
	}
}

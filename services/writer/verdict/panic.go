package verdict

import (
	"cmp"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// summarizeProbes finds out what the probes of this target see.
func (e *evaluation) summarizeProbes() {
	if !e.input.Limits.Probing {
		return
	}
	d := &e.decision
	d.AnyPassing = slices.ContainsFunc(e.rows, func(r *row) bool { return r.passing() != nil })
	d.CannotProbe = slices.ContainsFunc(e.rows, func(r *row) bool {
		return r.status == probe.Pending && r.probe.Expired && r.conditions().inUse() && !r.isDenied()
	})
	if len(e.input.Current) > 0 && !d.AnyPassing {
		e.memory.blindSince = cmp.Or(e.previous.blindSince, e.now)
		d.NonePassingSince = e.memory.blindSince
	}
}

// corroborationGap is how soon to decide again while a failure may still be corroborated.
const corroborationGap = 250 * time.Millisecond

// ignoredFailures is the input guard panic: the failure of an endpoint in use counts only if another endpoint of the
// target and its address family corroborates it, by passing while this one fails. Otherwise the prober's own network is
// the likelier fault. It needs no memory, so it holds for a prober that never worked, for a single endpoint and before
// the initial sync. A family panics if none passes that could corroborate anything.
func (e *evaluation) ignoredFailures(f *family) (ignored []*row) {
	isCurrent := func(r *row) bool { return r.current != nil && !r.isDenied() }
	isInUse := func(r *row) bool { return isCurrent(r) && r.current.Conditions.inUse() }
	failing := filter(f.rows, func(r *row) bool { return r.status == probe.Failing && isCurrent(r) })
	if len(failing) == 0 || !slices.ContainsFunc(f.rows, isInUse) {
		return nil
	}
	passing := filter(f.rows, e.mayCorroborate)
	f.panics = len(passing) == 0
	e.decision.Panic = e.decision.Panic || f.panics
	ignored = filter(failing, func(r *row) bool {
		return isInUse(r) && !slices.ContainsFunc(passing, func(other *row) bool { return corroborates(other.passing(), r.probe) })
	})
	if len(ignored) > 0 && !f.panics {
		e.wakeAt(e.now.Add(corroborationGap))
	}
	return ignored
}

// mayCorroborate reports whether an endpoint passes that is listed or could be.
func (e *evaluation) mayCorroborate(r *row) bool {
	if r.passing() == nil {
		return false
	}
	return r.current != nil && !r.isDenied() || r.current == nil && e.isListable(r)
}

// corroborates reports whether the run of passes of one endpoint overlaps with the run of failures of another one. One
// pass that began after the failures, as at the end of a blackout, says nothing about them.
func corroborates(passing, failing *probe.Status) bool {
	return !passing.RunLast.Before(failing.RunStart) && failing.RunLast.After(passing.RunStart)
}

// isListable reports whether an address that is not current would be listed if its probe passes.
func (e *evaluation) isListable(r *row) bool {
	if c := r.currentSource; c != noSource && r.deniedBy != c && e.sources[c].distrust != "" {
		return false // no other source may report it
	}
	return r.isReported(func(source int, m *Member) bool { return m.State != Unknown && e.sources[source].distrust == "" })
}

// notePanic reports what is in use because of a panic.
func (e *evaluation) notePanic() {
	if e.decision.Panic {
		held := filter(e.rows, func(r *row) bool { return r.result.Rule == RulePanic })
		e.note(failuresIgnored, "", len(held), "")
	}
}

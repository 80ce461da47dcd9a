package verdict

import (
	"fmt"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// summarizeProbes finds out what the probes of this target see.
func (e *evaluation) summarizeProbes() {
	e.memory.lastPassed = e.previous.lastPassed
	if !e.input.Limits.Probing {
		return
	}
	d := &e.decision
	anyCurrent := false
	for i := range e.rows {
		r := &e.rows[i]
		d.AnyPassing = d.AnyPassing || r.status == Passing
		anyCurrent = anyCurrent || r.current != nil
		d.CannotProbe = d.CannotProbe || r.status == Pending && r.probe.Expired && r.conditions().inUse() && !r.isDropped()
		if passed := r.probe.lastPassed(); passed.After(e.memory.lastPassed) {
			e.memory.lastPassed = passed
		}
	}
	if anyCurrent && !d.AnyPassing {
		e.memory.blindSince = e.previous.blindSince
		if e.memory.blindSince.IsZero() {
			e.memory.blindSince = e.now
		}
		d.NonePassingSince = e.memory.blindSince
	}
}

// ignoreFailures is the input guard panic: while no endpoint of the target passes, the prober's own network is the
// likelier fault, and its failures take no endpoint out of use. It needs no memory for that, so it holds for a
// prober that never worked, for a single endpoint and before the initial sync. What failures took out of use before
// the last one was noticed comes back, if they all began after a probe of this target last passed.
func (e *evaluation) ignoreFailures() {
	failing, inUse := false, false
	for i := range e.rows {
		r := &e.rows[i]
		switch {
		case r.current == nil:
			if r.status == Passing && e.isListable(r) {
				return
			}
		case r.isDropped():
		case r.status == Passing:
			return
		default:
			failing = failing || r.status == Failing
			inUse = inUse || r.current.Conditions.inUse()
		}
	}
	if !failing || !inUse {
		return
	}
	e.decision.Panic = true
	for i := range e.rows {
		r := &e.rows[i]
		if r.status != Failing {
			continue
		}
		switch {
		case r.conditions().inUse():
			r.status = ignored
		case r.previous.beforeFail.inUse() && r.probe.firstFailed().After(e.memory.lastPassed):
			r.status, r.restored = ignored, r.previous.beforeFail
		}
	}
}

// isListable reports whether an address that is not current would be listed if its probe passes.
func (e *evaluation) isListable(r *row) bool {
	if c := r.currentSource; c != noSource && r.deniedBy != c && !e.sources[c].trusted() {
		return false // no other source may report it
	}
	for j, m := range r.members {
		if m != nil && m.State != Unknown && e.sources[j].trusted() {
			return true
		}
	}
	return false
}

// hasFailingInUse reports whether a source has an endpoint in use that fails its probe.
func (e *evaluation) hasFailingInUse(source int) bool {
	for i := range e.rows {
		r := &e.rows[i]
		if r.currentSource == source && r.deniedBy != source && r.conditions().inUse() && r.fails() {
			return true
		}
	}
	return false
}

// keepPendingDrains is the output guard that keeps ready, in a panic, what drains and is pending: others that fail
// stay, and with them alone ready all traffic would go to those that we know least good of. It lasts while one that
// fails is still listed: with the last one, the panic ends.
func (e *evaluation) keepPendingDrains() {
	anyListed := false
	for i := range e.rows {
		anyListed = anyListed || e.rows[i].fails() && e.rows[i].result.Listed
	}
	if !e.decision.Panic || !anyListed {
		return
	}
	for i := range e.rows {
		r := &e.rows[i]
		if r.status == Pending && r.conditions().Ready && r.result.Verdict == Drain {
			r.hold(RulePanic)
		}
	}
}

// hold replaces the result by what is current.
func (r *row) hold(by Rule) {
	out := &r.result
	out.Verdict, out.Rule, out.Listed = Hold, by, true
	out.Conditions, out.Zone = r.current.Conditions, r.current.Zone
}

// useLastResort is the output guard that makes ready again, in a panic, what is not ready because of a failure
// alone, before a report takes the last endpoint of use: the prober is not trusted now. Those that their source
// reports READY come first.
func (e *evaluation) useLastResort() {
	if !e.decision.Panic {
		return
	}
	const none = 2
	best, ranks := none, make([]int, len(e.rows))
	for i := range e.rows {
		r := &e.rows[i]
		if r.result.Listed && r.result.Conditions.inUse() {
			return
		}
		ranks[i] = none
		switch {
		case r.current == nil && !r.previous.unlisted, r.result.Verdict == Remove, r.report == NotReady:
		case r.report == Ready:
			ranks[i] = 0
		default:
			ranks[i] = 1
		}
		best = min(best, ranks[i])
	}
	for i := range e.rows {
		if out := &e.rows[i].result; best < none && ranks[i] == best {
			out.Verdict, out.Conditions, out.Listed, out.Rule = Hold, ready, true, RulePanic
		}
	}
}

// panicGuard counts what is in use because of a panic.
func (e *evaluation) panicGuard() Guard {
	g := Guard{Rule: RulePanic}
	for i := range e.rows {
		if e.rows[i].result.Rule == RulePanic {
			g.Held++
		}
	}
	g.Message = fmt.Sprintf("No probe of this Service passes, which usually means the writer cannot reach the backends. Probe failures are ignored and "+
		"%s in use. Check the network between writer and backends, then the backends.", display.Count(g.Held, "endpoint stays", "endpoints stay"))
	return g
}

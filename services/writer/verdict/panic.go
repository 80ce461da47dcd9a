package verdict

import (
	"fmt"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// summarizeProbes finds out what the probes of this target see.
func (e *evaluation) summarizeProbes() {
	if !e.input.Limits.Probing {
		return
	}
	d := &e.decision
	anyCurrent := false
	for i := range e.rows {
		r := &e.rows[i]
		d.AnyPassing = d.AnyPassing || r.passing() != nil
		anyCurrent = anyCurrent || r.current != nil
		d.CannotProbe = d.CannotProbe || r.status == probe.Pending && r.probe.Expired && r.conditions().inUse() && !r.isDropped()
	}
	if anyCurrent && !d.AnyPassing {
		e.memory.blindSince = e.previous.blindSince
		if e.memory.blindSince.IsZero() {
			e.memory.blindSince = e.now
		}
		d.NonePassingSince = e.memory.blindSince
	}
}

// corroborationGap is how soon to decide again while a failure may still be corroborated.
const corroborationGap = 250 * time.Millisecond

// ignoreFailures is the input guard panic: the failure of an endpoint in use counts only if another endpoint of the
// target and its address family corroborates it, by passing while this one fails. Otherwise the prober's own network is
// the likelier fault. It needs no memory, so it holds for a prober that never worked, for a single endpoint and before
// the initial sync. It panics if none passes that could corroborate anything.
func (e *evaluation) ignoreFailures(family []row) (panics bool) {
	var failing []*row
	anyInUse := false
	for i := range family {
		r := &family[i]
		if r.current == nil || r.isDropped() {
			continue
		}
		anyInUse = anyInUse || r.current.Conditions.inUse()
		if r.status == probe.Failing {
			failing = append(failing, r)
		}
	}
	if len(failing) == 0 || !anyInUse {
		return false
	}
	var passing []*probe.Status
	for i := range family {
		if r := &family[i]; e.mayCorroborate(r) {
			passing = append(passing, r.passing())
		}
	}
	panics = len(passing) == 0
	e.decision.Panic = e.decision.Panic || panics
	for _, r := range failing {
		if !r.current.Conditions.inUse() || slices.ContainsFunc(passing, func(p *probe.Status) bool { return corroborates(p, r.probe) }) {
			continue
		}
		r.status = uncorroborated
		if !panics {
			e.wakeAt(e.now.Add(corroborationGap))
		}
	}
	return panics
}

// mayCorroborate reports whether an endpoint passes that is listed or could be.
func (e *evaluation) mayCorroborate(r *row) bool {
	switch {
	case r.passing() == nil:
		return false
	case r.current == nil:
		return e.isListable(r)
	default:
		return !r.isDropped()
	}
}

// corroborates reports whether the run of passes of one endpoint overlaps with the run of failures of another one. One
// pass that began after the failures, as at the end of a blackout, says nothing about them.
func corroborates(passing, failing *probe.Status) bool {
	return !passing.RunLast.Before(failing.RunStart) && failing.RunLast.After(passing.RunStart)
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

// hold replaces the result by what is current.
func (r *row) hold(by Rule) {
	out := r.result
	out.Verdict, out.Rule, out.Listed = Hold, by, true
	out.Conditions, out.Zone, out.Hostname = r.current.Conditions, r.current.Zone, r.current.Hostname
	if r.moves {
		out.Ports, out.Others = r.current.Ports, []Ports{r.ports}
	}
}

// panicGuard counts what is in use because of a panic.
func (e *evaluation) panicGuard() Guard {
	g := Guard{Rule: RulePanic}
	if !e.decision.Panic {
		return g
	}
	for i := range e.rows {
		if e.rows[i].result.Rule == RulePanic {
			g.Held++
		}
	}
	g.Message = fmt.Sprintf(
		"No probe of this Service passes: failures are ignored and %s in use.",
		display.Count(g.Held, "endpoint stays", "endpoints stay"),
	)
	return g
}

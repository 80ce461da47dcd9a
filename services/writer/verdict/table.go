package verdict

import (
	"fmt"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// Reports and probe statuses that only the table knows.
const (
	unlisted   = NotReady + 1 // the owner is trusted and does not list the address
	suppressed = NotReady + 2 // a guard keeps the owner's report from counting
	disallowed = NotReady + 3 // the allowlist denies the address

	uncorroborated = probe.Failing + 1 // it fails, and no other endpoint corroborates that
	notProbed      = probe.Failing + 2
)

// resume is Hold, but an endpoint that is not ready becomes what the last trusted report says.
const resume = StandBy + 1

// table decides on an address by the report of its owner and the status of its probe. A new address is listed only
// for Serve and Drain, and only if its probe passes or is off.
var table = [...][5]Verdict{
	//           pending  passing  failing  uncorroborated  not probed
	Ready:      {Hold, Serve, Unready, Hold, Serve},
	Draining:   {Drain, Drain, Unready, Hold, Drain},
	NotReady:   {Hold, Serve, Unready, Unready, Unready}, // kubelets restart; a backend that answers is used
	unlisted:   {Remove, Remove, Remove, Remove, Remove},
	Unknown:    {Hold, resume, Unready, Hold, Hold},
	suppressed: {Hold, resume, Unready, Hold, Hold},
	disallowed: {Remove, Remove, Remove, Remove, Remove},
}

// assignOwners finds the source whose report counts for each address, and the report. A current endpoint belongs to
// the source of its slice until that one, not suppressed, leaves it out; everything else to the first by tier and
// name that reports it, of those that are not suppressed if there are any.
func (e *evaluation) assignOwners() {
	allCount := len(e.sources) > 0
	for i := range e.sources {
		allCount = allCount && e.sources[i].suppressedBy == nil
	}
	for _, r := range e.rows {
		r.owner = e.ownerOf(r)
		if r.owner == noSource || r.owner == r.deniedBy && r.members[r.owner] == nil {
			e.setReportWithoutOwner(r, allCount)
		} else {
			e.setReport(r)
		}
	}
}

func (e *evaluation) ownerOf(r *row) int {
	if c := r.currentSource; c != noSource && c != r.deniedBy && (r.members[c] != nil || e.sources[c].suppressedBy != nil) {
		return c
	}
	owner := noSource
	for j := range e.sources {
		if r.members[j] != nil && (owner == noSource || e.isBetterOwner(j, owner)) {
			owner = j
		}
	}
	if owner == noSource {
		return r.currentSource
	}
	return owner
}

// isBetterOwner reports whether a source owns an address rather than one before it by name.
func (e *evaluation) isBetterOwner(j, owner int) bool {
	a, b := &e.sources[j], &e.sources[owner]
	if (a.suppressedBy == nil) != (b.suppressedBy == nil) {
		return a.suppressedBy == nil
	}
	return a.Tier < b.Tier
}

// setReport takes the report of the owner, unless a guard suppresses it.
func (e *evaluation) setReport(r *row) {
	s, m := &e.sources[r.owner], r.members[r.owner]
	r.reported = unlisted
	if m != nil {
		r.reported = m.State
	}
	if m != nil && r.current == nil {
		r.ports = m.Ports
		r.probe, r.status = e.probeAt(r, r.ports)
	}
	if s.suppressedBy != nil {
		e.rememberReport(r, e.lastTrustedReport(r))
		r.setCause(suppressed, s.suppressedBy.rule, s.Name, s.suppressedFor)
		return
	}
	e.rememberReport(r, r.reported)
	why := ""
	if m != nil && m.State != Unknown && r.current != nil && m.Unusable == "" && m.Ports != r.ports {
		why = e.followPorts(r, m.Ports)
	}
	r.setCause(r.reported, RuleTable, s.Name, why)
}

// followPorts has an endpoint get the ports that its owner reports instead of those that it is listed with. They are a
// new endpoint, which must pass its probe, and have all ports that pass now. Shrink counts that as a departure. It
// returns what is to be explained.
func (e *evaluation) followPorts(r *row, reported Ports) string {
	found, status := e.probeAt(r, reported)
	r.newPorts = &reported
	r.moves = status == notProbed || status == probe.Passing && (r.fails() || reported.cover(r.ports))
	if !r.moves {
		return fmt.Sprintf("%s at other ports (%s, probe: %s)", reportNames[r.reported], reported.Text, statusNames[status])
	}
	r.left, r.ports, r.probe, r.status = r.status, reported, found, status
	return ""
}

// setReportWithoutOwner handles an address that no source may report: its source's allowlist denies it, or its
// source is none of this target's. The latter is removed only when every source that could take it over counts and
// has not: a new name for a source, or a lost label, must not empty a Service.
func (e *evaluation) setReportWithoutOwner(r *row, allCount bool) {
	switch {
	case r.deniedBy != noSource && (r.current == nil || r.deniedBy == r.currentSource):
		r.setCause(disallowed, RuleAllowlist, e.sources[r.deniedBy].Name, r.denied)
	case alwaysDenied(r.address) != "":
		r.setCause(disallowed, RuleAllowlist, r.current.sourceName(), alwaysDenied(r.address))
	case allCount:
		r.setCause(unlisted, RuleTable, r.current.sourceName(), "not a source of this Service")
	default:
		r.setCause(suppressed, RuleTrust, r.current.sourceName(), "not a source of this Service; other sources are not all trusted")
	}
}

// setCause sets the report that the table reads, and what explains the decision.
func (r *row) setCause(report State, rule Rule, source, why string) {
	out := r.result
	r.report, out.Rule, out.Source = report, rule, source
	out.Reason = Reason{Source: source, Report: report, Why: why, Probe: r.status}
	if r.fails() || r.status == probe.Pending {
		out.Reason.Detail = r.probe.Detail
	}
}

// applyTable decides on each address by its report and its probe status.
func (e *evaluation) applyTable() {
	for _, r := range e.rows {
		out, chosen := r.result, table[r.report][r.status]
		out.Verdict, out.Conditions = r.apply(chosen)
		if r.status == uncorroborated && chosen == Hold {
			out.Rule = RulePanic
		}
		r.setIdentity()
		r.setPorts()
		if out.Listed = e.isListed(r, out.Verdict); !out.Listed {
			out.Conditions = notReady
		}
	}
}

// apply returns what a verdict makes of an address.
func (r *row) apply(v Verdict) (Verdict, Conditions) {
	switch v {
	case Serve:
		return v, ready
	case Drain:
		return v, draining
	case Unready, Remove:
		return v, notReady
	}
	if v == Hold || r.current == nil || r.current.Conditions.inUse() {
		return Hold, r.conditions()
	}
	switch r.memory.report { // resume
	case Draining:
		return Hold, draining
	case unlisted: // it was to be removed, and that was not written yet
		return Remove, notReady
	}
	return Hold, ready
}

// setIdentity keeps the zone and the hostname of what stays as it is, and takes the reported ones otherwise.
func (r *row) setIdentity() {
	if r.current != nil {
		r.result.Zone, r.result.Hostname = r.current.Zone, r.current.Hostname
	}
	if r.owner == noSource || r.report > unlisted {
		return
	}
	if m := r.members[r.owner]; m != nil && (r.current == nil || r.result.Verdict != Hold) {
		r.result.Zone, r.result.Hostname = m.Zone, m.Hostname
	}
}

// setPorts sets the ports. An endpoint that keeps its ports keeps its slice, too.
func (r *row) setPorts() {
	out := r.result
	out.Ports = r.ports
	switch {
	case r.moves:
		out.Others = []Ports{r.current.Ports}
	case r.newPorts != nil:
		out.Others, r.memory.source = []Ports{*r.newPorts}, out.Source
		out.Source = r.current.sourceName()
	}
}

// isListed reports whether a verdict has an address in the slices.
func (e *evaluation) isListed(r *row, v Verdict) bool {
	if r.current == nil {
		return (v == Serve || v == Drain) && r.answers()
	}
	return v != Remove && (v != Unready || e.input.Limits.ListUnready)
}

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

// action is what the table makes of an address.
type action uint8

const (
	asIs   action = iota // as the slices list it
	resume               // as the slices list it, but a not ready endpoint becomes what the last trusted report says
	serve
	drain
	unready
	remove
)

// table decides on an address by the report of its owner and the status of its probe. A new address is listed only
// for serve and drain, and only if its probe passes or is off.
var table = [...][5]action{
	//           pending  passing  failing  uncorroborated  not probed
	Ready:      {asIs, serve, unready, asIs, serve},
	Draining:   {drain, drain, unready, asIs, drain},
	NotReady:   {asIs, serve, unready, unready, unready}, // kubelets restart; a backend that answers is used
	unlisted:   {remove, remove, remove, remove, remove},
	Unknown:    {asIs, resume, unready, asIs, asIs},
	suppressed: {asIs, resume, unready, asIs, asIs},
	disallowed: {remove, remove, remove, remove, remove},
}

var reportNames = [...]string{
	Unknown:  "a state unknown to this version",
	Ready:    "READY",
	Draining: "DRAINING",
	NotReady: "NOT_READY",
	unlisted: "not listed",
}

var statusNames = [...]string{
	probe.Pending:  "pending",
	probe.Passing:  "passing",
	probe.Failing:  "failing",
	uncorroborated: "failing",
	notProbed:      "off",
}

// assignOwners finds the source whose report counts for each address, and the report. A current endpoint belongs to
// the source of its slice until that one, not suppressed, leaves it out; everything else to the first by tier and
// name that reports it, of those that are not suppressed if there are any.
func (e *evaluation) assignOwners() {
	allCount := len(e.sources) > 0
	for i := range e.sources {
		allCount = allCount && e.sources[i].suppressedBy == ""
	}
	for i := range e.rows {
		r := &e.rows[i]
		r.owner = e.ownerOf(r)
		if r.owner == noSource || r.owner == r.deniedBy && r.members[r.owner] == nil {
			e.setReportWithoutOwner(r, allCount)
		} else {
			e.setReport(r)
		}
	}
}

func (e *evaluation) ownerOf(r *row) int {
	if c := r.currentSource; c != noSource && c != r.deniedBy && (r.members[c] != nil || e.sources[c].suppressedBy != "") {
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
	if (a.suppressedBy == "") != (b.suppressedBy == "") {
		return a.suppressedBy == ""
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
	if s.suppressedBy != "" {
		e.rememberReport(r, e.lastTrustedReport(r))
		r.report = suppressed
		e.explain(r, s.suppressedBy, s.Name, s.suppressReason)
		return
	}
	e.rememberReport(r, r.reported)
	r.report = r.reported
	report := reportNames[r.reported]
	if m != nil && m.State != Unknown && r.current != nil && m.Unusable == "" && m.Ports != r.ports {
		report += e.followPorts(r, m.Ports)
	}
	e.explain(r, RuleTable, s.Name, report)
}

// followPorts has an endpoint get the ports that its owner reports instead of those that it is listed with. They are a
// new endpoint, which must pass its probe, and have all ports that pass now. Shrink counts that as a departure. It
// returns what is to be explained.
func (e *evaluation) followPorts(r *row, reported Ports) string {
	found, status := e.probeAt(r, reported)
	r.newPorts = &reported
	r.moves = status == notProbed || status == probe.Passing && (r.fails() || reported.cover(r.ports))
	if !r.moves {
		return fmt.Sprintf(" at other ports (%s, probe: %s)", reported.Text, statusNames[status])
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
		r.report = disallowed
		r.result.Source = e.sources[r.deniedBy].Name
	case alwaysDenied(r.address) != "":
		r.report = disallowed
		r.result.Source = r.current.sourceName()
	case allCount:
		r.report = unlisted
		e.explain(r, RuleTable, r.current.sourceName(), "not a source of this Service")
	default:
		r.report = suppressed
		e.explain(r, RuleTrust, r.current.sourceName(), "not a source of this Service; other sources are not all trusted")
	}
	if r.report == disallowed {
		r.result.Rule = RuleAllowlist
		r.result.Reason = "source " + r.result.Source + ": not allowed, " + e.denyReason(r)
	}
}

// reason is what explains a decision to people, without numbers that change by themselves.
type reason struct {
	source, report string
	status         probe.Health
	detail         string // of the probe
}

func (r reason) String() string {
	text := "source " + r.source + ": " + r.report + ", probe: " + statusNames[r.status]
	if r.detail != "" {
		text += " (" + r.detail + ")"
	}
	return text
}

// explain sets the rule and the reason. Most endpoints share the text of the one before.
func (e *evaluation) explain(r *row, rule Rule, source, report string) {
	why := reason{source: source, report: report, status: r.status}
	if r.fails() || r.status == probe.Pending {
		why.detail = r.probe.Detail
	}
	if why != e.lastReason {
		e.lastReason, e.lastText = why, why.String()
	}
	r.result.Source, r.result.Rule, r.result.Reason = source, rule, e.lastText
}

// applyTable decides on each address by its report and its probe status.
func (e *evaluation) applyTable() {
	for i := range e.rows {
		r, out := &e.rows[i], e.rows[i].result
		chosen := table[r.report][r.status]
		out.Address = r.address
		out.Verdict, out.Conditions = r.apply(chosen)
		if r.status == uncorroborated && chosen == asIs {
			out.Rule = RulePanic
		}
		r.setIdentity()
		r.setPorts()
		out.Listed = r.isListed(e.input.Limits.ListUnready)
		if !out.Listed {
			out.Conditions = notReady
		}
	}
}

// apply returns what an action makes of an address.
func (r *row) apply(a action) (Verdict, Conditions) {
	switch a {
	case serve:
		return Serve, ready
	case drain:
		return Drain, draining
	case unready:
		return Unready, notReady
	case remove:
		return Remove, notReady
	case resume:
		if r.current != nil && !r.current.Conditions.inUse() {
			return r.resume()
		}
	}
	return Hold, r.conditions()
}

// resume returns what the last trusted report makes of an endpoint that is not ready and passes.
func (r *row) resume() (Verdict, Conditions) {
	switch r.memory.report {
	case Draining:
		return Hold, draining
	case unlisted: // it was to be removed, and that was not written yet
		return Remove, notReady
	default:
		return Hold, ready
	}
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
	out.Ports, out.Others = r.ports, nil
	switch {
	case r.moves:
		out.Others = []Ports{r.current.Ports}
	case r.newPorts != nil:
		out.Others, r.memory.source = []Ports{*r.newPorts}, out.Source
		out.Source = r.current.sourceName()
	}
}

// isListed reports whether an address belongs into the slices.
func (r *row) isListed(listUnready bool) bool {
	switch r.result.Verdict {
	case Remove:
		return false
	case Unready:
		return r.current != nil && listUnready
	case Serve, Drain:
		return r.current != nil || r.status == probe.Passing || r.status == notProbed
	default:
		return r.current != nil
	}
}

package verdict

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// denyReason says why an address may not be written for a source; empty: it may.
func (l *Allowlist) denyReason(a netip.Addr) string {
	_, denied := l.Denied[a]
	switch always := alwaysDenied(a); {
	case always != "":
		return always
	case denied:
		return "in use in this cluster"
	case !slices.ContainsFunc(l.CIDRs, func(cidr netip.Prefix) bool { return cidr.Contains(a) }):
		return "outside the allowed CIDRs"
	}
	return ""
}

// alwaysDenied says why an address may not be written for any source.
func alwaysDenied(a netip.Addr) string {
	switch {
	case !a.IsValid() || a.Zone() != "" || a.Is4In6():
		return "not in canonical form"
	case a.IsUnspecified():
		return "unspecified address"
	case a.IsLoopback():
		return "loopback address"
	case a.IsLinkLocalUnicast():
		return "link-local address"
	case a.IsMulticast():
		return "multicast address"
	}
	return ""
}

// deniedAddresses is the input guard allowlist. It returns what a source reports or lists and may not be written.
func (e *evaluation) deniedAddresses(source int) []*row {
	denied := filter(e.rows, func(r *row) bool { return e.denyReason(r, source) != "" })
	if len(denied) > 0 {
		example := fmt.Sprintf("%s (%s)", denied[0].address, e.denyReason(denied[0], source))
		e.note(addressesDenied, e.sources[source].Name, len(denied), example)
	}
	return denied
}

// denyReason says why what a source reports or lists may not be written; empty: it may, or there is nothing. The ports of
// a listed address may be unusable, those of a new one may not.
func (e *evaluation) denyReason(r *row, source int) string {
	m, isCurrent := r.members[source], source == r.currentSource
	if m == nil && !isCurrent {
		return ""
	}
	reason := e.sources[source].Allowlist.denyReason(r.address)
	switch {
	case reason != "":
		return reason
	case m != nil && r.current == nil:
		return m.Unusable
	case isCurrent && r.current != nil && r.current.Portless && !e.input.Rejected:
		return "all ports that its slice lists are outside the ports allowed for its source"
	}
	return ""
}

// deny drops what a source reports, and marks what it lists.
func (r *row) deny(source int, reason string) {
	r.members[source] = nil
	if r.deniedBy == noSource || source == r.currentSource {
		r.deniedBy, r.denied = source, reason
	}
}

// isDenied reports whether the allowlist removes a current endpoint: no source may report it.
func (r *row) isDenied() bool {
	return !r.isReported(func(int, *Member) bool { return true }) &&
		(alwaysDenied(r.address) != "" || r.deniedBy != noSource && r.deniedBy == r.currentSource)
}

// isEveryCurrentDenied reports whether the allowlist would empty the Service, which looks like a mistyped setting.
func (e *evaluation) isEveryCurrentDenied() bool {
	return len(e.input.Current) > 0 && !slices.ContainsFunc(e.rows, func(r *row) bool { return r.current != nil && !r.isDenied() })
}

// repeatCurrent decides that nothing is written. Nothing is remembered of such a decision.
func (e *evaluation) repeatCurrent() (Memory, Decision) {
	d, current := &e.decision, filter(e.rows, func(r *row) bool { return r.current != nil })
	endpoints := make([]Endpoint, 0, len(current))
	for _, r := range current {
		r.setCause(disallowed, RuleAllowlist, r.current.sourceName(), cmp.Or(r.denied, alwaysDenied(r.address)))
		r.hold(RuleAllowlist)
		r.result.Held = true
		endpoints = append(endpoints, *r.result)
	}
	d.Endpoints, d.Guards = endpoints, nil
	e.note(allDenied, "", len(endpoints), fmt.Sprintf("%s (%s)", endpoints[0].Address, endpoints[0].Reason.Why))
	e.previous.blindSince = e.memory.blindSince
	return e.previous, *d
}

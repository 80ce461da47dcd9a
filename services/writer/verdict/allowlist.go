package verdict

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// denyReason says why an address may not be written for a source; empty: it may.
func (l *Allowlist) denyReason(a netip.Addr) string {
	if reason := alwaysDenied(a); reason != "" {
		return reason
	}
	if _, denied := l.Denied[a]; denied {
		return "in use in this cluster"
	}
	for _, cidr := range l.CIDRs {
		if cidr.Contains(a) {
			return ""
		}
	}
	return "outside the allowed CIDRs"
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
	default:
		return ""
	}
}

// dropDisallowedAddresses is the input guard allowlist. It drops every member, and marks every current endpoint, that
// may not be written.
func (e *evaluation) dropDisallowedAddresses() (guards []Guard) {
	for j := range e.sources {
		s := &e.sources[j]
		denied, example := 0, ""
		for i := range e.rows {
			r := &e.rows[i]
			if r.members[j] == nil && j != r.currentSource {
				continue
			}
			reason := cmp.Or(s.Allowlist.denyReason(r.address), e.portProblem(r, j))
			if reason == "" {
				continue
			}
			r.members[j] = nil
			if r.deniedBy == noSource || j == r.currentSource {
				r.deniedBy, r.denied = j, reason
			}
			if denied++; denied == 1 {
				example = fmt.Sprintf("%s (%s)", r.address, reason)
			}
		}
		guards = append(guards, Guard{Rule: RuleAllowlist, Source: s.Name, Held: denied, Message: fmt.Sprintf(
			"Source %s: %s not allowed, such as %s.", s.Name, display.Count(denied, "address is", "addresses are"), example)})
	}
	return guards
}

// denyReason says why an address may not be written.
func (e *evaluation) denyReason(r *row) string {
	if r.deniedBy == noSource {
		return alwaysDenied(r.address)
	}
	return r.denied
}

// portProblem says why the ports of an address that is not listed cannot be used, or those of a listed one may not stay;
// empty: they can.
func (e *evaluation) portProblem(r *row, source int) string {
	switch m := r.members[source]; {
	case m != nil && r.current == nil:
		return m.Unusable
	case r.current != nil && r.current.Portless && source == r.currentSource && !e.input.Rejected:
		return "all ports that its slice lists are outside the ports allowed for its source"
	}
	return ""
}

// isDropped reports whether the allowlist removes a current endpoint: no source may report it.
func (r *row) isDropped() bool {
	for _, m := range r.members {
		if m != nil {
			return false
		}
	}
	return alwaysDenied(r.address) != "" || r.deniedBy != noSource && r.deniedBy == r.currentSource
}

// allCurrentDropped reports whether the allowlist would empty the Service, which looks like a mistyped setting.
func (e *evaluation) allCurrentDropped() bool {
	for i := range e.rows {
		if r := &e.rows[i]; r.current != nil && !r.isDropped() {
			return false
		}
	}
	return len(e.input.Current) > 0
}

// repeatCurrent decides that nothing is written. Nothing is remembered of such a decision.
func (e *evaluation) repeatCurrent() (Memory, Decision) {
	d := &e.decision
	d.Endpoints = nil
	example := ""
	for i := range e.rows {
		r, c := &e.rows[i], e.rows[i].current
		if c == nil {
			continue
		}
		if example == "" {
			example = fmt.Sprintf("%s (%s)", r.address, e.denyReason(r))
		}
		d.Endpoints = append(d.Endpoints, Endpoint{
			Address: r.address, Source: c.sourceName(), Zone: c.Zone, Hostname: c.Hostname, Ports: c.Ports, Verdict: Hold,
			Conditions: c.Conditions, Listed: true, Held: true, Rule: RuleAllowlist,
			Reason: "nothing is written: every endpoint of this Service is outside the allowlist",
		})
	}
	d.Guards = []Guard{{Rule: RuleAllowlist, Held: len(d.Endpoints), Message: fmt.Sprintf(
		"No endpoint is allowed, such as %s: nothing is written.", example)}}
	e.previous.blindSince = e.memory.blindSince
	return e.previous, *d
}

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
	return "outside the CIDRs allowed for this source"
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
			reason := cmp.Or(s.Allowlist.denyReason(r.address), r.portProblem(j))
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
			"Source %s reports %s not allowed, for example %s. They are never written. If they are correct, extend this "+
				"writer's allowlist.", s.Name, display.Count(denied, "address that is", "addresses that are"), example)})
	}
	return guards
}

// denyReason says why an address may not be written.
func (e *evaluation) denyReason(r *row) string {
	if r.deniedBy == noSource {
		return cmp.Or(alwaysDenied(r.address), noPorts)
	}
	return cmp.Or(e.sources[r.deniedBy].Allowlist.denyReason(r.address), r.denied)
}

// noPorts is why an endpoint may not stay as it is listed.
const noPorts = "all ports that its slice lists are outside the ports allowed for its source"

// portProblem says why a source's report of an address that is not listed cannot be used, or why what is listed may not
// stay; empty: it can.
func (r *row) portProblem(source int) string {
	switch m := r.members[source]; {
	case m != nil && r.current == nil:
		return m.Unusable
	case m == nil && r.portless != nil:
		return noPorts
	}
	return ""
}

// listed returns what the slices list of an address, whether its ports are allowed or not.
func (r *row) listed() *CurrentEndpoint { return cmp.Or(r.current, r.portless) }

// isDropped reports whether the allowlist removes a current endpoint: no source may report it, or not at the ports that
// it is listed with, and it does not pass at others.
func (r *row) isDropped() bool {
	for _, m := range r.members {
		if m != nil {
			return r.portless != nil && r.status != Passing && r.status != notProbed
		}
	}
	return alwaysDenied(r.address) != "" || r.portless != nil || r.deniedBy != noSource && r.deniedBy == r.currentSource
}

// allCurrentDropped reports whether the allowlist would empty the Service, which looks like a mistyped setting.
func (e *evaluation) allCurrentDropped() bool {
	for i := range e.rows {
		if r := &e.rows[i]; r.listed() != nil && !r.isDropped() {
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
		r, c := &e.rows[i], e.rows[i].listed()
		if c == nil {
			continue
		}
		if example == "" {
			example = fmt.Sprintf("%s: %s", r.address, e.denyReason(r))
		}
		d.Endpoints = append(d.Endpoints, Endpoint{
			Address: r.address, Source: c.sourceName(), Zone: c.Zone, Hostname: c.Hostname, Ports: c.Ports, Verdict: Hold,
			Conditions: c.Conditions, Listed: true, Rule: RuleAllowlist,
			Reason: "nothing is written: every endpoint of this Service is outside the allowlist",
		})
	}
	d.Guards = []Guard{{Rule: RuleAllowlist, Held: len(d.Endpoints), Message: fmt.Sprintf(
		"Every endpoint of this Service is outside the allowlist (%s), which looks like a configuration mistake. "+
			"Nothing is written until the allowed CIDRs are corrected.", example)}}
	e.previous.blindSince = e.memory.blindSince
	return e.previous, *d
}

package verdict

import (
	"fmt"
	"net/netip"
	"slices"
)

// against returns what speaks against writing an address for a source; empty: nothing.
func (f *Fence) against(a netip.Addr) string {
	if cause := never(a); cause != "" {
		return cause
	}
	if len(f.Forbidden) > 0 {
		if _, taken := f.Forbidden[a]; taken {
			return "in use in this cluster"
		}
	}
	for _, cidr := range f.CIDRs {
		if cidr.Contains(a) {
			return ""
		}
	}
	return "outside the CIDRs allowed for this source"
}

// never returns what speaks against writing an address for anybody.
func never(a netip.Addr) string {
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

// fence strikes out every claim, and marks everything held, that may not be written.
func (c *court) fence() {
	held, taken := 0, 0
	for i := range c.subjects {
		s := &c.subjects[i]
		s.cause = never(s.address)
		for j := range c.sources {
			claim := &c.claims[i*len(c.sources)+j]
			if *claim == nil && j != s.label {
				continue
			}
			cause := c.sources[j].Fence.against(s.address)
			if cause == "" {
				continue
			}
			*claim = nil
			c.sources[j].refuse(s.address, cause)
			if s.refused == nobody || j == s.label {
				s.refused, s.cause = j, cause
			}
		}
		if s.held != nil {
			held++
			if c.struck(i) {
				taken++
			}
		}
	}
	c.forbidden = held > 0 && taken == held
}

func (w *witness) refuse(a netip.Addr, cause string) {
	if w.refused == 0 {
		w.example, w.cause = a, cause
	}
	w.refused++
}

// repeat makes the decision what is held already: nothing is to be written.
func (c *court) repeat() {
	d := &c.decision
	d.Endpoints = d.Endpoints[:0]
	for i := range c.subjects {
		s := &c.subjects[i]
		if s.held == nil {
			continue
		}
		d.Endpoints = append(d.Endpoints, Endpoint{
			Address: s.address, Source: labelled(s.held), Zone: s.held.Zone, Verdict: Hold,
			Conditions: s.held.Conditions, Listed: true, Rule: RuleFence,
			Reason: "nothing is written: every endpoint of this Service is outside the allowlist",
		})
	}
	first := &c.subjects[slices.IndexFunc(c.subjects, func(s subject) bool { return s.held != nil })]
	d.Guards = []Guard{{Rule: RuleFence, Held: len(d.Endpoints), Message: fmt.Sprintf(
		"Every endpoint of this Service is outside the allowlist (%s: %s), which looks like a configuration mistake. "+
			"Nothing is written until the allowed CIDRs are corrected.", first.address, first.cause)}}
}

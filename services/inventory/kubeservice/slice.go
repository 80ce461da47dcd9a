package kubeservice

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Bounds of what is taken over; a real API server stays below them.
const (
	maxName = 253
	maxZone = 63
	maxUID  = 128
)

// sliceSummary is what is kept of an EndpointSlice.
type sliceSummary struct {
	ports     []roster.Port // sorted
	endpoints []endpoint    // by key, each once
}

// endpoint is one of a slice. Its key says whose it is: that of the object which it stands
// for, so that the addresses of both families make one member, else its address.
type endpoint struct {
	key, name, uid string
	addr           netip.Addr
	state          roster.State
	zone           string
	problem        string // why it cannot be used; empty: it can
}

func (s sliceSummary) equal(o sliceSummary) bool {
	return slices.Equal(s.ports, o.ports) && slices.Equal(s.endpoints, o.endpoints)
}

// summarizeSlice reduces a slice. It never fails: an endpoint that cannot be read is a bad one.
func summarizeSlice(s *discoveryv1.EndpointSlice) sliceSummary {
	var out sliceSummary
	if s == nil {
		return out
	}
	for _, p := range s.Ports {
		if p.Port == nil || *p.Port < 1 || *p.Port > 65535 {
			continue // a slice without a number means any port
		}
		port := roster.Port{Protocol: string(corev1.ProtocolTCP), Number: uint16(*p.Port)}
		if p.Name != nil {
			port.Name = validOrEmpty(*p.Name, maxZone)
		}
		if p.Protocol != nil {
			port.Protocol = validOrEmpty(string(*p.Protocol), maxZone)
		}
		out.ports = append(out.ports, port)
	}
	slices.SortFunc(out.ports, comparePorts)

	byKey := map[string]endpoint{}
	for i := range s.Endpoints {
		p, ok := readEndpoint(&s.Endpoints[i], s.AddressType)
		if other, twice := byKey[p.key]; !ok || twice && other.state <= p.state {
			continue // nobody's, or listed twice: the better word counts
		}
		byKey[p.key] = p
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		out.endpoints = append(out.endpoints, byKey[key])
	}
	return out
}

// readEndpoint reads an endpoint, and whether it has anything that it can be known by. Of
// several addresses the first counts, as for every consumer of slices.
func readEndpoint(e *discoveryv1.Endpoint, kind discoveryv1.AddressType) (endpoint, bool) {
	p := endpoint{state: endpointState(e.Conditions)}
	text := ""
	if len(e.Addresses) > 0 {
		text = validOrEmpty(e.Addresses[0], maxName)
	}
	addr, err := netip.ParseAddr(text)
	switch {
	case kind == discoveryv1.AddressTypeFQDN:
		p.problem = fmt.Sprintf("The endpoint is the host name %q, not an address: Services follow addresses only.", text)
	case err != nil || addr.Zone() != "":
		p.problem = fmt.Sprintf("The endpoint's address %q is none.", text)
	default:
		p.addr = addr.Unmap()
	}
	p.key, p.name = text, text
	if p.addr.IsValid() {
		p.key, p.name = p.addr.String(), p.addr.String()
	}
	if t := e.TargetRef; t != nil {
		if uid := validOrEmpty(string(t.UID), maxUID); uid != "" {
			// A Pod of a StatefulSet has the name of the one before, and both may be listed.
			name := validOrEmpty(t.Name, maxName)
			p.key, p.uid, p.name = uid, uid, strings.ToValidUTF8(name[:min(len(name), maxName-1-len(uid))], "")+"."+uid
		}
	}
	if e.Zone != nil {
		p.zone = validOrEmpty(*e.Zone, maxZone)
	}
	return p, p.key != ""
}

// endpointState reads the conditions as their API documents them: no word on ready or serving means yes.
func endpointState(c discoveryv1.EndpointConditions) roster.State {
	yes := func(b *bool) bool { return b == nil || *b }
	switch {
	case yes(c.Ready):
		return roster.Ready
	case yes(c.Serving) && c.Terminating != nil && *c.Terminating:
		return roster.Draining
	}
	return roster.NotReady
}

// mergeEndpoints makes one member of an endpoint that several slices list. While they do not agree,
// the better word counts: one of them is a moment behind.
func mergeEndpoints(listed map[string]endpoint) roster.Candidate {
	c := roster.Candidate{State: roster.NotReady}
	var saw []string
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		p := listed[name]
		c.Name, c.UID, c.Zone = p.name, p.uid, cmp.Or(c.Zone, p.zone)
		c.State = min(c.State, p.state)
		if p.problem != "" {
			c.Bad = p.problem
		} else {
			c.InternalIPs = append(c.InternalIPs, p.addr)
		}
		saw = append(saw, fmt.Sprintf("%s (%s, %s)", name, p.addr, p.state))
	}
	slices.SortFunc(c.InternalIPs, netip.Addr.Compare)
	c.InternalIPs = slices.Compact(c.InternalIPs)
	c.Trail = []roster.Step{
		{Stage: roster.StageSource, Question: "Which EndpointSlices list it?", Result: roster.Passed, Saw: strings.Join(saw, ", ")},
		{Stage: roster.StageState, Question: "So its state is", Saw: c.State.String()},
	}
	return c
}

func equalCandidates(a, b roster.Candidate) bool {
	return a.Name == b.Name && a.UID == b.UID && a.State == b.State && a.Zone == b.Zone && a.Bad == b.Bad &&
		slices.Equal(a.InternalIPs, b.InternalIPs) && slices.Equal(a.Trail, b.Trail)
}

func comparePorts(a, b roster.Port) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Name, b.Name))
}

// validOrEmpty returns s, or nothing when it is too long or no text.
func validOrEmpty(s string, most int) string {
	if len(s) > most || !utf8.ValidString(s) {
		return ""
	}
	return s
}

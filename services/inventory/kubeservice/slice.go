package kubeservice

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
)

// sliceSummary is what is kept of an EndpointSlice.
type sliceSummary struct {
	ports     []contract.Port // sorted, valid
	endpoints []endpoint      // sorted by name, without duplicates
}

// endpoint is one endpoint of a slice. Its address is its name, and identifies it: one object can have several
// addresses of a family, and what a slice says about the object can change. It is the text of an invalid address.
type endpoint struct {
	name, uid, target string // target is the object that it refers to, usually a Pod, and uid is its UID
	addr              netip.Addr
	state             roster.NodeState
	zone, hostname    string
	problem           string // why it is invalid; empty: it is valid
}

func (s sliceSummary) equal(o sliceSummary) bool {
	return slices.Equal(s.ports, o.ports) && slices.Equal(s.endpoints, o.endpoints)
}

// summarizeSlice never fails: endpoints that cannot be parsed are marked as invalid.
func summarizeSlice(s *discoveryv1.EndpointSlice) sliceSummary {
	var summary sliceSummary
	if s == nil {
		return summary
	}
	for _, p := range s.Ports {
		if p.Port == nil || *p.Port < 1 || *p.Port > 65535 {
			continue // a port without a number means any port
		}
		port := contract.Port{
			Name: ptr.Deref(p.Name, ""), Protocol: string(ptr.Deref(p.Protocol, corev1.ProtocolTCP)), Number: uint16(*p.Port),
		}
		if port.IsValid() {
			summary.ports = append(summary.ports, port)
		}
	}
	slices.SortFunc(summary.ports, comparePorts)

	byName := map[string]endpoint{}
	for i := range s.Endpoints {
		p := readEndpoint(&s.Endpoints[i], s.AddressType)
		if other, isDuplicate := byName[p.name]; p.name == "" || isDuplicate && other.state <= p.state {
			continue // without an address, or a duplicate: the better state counts
		}
		byName[p.name] = p
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		summary.endpoints = append(summary.endpoints, byName[name])
	}
	return summary
}

// readEndpoint reads an endpoint. Of several addresses it uses the first: they are interchangeable, and all
// consumers do so (https://issue.k8s.io/106267).
func readEndpoint(e *discoveryv1.Endpoint, kind discoveryv1.AddressType) endpoint {
	p := endpoint{state: endpointState(e.Conditions)}
	text := ""
	if len(e.Addresses) > 0 {
		text = roster.KeepValid(e.Addresses[0], contract.MaxNameLength)
	}
	addr, err := netip.ParseAddr(text)
	switch {
	case kind == discoveryv1.AddressTypeFQDN:
		p.problem = fmt.Sprintf("it is the host name %q, not an IP address", text)
	case err != nil || addr.Zone() != "":
		p.problem = fmt.Sprintf("its address %q is not an IP address", text)
	default:
		p.addr = addr.Unmap()
	}
	p.name = text
	if p.addr.IsValid() {
		p.name = p.addr.String()
	}
	if t := e.TargetRef; t != nil {
		p.uid, p.target = roster.KeepValid(string(t.UID), contract.MaxUIDLength), roster.KeepValid(t.Name, contract.MaxNameLength)
	}
	if e.Zone != nil {
		p.zone = roster.KeepValid(*e.Zone, contract.MaxLabelValueLength)
	}
	if e.Hostname != nil && contract.IsHostname(*e.Hostname) {
		p.hostname = *e.Hostname
	}
	return p
}

// endpointState applies the API's defaults: ready and serving are true if they are not set.
func endpointState(c discoveryv1.EndpointConditions) roster.NodeState {
	isTrue := func(b *bool) bool { return b == nil || *b }
	switch {
	case isTrue(c.Ready):
		return roster.Ready
	case isTrue(c.Serving) && c.Terminating != nil && *c.Terminating:
		return roster.Draining
	}
	return roster.NotReady
}

// mergeEndpoints returns one member for an address that several slices list, or one slice for several objects. The
// one in the best state counts: the others are not up to date. Its ports are those of all of them.
func mergeEndpoints(listed map[string]endpoint, slicesByName map[string]sliceSummary) (c roster.Node) {
	var details []string
	for _, name := range slices.SortedFunc(maps.Keys(listed), func(a, b string) int {
		return cmp.Or(cmp.Compare(listed[a].state, listed[b].state), cmp.Compare(a, b))
	}) {
		p := listed[name]
		c.Name, c.UID, c.Zone, c.Hostname = p.name, cmp.Or(c.UID, p.uid), cmp.Or(c.Zone, p.zone), cmp.Or(c.Hostname, p.hostname)
		c.State = cmp.Or(c.State, p.state)
		c.Invalid = cmp.Or(c.Invalid, p.problem)
		if p.problem == "" {
			c.InternalIPs = []netip.Addr{p.addr}
		}
		c.Ports = append(c.Ports, slicesByName[name].ports...)
		details = append(details, fmt.Sprintf("%s in EndpointSlice %s as %s", p.state, name, cmp.Or(p.target, "an address")))
	}
	slices.SortFunc(c.Ports, comparePorts)
	c.Ports = slices.Compact(c.Ports)
	c.Ports = c.Ports[:min(len(c.Ports), contract.MaxPorts)]
	if c.InternalIPs != nil {
		c.Invalid = ""
	}
	c.StateReason = display.List(details)
	return c
}

func comparePorts(a, b contract.Port) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Name, b.Name))
}

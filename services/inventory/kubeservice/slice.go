package kubeservice

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// Limits of what is copied from a slice; a real API server stays below them.
const (
	maxName = 253
	maxZone = 63
	maxUID  = 128
)

// sliceSummary is what is kept of an EndpointSlice.
type sliceSummary struct {
	ports     []contract.Port // sorted, valid
	endpoints []endpoint      // sorted by key, without duplicates
}

// endpoint is one endpoint of a slice. Its key identifies the member: the UID of the object that
// the endpoint refers to, so that the addresses of both families make one member, or else its
// address.
type endpoint struct {
	key, name, uid string
	addr           netip.Addr
	state          source.NodeState
	zone, hostname string
	problem        string // why it is invalid; empty: it is valid
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

	byKey := map[string]endpoint{}
	for i := range s.Endpoints {
		p, ok := readEndpoint(&s.Endpoints[i], s.AddressType)
		if other, isDuplicate := byKey[p.key]; !ok || isDuplicate && other.state <= p.state {
			continue // without a key, or a duplicate: the better state counts
		}
		byKey[p.key] = p
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		summary.endpoints = append(summary.endpoints, byKey[key])
	}
	return summary
}

// readEndpoint returns an endpoint, and whether it has a key. Of several addresses it uses the
// first: they are interchangeable, and all consumers do so (https://issue.k8s.io/106267).
func readEndpoint(e *discoveryv1.Endpoint, kind discoveryv1.AddressType) (endpoint, bool) {
	p := endpoint{state: endpointState(e.Conditions)}
	text := ""
	if len(e.Addresses) > 0 {
		text = source.KeepValid(e.Addresses[0], maxName)
	}
	addr, err := netip.ParseAddr(text)
	switch {
	case kind == discoveryv1.AddressTypeFQDN:
		p.problem = fmt.Sprintf("The endpoint is the host name %q. Use a Service whose endpoints are IP addresses.", text)
	case err != nil || addr.Zone() != "":
		p.problem = fmt.Sprintf("The endpoint's address %q is not an IP address. Check the controller that writes the EndpointSlice.", text)
	default:
		p.addr = addr.Unmap()
	}
	p.key, p.name = text, text
	if p.addr.IsValid() {
		p.key, p.name = p.addr.String(), p.addr.String()
	}
	if t := e.TargetRef; t != nil {
		if uid := source.KeepValid(string(t.UID), maxUID); uid != "" {
			// A recreated Pod of a StatefulSet has the same name, and both may be listed: the UID
			// makes the names differ.
			name := source.KeepValid(t.Name, maxName)
			p.key, p.uid, p.name = uid, uid, strings.ToValidUTF8(name[:min(len(name), maxName-1-len(uid))], "")+"."+uid
		}
	}
	if e.Zone != nil {
		p.zone = source.KeepValid(*e.Zone, maxZone)
	}
	if e.Hostname != nil && contract.IsHostname(*e.Hostname) {
		p.hostname = *e.Hostname
	}
	return p, p.key != ""
}

// endpointState applies the API's defaults: ready and serving are true if they are not set.
func endpointState(c discoveryv1.EndpointConditions) source.NodeState {
	isTrue := func(b *bool) bool { return b == nil || *b }
	switch {
	case isTrue(c.Ready):
		return source.Ready
	case isTrue(c.Serving) && c.Terminating != nil && *c.Terminating:
		return source.Draining
	}
	return source.NotReady
}

// mergeEndpoints returns one member for an endpoint that several slices list. While their states
// differ, the better one counts: one of the slices is not up to date. Its ports are those of all of them.
func mergeEndpoints(listed map[string]endpoint, slicesByName map[string]sliceSummary) source.Candidate {
	c := source.Candidate{State: source.NotReady}
	var details []string
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		p := listed[name]
		c.Name, c.UID, c.Zone, c.Hostname = p.name, p.uid, cmp.Or(c.Zone, p.zone), cmp.Or(c.Hostname, p.hostname)
		c.State = min(c.State, p.state)
		if p.problem != "" {
			c.Invalid = p.problem
		} else {
			c.InternalIPs = append(c.InternalIPs, p.addr)
		}
		ports := slicesByName[name].ports
		c.Ports = append(c.Ports, ports...)
		details = append(details, fmt.Sprintf("%s (%s, %s, ports %v)", name, p.addr, p.state, ports))
	}
	slices.SortFunc(c.Ports, comparePorts)
	c.Ports = slices.Compact(c.Ports)
	c.Ports = c.Ports[:min(len(c.Ports), contract.MaxPorts)]
	slices.SortFunc(c.InternalIPs, netip.Addr.Compare)
	c.InternalIPs = slices.Compact(c.InternalIPs)
	c.Steps = []source.Step{
		{Stage: source.StageSource, Question: "Which EndpointSlices list it?", Result: source.Passed, Detail: strings.Join(details, ", ")},
		{Stage: source.StageState, Question: "Resulting state", Detail: c.State.String()},
	}
	return c
}

func comparePorts(a, b contract.Port) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Name, b.Name))
}

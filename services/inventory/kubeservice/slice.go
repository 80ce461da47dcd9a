package kubeservice

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// readSlice returns the members that a slice lists, sorted by name and without duplicates: of those, the better state
// counts. It never fails: endpoints that cannot be parsed are invalid members.
func readSlice(s *discoveryv1.EndpointSlice) []roster.Node {
	ports := validPorts(s.Ports)
	byName := map[string]roster.Node{}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		c := readEndpoint(e, s.AddressType)
		if other, isDuplicate := byName[c.Name]; c.Name == "" || isDuplicate && other.State <= c.State {
			continue
		}
		object := cmp.Or(roster.KeepValid(ptr.Deref(e.TargetRef, corev1.ObjectReference{}).Name, contract.MaxNameLength), "an address")
		c.Ports, c.StateReason = ports, fmt.Sprintf("%s in EndpointSlice %s as %s", c.State, s.Name, object)
		byName[c.Name] = c
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b roster.Node) int { return cmp.Compare(a.Name, b.Name) })
}

func equalMembers(a, b []roster.Node) bool {
	return slices.EqualFunc(a, b, roster.Node.Equal)
}

// validPorts returns the ports that have a number, sorted: one without means any port.
func validPorts(all []discoveryv1.EndpointPort) (ports []contract.Port) {
	for _, p := range all {
		number := ptr.Deref(p.Port, 0)
		port := contract.Port{
			Name: ptr.Deref(p.Name, ""), Protocol: string(ptr.Deref(p.Protocol, corev1.ProtocolTCP)), Number: uint16(number),
		}
		if int32(port.Number) == number && port.IsValid() {
			ports = append(ports, port)
		}
	}
	slices.SortFunc(ports, comparePorts)
	return ports
}

// readEndpoint reads an endpoint. Of several addresses it uses the first: they are interchangeable, and all
// consumers do so (https://issue.k8s.io/106267). The address is the member's name, and identifies it: one object can
// have several addresses of a family, and what a slice says about the object can change. An invalid one is named by
// its text.
func readEndpoint(e *discoveryv1.Endpoint, kind discoveryv1.AddressType) roster.Node {
	c := roster.Node{
		UID:   roster.KeepValid(string(ptr.Deref(e.TargetRef, corev1.ObjectReference{}).UID), contract.MaxUIDLength),
		State: endpointState(e.Conditions), Zone: roster.KeepValid(ptr.Deref(e.Zone, ""), contract.MaxLabelValueLength),
	}
	if hostname := ptr.Deref(e.Hostname, ""); contract.IsHostname(hostname) {
		c.Hostname = hostname
	}
	if len(e.Addresses) > 0 {
		c.Name = roster.KeepValid(e.Addresses[0], contract.MaxNameLength)
	}
	addr, err := netip.ParseAddr(c.Name)
	switch {
	case kind == discoveryv1.AddressTypeFQDN:
		c.Invalid = fmt.Sprintf("it is the host name %q, not an IP address", c.Name)
	case err != nil || addr.Zone() != "":
		c.Invalid = fmt.Sprintf("its address %q is not an IP address", c.Name)
	default:
		addr = addr.Unmap()
		c.Name, c.InternalIPs = addr.String(), []netip.Addr{addr}
	}
	return c
}

// endpointState applies the API's defaults: ready and serving are true if they are not set.
func endpointState(c discoveryv1.EndpointConditions) roster.NodeState {
	switch {
	case ptr.Deref(c.Ready, true):
		return roster.Ready
	case ptr.Deref(c.Serving, true) && ptr.Deref(c.Terminating, false):
		return roster.Draining
	}
	return roster.NotReady
}

// mergeMembers returns one member for an address that several slices list, or that several objects have. The
// one in the best state counts: the others are not up to date. Its ports are those of all of them.
func mergeMembers(all []roster.Node) roster.Node {
	slices.SortFunc(all, func(a, b roster.Node) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.StateReason, b.StateReason))
	})
	merged := all[0]
	var ports []contract.Port
	var reasons []string
	for _, c := range all {
		merged.UID, merged.Zone, merged.Hostname = cmp.Or(
			merged.UID,
			c.UID,
		), cmp.Or(
			merged.Zone,
			c.Zone,
		), cmp.Or(
			merged.Hostname,
			c.Hostname,
		)
		if c.Invalid == "" {
			merged.Invalid, merged.InternalIPs = "", c.InternalIPs
		}
		ports, reasons = append(ports, c.Ports...), append(reasons, c.StateReason)
	}
	slices.SortFunc(ports, comparePorts)
	ports = slices.Compact(ports)
	merged.Ports = ports[:min(len(ports), contract.MaxPorts)]
	merged.StateReason = display.List(reasons)
	return merged
}

func comparePorts(a, b contract.Port) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Name, b.Name))
}

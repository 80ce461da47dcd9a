package attack

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rules are what a policy has been told to allow. They know docs/design/policy.md, and nothing of the policy's expressions.
type rules struct {
	namespaces []string
	managers   []string // values of endpointslice.kubernetes.io/managed-by
	cidrs      []netip.Prefix
	ports      [][2]int32 // ranges, both ends included
	tcpPorts   [][2]int32 // for TCP alone
}

// forbids says why the policy has to refuse a change, or nothing. A slice that is made has no
// before, one that is deleted no after.
func (r rules) forbids(before, after *discoveryv1.EndpointSlice) []string {
	var why []string
	say := func(format string, values ...any) { why = append(why, fmt.Sprintf(format, values...)) }
	for _, slice := range []*discoveryv1.EndpointSlice{before, after} {
		if slice == nil {
			continue
		}
		if !slices.Contains(r.namespaces, slice.Namespace) {
			say("namespace %s", slice.Namespace)
		}
		if by := slice.Labels[discoveryv1.LabelManagedBy]; by == "" || !slices.Contains(r.managers, by) {
			say("managed by %q", by)
		}
	}
	if after == nil {
		return why
	}
	if after.Labels[discoveryv1.LabelServiceName] == "kubernetes" {
		say("a Service named kubernetes")
	}
	why = append(why, beyondTheWriter(before, after)...)
	if after.AddressType != discoveryv1.AddressTypeIPv4 && after.AddressType != discoveryv1.AddressTypeIPv6 {
		say("addresses of type %s", after.AddressType)
	}
	for _, e := range after.Endpoints {
		for _, a := range e.Addresses {
			if !r.within(a) {
				say("address %q", a)
			}
		}
	}
	for _, p := range after.Ports {
		switch {
		case p.Port == nil:
			say("a port without a number")
		case !slices.ContainsFunc(r.portsFor(p.Protocol), func(of [2]int32) bool { return of[0] <= *p.Port && *p.Port <= of[1] }):
			say("port %d", *p.Port)
		}
	}
	var were metav1.ObjectMeta
	if before != nil {
		were = before.ObjectMeta
	}
	return append(why, newDependents(were, after.ObjectMeta)...)
}

// newDependents returns the added owners and finalizers that the policy must deny.
func newDependents(before, after metav1.ObjectMeta) (why []string) {
	for _, o := range after.OwnerReferences {
		existed := slices.ContainsFunc(before.OwnerReferences, func(old metav1.OwnerReference) bool { return reflect.DeepEqual(o, old) })
		if !existed && (o.APIVersion != "v1" || o.Kind != "Service" || o.BlockOwnerDeletion != nil) {
			why = append(why, fmt.Sprintf("owner %s %s", o.APIVersion, o.Kind))
		}
	}
	for _, f := range after.Finalizers {
		if !slices.Contains(before.Finalizers, f) {
			why = append(why, "finalizer "+f)
		}
	}
	return why
}

func (r rules) portsFor(protocol *corev1.Protocol) [][2]int32 {
	if protocol == nil || *protocol == corev1.ProtocolTCP {
		return slices.Concat(r.ports, r.tcpPorts)
	}
	return r.ports
}

// Sizes that the policy allows. It counts characters of a text that it makes of the object; what is drawn is so far
// from these numbers that it does not matter how.
const (
	maxEndpoints = 100
	maxZone      = 63
	maxMetadata  = 20 << 10
)

// beyondTheWriter says what of a slice no writer ever writes: all that only fills etcd, or that has another meaning
// than an address.
func beyondTheWriter(before, after *discoveryv1.EndpointSlice) (why []string) {
	if n := len(after.Endpoints); n > maxEndpoints && (before == nil || n > len(before.Endpoints)) {
		why = append(why, fmt.Sprintf("%d endpoints", n))
	}
	for _, e := range after.Endpoints {
		plain := discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, Zone: e.Zone, Hostname: e.Hostname}
		if len(e.Addresses) != 1 || e.Zone != nil && len(*e.Zone) > maxZone || !reflect.DeepEqual(e, plain) {
			why = append(why, "an endpoint with more than an address, conditions, a zone and a hostname")
		}
	}
	size := 0
	for key, value := range after.Labels {
		size += len(key) + len(value)
	}
	if before == nil || !reflect.DeepEqual(before.Annotations, after.Annotations) {
		for key, value := range after.Annotations {
			size += len(key) + len(value)
		}
	}
	for _, m := range after.ManagedFields {
		size += m.Size()
	}
	if size > maxMetadata {
		why = append(why, fmt.Sprintf("metadata of %d bytes", size))
	}
	return why
}

// within takes an address in its plain form alone: what programs read in different ways, such as
// zeros in front, is nobody's.
func (r rules) within(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && !a.Is4In6() && a.Zone() == "" &&
		slices.ContainsFunc(r.cidrs, func(p netip.Prefix) bool { return p.Contains(a) })
}

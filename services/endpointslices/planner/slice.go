package planner

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// renderSlice returns the object to write. If only metadata differs, endpoints and ports stay exactly as
// they are; otherwise every endpoint is written with all fields.
func (d Desired) renderSlice(s *plannedSlice, set *desiredSet) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		TypeMeta:    s.base.TypeMeta,
		ObjectMeta:  *s.base.ObjectMeta.DeepCopy(),
		AddressType: s.base.AddressType,
	}
	// The API server keeps managed fields that an update does not have.
	out.ManagedFields = nil
	unchanged, portsUnchanged := s.endpointsUnchanged(set), PortsEqual(s.base.Ports, set.portLists[s.group.portList])
	d.annotate(out, !unchanged || !portsUnchanged)
	out.Labels = d.sliceLabels(s)
	out.OwnerReferences = d.sliceOwners(out.OwnerReferences)

	if portsUnchanged {
		out.Ports = copyPorts(s.base.Ports)
	} else {
		out.Ports = copyPorts(set.portLists[s.group.portList])
	}
	if unchanged {
		out.Endpoints = make([]discoveryv1.Endpoint, len(s.base.Endpoints))
		for i := range s.base.Endpoints {
			s.base.Endpoints[i].DeepCopyInto(&out.Endpoints[i])
		}
		return out
	}
	out.Endpoints = make([]discoveryv1.Endpoint, 0, s.endpointCount())
	for _, k := range s.kept {
		out.Endpoints = append(out.Endpoints, toAPI(&set.endpoints[k.desiredIndex]))
	}
	for _, index := range s.added {
		out.Endpoints = append(out.Endpoints, toAPI(&set.endpoints[index]))
	}
	return out
}

func (s *plannedSlice) endpointsUnchanged(set *desiredSet) bool {
	if len(s.added) > 0 || len(s.kept) != len(s.base.Endpoints) {
		return false
	}
	for _, k := range s.kept {
		if !endpointEqual(&s.base.Endpoints[k.baseIndex], &set.endpoints[k.desiredIndex]) {
			return false
		}
	}
	return true
}

// annotate sets the slice's annotations. A time of the last change that another writer left would never be updated.
func (d Desired) annotate(slice *discoveryv1.EndpointSlice, changed bool) {
	if slice.Annotations == nil {
		slice.Annotations = make(map[string]string, len(d.Annotations)+1)
	}
	maps.Copy(slice.Annotations, d.Annotations)
	if d.TriggerTime.IsZero() {
		delete(slice.Annotations, corev1.EndpointsLastChangeTriggerTime)
	} else if changed {
		slice.Annotations[corev1.EndpointsLastChangeTriggerTime] = d.TriggerTime.UTC().Format(time.RFC3339Nano)
	}
	if len(slice.Annotations) == 0 {
		slice.Annotations = nil
	}
}

// sliceLabels returns the labels that the slice should have.
func (d Desired) sliceLabels(s *plannedSlice) map[string]string {
	labels := make(map[string]string, len(d.Labels)+len(d.InstanceLabels)+len(d.GroupLabels)+3)
	maps.Copy(labels, d.Labels)
	if d.Headless {
		labels[corev1.IsHeadlessService] = ""
	}
	delete(labels, discoveryv1.LabelServiceName)
	labels[d.nameLabel()] = d.Service
	labels[d.managedByLabel()] = d.ManagedBy
	for _, label := range d.GroupLabels {
		labels[label] = s.group.name
	}
	maps.Copy(labels, d.InstanceLabels)
	return labels
}

func (d Desired) metadataEqual(s *plannedSlice) bool {
	_, stale := s.base.Annotations[corev1.EndpointsLastChangeTriggerTime]
	return (!stale || !d.TriggerTime.IsZero()) && containsAll(s.base.Annotations, d.Annotations) &&
		maps.Equal(s.base.Labels, d.sliceLabels(s)) && d.hasSliceOwners(s.base.OwnerReferences)
}

// containsAll reports whether labels or annotations are among others.
func containsAll(all, some map[string]string) bool {
	for key, value := range some {
		if found, ok := all[key]; !ok || found != value {
			return false
		}
	}
	return true
}

// hasSliceOwners reports whether Owner is the only one of OwnerKinds among the owners. Another one may be an earlier one
// of the same name.
func (d Desired) hasSliceOwners(current []metav1.OwnerReference) bool {
	isOwner := func(owner metav1.OwnerReference) bool {
		return owner.UID == d.Owner.UID && owner.Name == d.Owner.Name &&
			owner.Kind == d.Owner.Kind && owner.APIVersion == d.Owner.APIVersion
	}
	return d.Owner.UID == "" || slices.ContainsFunc(current, isOwner) &&
		!slices.ContainsFunc(current, func(owner metav1.OwnerReference) bool { return d.isOwnerKind(owner) && !isOwner(owner) })
}

// sliceOwners returns the owner references to write: Owner is the only one of its kinds, and owners of other kinds stay.
func (d Desired) sliceOwners(current []metav1.OwnerReference) []metav1.OwnerReference {
	if d.hasSliceOwners(current) {
		return current
	}
	owners := slices.DeleteFunc(slices.Clone(current), d.isOwnerKind)
	return append(owners, *d.Owner.DeepCopy())
}

// FamilyOf returns the address type of the slices for an address.
func FamilyOf(addr netip.Addr) discoveryv1.AddressType {
	if addr.Is4() {
		return discoveryv1.AddressTypeIPv4
	}
	return discoveryv1.AddressTypeIPv6
}

// address is what an endpoint is known by: an IP address or a DNS name.
type address struct {
	ip   netip.Addr
	fqdn string
}

func (e Endpoint) key() address { return address{e.Address, e.FQDN} }

// firstAddress returns the first address of a slice's endpoint, the only one that consumers use.
func firstAddress(slice *discoveryv1.EndpointSlice, i int) (address, bool) {
	all := slice.Endpoints[i].Addresses
	if len(all) == 0 {
		return address{}, false
	}
	if slice.AddressType == discoveryv1.AddressTypeFQDN {
		return address{fqdn: all[0]}, true
	}
	ip, err := netip.ParseAddr(all[0])
	return address{ip: ip.Unmap()}, err == nil
}

func fromAPI(addr address, e *discoveryv1.Endpoint, group string) Endpoint {
	return Endpoint{
		Address: addr.ip, FQDN: addr.fqdn,
		Ready:       ptr.Deref(e.Conditions.Ready, true),
		Serving:     ptr.Deref(e.Conditions.Serving, true),
		Terminating: ptr.Deref(e.Conditions.Terminating, false),
		Zone:        ptr.Deref(e.Zone, ""),
		Hostname:    ptr.Deref(e.Hostname, ""),
		Hints:       e.Hints.DeepCopy(),
		NodeName:    ptr.Deref(e.NodeName, ""),
		TargetRef:   e.TargetRef.DeepCopy(),
		Group:       group,
	}
}

// toAPI converts an endpoint with all three conditions set, since some consumers do not handle nil.
func toAPI(e *Endpoint) discoveryv1.Endpoint {
	conditions := [3]bool{e.Ready, e.Serving, e.Terminating}
	out := discoveryv1.Endpoint{
		Addresses: []string{e.FQDN},
		Conditions: discoveryv1.EndpointConditions{
			Ready: &conditions[0], Serving: &conditions[1], Terminating: &conditions[2],
		},
	}
	if e.FQDN == "" {
		out.Addresses[0] = e.Address.String()
	}
	out.Zone, out.Hostname, out.NodeName = optional(e.Zone), optional(e.Hostname), optional(e.NodeName)
	out.TargetRef = e.TargetRef.DeepCopy()
	if !hintsEqual(e.Hints, nil) {
		out.Hints = e.Hints.DeepCopy()
	}
	return out
}

// endpointEqual compares by meaning: nil conditions have the API's defaults, and the order of hints is of no
// importance. A field that the planner never writes makes a difference.
func endpointEqual(current *discoveryv1.Endpoint, desired *Endpoint) bool {
	return len(current.Addresses) == 1 &&
		ptr.Deref(current.Conditions.Ready, true) == desired.Ready &&
		ptr.Deref(current.Conditions.Serving, true) == desired.Serving &&
		ptr.Deref(current.Conditions.Terminating, false) == desired.Terminating &&
		ptr.Deref(current.Zone, "") == desired.Zone && ptr.Deref(current.Hostname, "") == desired.Hostname &&
		hintsEqual(current.Hints, desired.Hints) && (current.Hints == nil || !hintsEqual(current.Hints, nil)) &&
		ptr.Deref(current.NodeName, "") == desired.NodeName && ptr.Equal(current.TargetRef, desired.TargetRef) &&
		len(current.DeprecatedTopology) == 0
}

// hintsEqual ignores order. Hints without any zone or node are as none.
func hintsEqual(a, b *discoveryv1.EndpointHints) bool {
	var none discoveryv1.EndpointHints
	if a == nil {
		a = &none
	}
	if b == nil {
		b = &none
	}
	return equalInAnyOrder(a.ForZones, b.ForZones) && equalInAnyOrder(a.ForNodes, b.ForNodes)
}

// equalInAnyOrder compares lists in which the API server accepts nothing twice.
func equalInAnyOrder[T comparable](a, b []T) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(e T) bool { return !slices.Contains(b, e) })
}

// PortsEqual reports whether ports mean the same: their order is of no importance, and neither is whether defaults are set.
func PortsEqual(a, b []discoveryv1.EndpointPort) bool {
	if len(a) != len(b) {
		return false
	}
	count := make(map[portKey]int, len(a))
	for _, port := range a {
		count[portKeyOf(port)]++
	}
	for _, port := range b {
		key := portKeyOf(port)
		if count[key] == 0 {
			return false
		}
		count[key]--
	}
	return true
}

type portKey struct {
	name, app string
	protocol  corev1.Protocol
	number    int32 // 0: all ports
}

func portKeyOf(p discoveryv1.EndpointPort) portKey {
	key := portKey{name: ptr.Deref(p.Name, ""), app: ptr.Deref(p.AppProtocol, ""), protocol: corev1.ProtocolTCP}
	if p.Protocol != nil {
		key.protocol = *p.Protocol
	}
	if p.Port != nil {
		key.number = *p.Port
	}
	return key
}

func copyPorts(ports []discoveryv1.EndpointPort) []discoveryv1.EndpointPort {
	out := make([]discoveryv1.EndpointPort, len(ports))
	for i := range ports {
		ports[i].DeepCopyInto(&out[i])
	}
	return out
}

// optional returns a copy of a string that is not empty; nil: none.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

package planner

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// kube-proxy measures its delay from this time of the last change. A value that another writer left
	// would never be updated.
	delete(out.Annotations, corev1.EndpointsLastChangeTriggerTime)
	out.Labels = d.sliceLabels(s)
	out.OwnerReferences = d.sliceOwners(out.OwnerReferences)

	if ports := set.portLists[s.group.portList]; PortsEqual(s.base.Ports, ports) {
		out.Ports = copyPorts(s.base.Ports)
	} else {
		out.Ports = copyPorts(ports)
	}
	if s.endpointsUnchanged(set) {
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

// sliceLabels returns the labels that the slice should have.
func (d Desired) sliceLabels(s *plannedSlice) map[string]string {
	labels := make(map[string]string, len(d.Labels)+6)
	maps.Copy(labels, d.Labels)
	if d.Headless {
		labels[corev1.IsHeadlessService] = ""
	}
	delete(labels, discoveryv1.LabelServiceName)
	labels[d.nameLabel()] = d.Service
	if d.Owner.Kind == KindServiceImport {
		labels[LabelSourceCluster] = s.group.source
	}
	labels[discoveryv1.LabelManagedBy] = d.ManagedBy
	labels[LabelSource] = s.group.source
	if writer := cmp.Or(d.Writer, s.base.Labels[LabelWriter]); writer != "" {
		labels[LabelWriter] = writer
	} else {
		delete(labels, LabelWriter)
	}
	return labels
}

func (d Desired) metadataEqual(s *plannedSlice) bool {
	_, stale := s.base.Annotations[corev1.EndpointsLastChangeTriggerTime]
	return !stale && maps.Equal(s.base.Labels, d.sliceLabels(s)) && d.hasSliceOwners(s.base.OwnerReferences)
}

// hasSliceOwners reports whether this Service is the only Service or ServiceImport among the owners. Another one may
// be an earlier one of the same name.
func (d Desired) hasSliceOwners(current []metav1.OwnerReference) bool {
	isOwner := func(owner metav1.OwnerReference) bool {
		return owner.UID == d.Owner.UID && owner.Name == d.Owner.Name &&
			owner.Kind == d.Owner.Kind && owner.APIVersion == d.Owner.APIVersion
	}
	return d.Owner.UID == "" || slices.ContainsFunc(current, isOwner) &&
		!slices.ContainsFunc(current, func(owner metav1.OwnerReference) bool { return IsTarget(owner) && !isOwner(owner) })
}

// sliceOwners returns the owner references to write: this Service is the only Service, and owners of other
// kinds stay.
func (d Desired) sliceOwners(current []metav1.OwnerReference) []metav1.OwnerReference {
	if d.hasSliceOwners(current) {
		return current
	}
	owners := slices.DeleteFunc(slices.Clone(current), IsTarget)
	return append(owners, *d.Owner.DeepCopy())
}

// IsTarget reports whether an owner is a Service or a ServiceImport, of any version.
func IsTarget(owner metav1.OwnerReference) bool {
	return owner.Kind == "Service" && owner.APIVersion == "v1" ||
		owner.Kind == KindServiceImport && strings.HasPrefix(owner.APIVersion, GroupServiceImport+"/")
}

// SourceOf returns the source of a slice's endpoints.
func SourceOf(slice *discoveryv1.EndpointSlice) string {
	if source := slice.Labels[LabelSource]; source != "" {
		return source
	}
	return DefaultSource
}

// FamilyOf returns the address type of the slices for an address.
func FamilyOf(addr netip.Addr) discoveryv1.AddressType {
	if addr.Is4() {
		return discoveryv1.AddressTypeIPv4
	}
	return discoveryv1.AddressTypeIPv6
}

// firstAddress returns the endpoint's first address, the only one that consumers use.
func firstAddress(e *discoveryv1.Endpoint) (netip.Addr, bool) {
	if len(e.Addresses) == 0 {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(e.Addresses[0])
	return addr.Unmap(), err == nil
}

func fromAPI(addr netip.Addr, e *discoveryv1.Endpoint, source string) Endpoint {
	return Endpoint{
		Address:     addr,
		Ready:       *valueOrTrue(e.Conditions.Ready),
		Serving:     *valueOrTrue(e.Conditions.Serving),
		Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
		Zone:        deref(e.Zone),
		Hostname:    deref(e.Hostname),
		Hints:       e.Hints.DeepCopy(),
		Source:      source,
	}
}

// toAPI converts an endpoint with all three conditions set, since some consumers do not handle nil.
func toAPI(e *Endpoint) discoveryv1.Endpoint {
	conditions := [3]bool{e.Ready, e.Serving, e.Terminating}
	out := discoveryv1.Endpoint{
		Addresses: []string{e.Address.String()},
		Conditions: discoveryv1.EndpointConditions{
			Ready: &conditions[0], Serving: &conditions[1], Terminating: &conditions[2],
		},
	}
	if e.Zone != "" {
		zone := e.Zone
		out.Zone = &zone
	}
	if e.Hostname != "" {
		hostname := e.Hostname
		out.Hostname = &hostname
	}
	if !hintsEqual(e.Hints, nil) {
		out.Hints = e.Hints.DeepCopy()
	}
	return out
}

// endpointEqual compares by meaning: nil conditions have the API's defaults, and the order of hints is of no
// importance. A field that the planner never writes makes a difference.
func endpointEqual(current *discoveryv1.Endpoint, desired *Endpoint) bool {
	return len(current.Addresses) == 1 &&
		*valueOrTrue(current.Conditions.Ready) == desired.Ready &&
		*valueOrTrue(current.Conditions.Serving) == desired.Serving &&
		(current.Conditions.Terminating != nil && *current.Conditions.Terminating) == desired.Terminating &&
		deref(current.Zone) == desired.Zone && deref(current.Hostname) == desired.Hostname &&
		hintsEqual(current.Hints, desired.Hints) && (current.Hints == nil || !hintsEqual(current.Hints, nil)) &&
		deref(current.NodeName) == "" &&
		current.TargetRef == nil && len(current.DeprecatedTopology) == 0
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
	key := portKey{name: deref(p.Name), app: deref(p.AppProtocol), protocol: corev1.ProtocolTCP}
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

var trueValue = true

func valueOrTrue(b *bool) *bool {
	if b == nil {
		return &trueValue
	}
	return b
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

package targets

import (
	"fmt"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// mirroring manages the slices that Kubernetes makes of a legacy Endpoints object.
const mirroring = "endpointslicemirroring-controller.k8s.io"

// Spec is what our settings say of one target.
type Spec struct {
	Namespace, Service string
	ManagedBy          string // marks slices as ours
	Writer             string // value of slicefeed.dev/writer; empty: neither written nor checked
	FirstName          string // of the first slice

	// Port is written for the Service's only port, whatever its targetPort says; 0: the
	// numeric targetPorts are.
	Port uint16
	// ProbePort is probed; 0: the first TCP port written.
	ProbePort uint16
	// Probing says that a port to probe is needed.
	Probing bool
	// Allowed reports whether the fence lets a port be written and probed; nil: all are.
	Allowed func(port uint16) bool
}

// Target is a Service that can be served.
type Target struct {
	Namespace, Name string
	UID             types.UID
	Owner           metav1.OwnerReference // to the Service, without blockOwnerDeletion: some clusters forbid it
	Families        []discoveryv1.AddressType
	Ports           []discoveryv1.EndpointPort
	ProbePort       uint16       // 0: none, and Probing was not asked for
	ClusterIPs      []netip.Addr // never to be written as an endpoint
	Foreign         []string     // slices of this Service that others manage; consumers add them to ours
}

// Reference names the Service for Events.
func (t Target) Reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: t.Namespace, Name: t.Name, UID: t.UID}
}

// Desired is the target in the planner's words, but for its endpoints.
func (s Spec) Desired(t Target) planner.Desired {
	return planner.Desired{
		Namespace: t.Namespace, Service: t.Name, Owner: t.Owner,
		ManagedBy: s.ManagedBy, Writer: s.Writer, FirstName: s.FirstName,
		Families: t.Families, Ports: t.Ports,
	}
}

// Refusal is why a Service is not served. Nothing is written while it lasts, and nothing
// is deleted either: what the slices say stays until someone decides.
type Refusal struct {
	Reason  string // CamelCase, as an Event's reason
	Message string // one sentence that says what was seen and what to do
}

// Error makes a Refusal usable as one.
func (r *Refusal) Error() string { return r.Message }

func refuse(reason, format string, args ...any) (Target, *Refusal) {
	return Target{}, &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Resolve makes a target of a Service, nil if there is none, and the slices of its
// namespace. It says no to every shape that could not work or could do harm.
func Resolve(spec Spec, svc *corev1.Service, existing []*discoveryv1.EndpointSlice) (Target, *Refusal) {
	if svc == nil {
		return refuse("ServiceNotFound", "There is no Service %s in the namespace %s: create it, without a selector.", spec.Service, spec.Namespace)
	}
	if refusal := refuseShape(&svc.Spec); refusal != nil {
		return Target{}, refusal
	}
	if svc.DeletionTimestamp != nil {
		return refuse("ServiceTerminating", "The Service is being deleted: its slices go with it, nothing is written any more.")
	}
	target := Target{
		Namespace:  svc.Namespace,
		Name:       svc.Name,
		UID:        svc.UID,
		Owner:      metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID},
		Families:   families(&svc.Spec),
		ClusterIPs: clusterIPs(&svc.Spec),
	}
	var refusal *Refusal
	if target.Ports, refusal = ports(spec, svc.Spec.Ports); refusal != nil {
		return Target{}, refusal
	}
	if target.ProbePort, refusal = probePort(spec, target.Ports); refusal != nil {
		return Target{}, refusal
	}
	if target.Foreign, refusal = neighbours(spec, target, existing); refusal != nil {
		return Target{}, refusal
	}
	return target, nil
}

func refuseShape(svc *corev1.ServiceSpec) *Refusal {
	var refusal *Refusal
	switch {
	case svc.Type == corev1.ServiceTypeExternalName:
		_, refusal = refuse("ExternalName", "A Service of type ExternalName has no endpoints: use ClusterIP, NodePort or LoadBalancer.")
	case len(svc.Selector) > 0:
		_, refusal = refuse("ServiceHasSelector", "The Service has a selector, so Kubernetes itself writes its slices: remove spec.selector, then delete the slices left over from it.")
	case svc.InternalTrafficPolicy != nil && *svc.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal:
		_, refusal = refuse("LocalTrafficPolicy", "With internalTrafficPolicy: Local only endpoints on the client's own node count, and ours are on none: set it to Cluster.")
	case svc.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal:
		_, refusal = refuse("LocalTrafficPolicy", "With externalTrafficPolicy: Local only endpoints on the receiving node count, and ours are on none: set it to Cluster.")
	case svc.PublishNotReadyAddresses:
		_, refusal = refuse("PublishNotReadyAddresses", "With publishNotReadyAddresses endpoints that are out would get traffic all the same: set it to false.")
	}
	return refusal
}

func families(svc *corev1.ServiceSpec) []discoveryv1.AddressType {
	var out []discoveryv1.AddressType
	for _, family := range svc.IPFamilies {
		switch family {
		case corev1.IPv4Protocol:
			out = append(out, discoveryv1.AddressTypeIPv4)
		case corev1.IPv6Protocol:
			out = append(out, discoveryv1.AddressTypeIPv6)
		}
	}
	if len(out) > 0 {
		return out
	}
	// Services from before dual stack have none until they are next written.
	if addr, err := netip.ParseAddr(svc.ClusterIP); err == nil && addr.Is6() {
		return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6}
	}
	return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}
}

func clusterIPs(svc *corev1.ServiceSpec) []netip.Addr {
	given := svc.ClusterIPs
	if len(given) == 0 {
		given = []string{svc.ClusterIP}
	}
	var out []netip.Addr
	for _, s := range given {
		if addr, err := netip.ParseAddr(s); err == nil { // "None" and "" are no addresses
			out = append(out, addr.Unmap())
		}
	}
	return out
}

// ports are the slice's: kube-proxy joins them to the Service's by name and protocol, and
// sends to the number that the slice has.
func ports(spec Spec, given []corev1.ServicePort) ([]discoveryv1.EndpointPort, *Refusal) {
	if spec.Port != 0 && len(given) != 1 {
		_, refusal := refuse("TargetPortAmbiguous", "TARGET_PORT is for a Service with one port, and this one has %d: unset TARGET_PORT and give each port a numeric targetPort.", len(given))
		return nil, refusal
	}
	var out []discoveryv1.EndpointPort
	for _, p := range given {
		number := p.TargetPort.IntVal
		switch {
		case spec.Port != 0:
			number = int32(spec.Port)
		case p.TargetPort.Type == intstr.String:
			_, refusal := refuse("NamedTargetPort", "The targetPort %q of port %s is a name, which only Pods could resolve: use the number, such as the secured cluster's NodePort.", p.TargetPort.StrVal, portName(p))
			return nil, refusal
		case number == 0:
			number = p.Port // what the API server would have filled in
		}
		if number < 1 || number > 65535 {
			_, refusal := refuse("InvalidTargetPort", "The targetPort %d of port %s is no port number: use one from 1 to 65535.", number, portName(p))
			return nil, refusal
		}
		if spec.Allowed != nil && !spec.Allowed(uint16(number)) {
			_, refusal := refuse("PortOutsideFence", "Port %d, where port %s would point to, is not among the allowed ports: change the Service, or allow it in ALLOWED_PORTS.", number, portName(p))
			return nil, refusal
		}
		name, protocol := p.Name, p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		out = append(out, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &number, AppProtocol: p.AppProtocol})
	}
	return out, nil
}

func probePort(spec Spec, ports []discoveryv1.EndpointPort) (uint16, *Refusal) {
	port := spec.ProbePort
	for _, p := range ports {
		if port == 0 && *p.Protocol == corev1.ProtocolTCP {
			port = uint16(*p.Port)
		}
	}
	switch {
	case port == 0 && spec.Probing:
		_, refusal := refuse("NoProbePort", "The Service has no TCP port to probe: name one with slicefeed.dev/probe-port, or turn probing off.")
		return 0, refusal
	case port != 0 && spec.Allowed != nil && !spec.Allowed(port):
		_, refusal := refuse("PortOutsideFence", "Port %d, which would be probed, is not among the allowed ports: use another, or allow it in ALLOWED_PORTS.", port)
		return 0, refusal
	}
	return port, nil
}

// neighbours looks at the Service's other slices: those that would be mixed with ours, and
// ours if another installation writes them.
func neighbours(spec Spec, target Target, existing []*discoveryv1.EndpointSlice) ([]string, *Refusal) {
	desired := spec.Desired(target)
	var foreign []string
	for _, slice := range existing {
		if desired.Owns(slice) {
			if writer := slice.Labels[planner.LabelWriter]; spec.Writer != "" && writer != "" && writer != spec.Writer {
				_, refusal := refuse("OtherWriter", "EndpointSlice %s is written by the installation in namespace %s, under the same managed-by label: give one of the two another CLASS.", slice.Name, writer)
				return nil, refusal
			}
			continue
		}
		if slice.Namespace != target.Namespace || slice.Labels[discoveryv1.LabelServiceName] != target.Name {
			continue
		}
		if slice.Labels[discoveryv1.LabelManagedBy] == mirroring && slice.DeletionTimestamp == nil {
			_, refusal := refuse("LegacyEndpoints", "The Service has a legacy Endpoints object, whose mirrored slice %s would be mixed with ours: delete the Endpoints object %s.", slice.Name, target.Name)
			return nil, refusal
		}
		foreign = append(foreign, slice.Name)
	}
	return foreign, nil
}

func portName(p corev1.ServicePort) string {
	if p.Name != "" {
		return p.Name
	}
	return strconv.Itoa(int(p.Port))
}

package targets

import (
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/services/writer/prober"
)

// maxPorts is how many ports a slice may have: what the API server lets pass, though the
// API's documentation says 100.
const maxPorts = 20000

// portAllowlist is which ports may be written and probed.
type portAllowlist struct {
	sources    []Source
	targetPort uint16 // by TARGET_PORT, allowed in any case; 0: none
}

// deniedBy names a source that does not allow the port.
func (f portAllowlist) deniedBy(port uint16) (source string, denied bool) {
	if f.targetPort != 0 && port == f.targetPort {
		return "", false
	}
	for _, source := range f.sources {
		if source.AllowsPort != nil && !source.AllowsPort(port) {
			return source.Name, true
		}
	}
	return "", false
}

// validateService says no to every shape that could not work or could do harm.
func validateService(service *corev1.Service) *Rejection {
	svc := &service.Spec
	switch {
	case service.DeletionTimestamp != nil:
		return newRejection(ReasonServiceTerminating, "The Service is being deleted: its slices go with it, nothing is written any more.")
	case svc.Type == corev1.ServiceTypeExternalName:
		return newRejection(ReasonExternalName, "A Service of type ExternalName has no endpoints: use ClusterIP, NodePort or LoadBalancer.")
	case len(svc.Selector) > 0:
		return newRejection(ReasonServiceHasSelector, "The Service has a selector, so Kubernetes itself writes its slices: remove spec.selector, then delete what Kubernetes leaves of it: the Endpoints object %s, which would be mirrored into slices, and the slices with the label endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io.", service.Name)
	case svc.InternalTrafficPolicy != nil && *svc.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal:
		return newRejection(ReasonLocalTrafficPolicy, "With internalTrafficPolicy: Local only endpoints on the client's own node count, and ours are on none: set it to Cluster.")
	case svc.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal:
		return newRejection(ReasonLocalTrafficPolicy, "With externalTrafficPolicy: Local only endpoints on the receiving node count, and ours are on none: set it to Cluster.")
	case len(svc.Ports) > maxPorts:
		return newRejection(ReasonTooManyPorts, "The Service has %d ports, and an EndpointSlice takes at most %d: split it into several Services.", len(svc.Ports), maxPorts)
	}
	return nil
}

func addressTypes(svc *corev1.ServiceSpec) []discoveryv1.AddressType {
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

func parseClusterIPs(svc *corev1.ServiceSpec) []netip.Addr {
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

// resolvePorts are the slice's: kube-proxy joins them to the Service's by name and protocol, and
// sends to the number that the slice has.
func resolvePorts(given []corev1.ServicePort, fence portAllowlist) ([]discoveryv1.EndpointPort, *Rejection) {
	if fence.targetPort != 0 && len(given) != 1 {
		return nil, newRejection(ReasonAmbiguousTargetPort, "TARGET_PORT is for a Service with one port, and this one has %d: unset TARGET_PORT and give each port a numeric targetPort.", len(given))
	}
	var out []discoveryv1.EndpointPort
	for _, p := range given {
		number := p.TargetPort.IntVal
		switch {
		case fence.targetPort != 0:
			number = int32(fence.targetPort)
		case p.TargetPort.Type == intstr.String:
			return nil, newRejection(ReasonNamedTargetPort, "The targetPort %q of port %s is a name, which only Pods could resolve: use the number, such as the secured cluster's NodePort.", p.TargetPort.StrVal, portName(p))
		case number == 0:
			number = p.Port // what the API server would have filled in
		}
		if number < 1 || number > 65535 {
			return nil, newRejection(ReasonInvalidTargetPort, "The targetPort %d of port %s is no port number: use one from 1 to 65535.", number, portName(p))
		}
		if source, denied := fence.deniedBy(uint16(number)); denied {
			return nil, newRejection(ReasonPortNotAllowed, "Port %d, where port %s would point to, is not among the allowed ports of source %s: change the Service, or allow it in ALLOWED_PORTS, or the source's ports in SOURCES_FILE.", number, portName(p), source)
		}
		name, protocol := p.Name, p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		out = append(out, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &number, AppProtocol: p.AppProtocol})
	}
	return out, nil
}

func resolveProbePort(settings Settings, ports []discoveryv1.EndpointPort, fence portAllowlist) (uint16, *Rejection) {
	port := settings.ProbePort
	for _, p := range ports {
		if port == 0 && *p.Protocol == corev1.ProtocolTCP {
			port = uint16(*p.Port)
		}
	}
	if port == 0 && settings.Probe.Mode != prober.Off {
		return 0, newRejection(ReasonNoProbePort, "The Service has no TCP port to probe: name one with %sprobe-port, or turn probing off.", annotationPrefix)
	}
	if source, denied := fence.deniedBy(port); port != 0 && denied {
		return 0, newRejection(ReasonPortNotAllowed, "Port %d, which would be probed, is not among the allowed ports of source %s: use another, or allow it in ALLOWED_PORTS, or the source's ports in SOURCES_FILE.", port, source)
	}
	return port, nil
}

func portName(p corev1.ServicePort) string {
	if p.Name != "" {
		return p.Name
	}
	return strconv.Itoa(int(p.Port))
}

package targets

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MaxPorts is how many ports a target may have. The API server's own limit, 20,000 in a slice, would make each slice,
// and each change of it, megabytes large.
const MaxPorts = 1000

// validateService rejects Services that cannot work or could do harm.
func validateService(service *corev1.Service) *Rejection {
	svc := &service.Spec
	switch {
	case service.DeletionTimestamp != nil:
		return newRejection(reasonServiceTerminating, "%s is being deleted; nothing more is written.", keyOf(service).kind())
	case svc.Type == corev1.ServiceTypeExternalName:
		return newRejection("ExternalName", "Services of type ExternalName have no endpoints.")
	case len(svc.Selector) > 0:
		return newRejection("ServiceHasSelector", "Service has a selector, so Kubernetes writes its slices.")
	case svc.InternalTrafficPolicy != nil && *svc.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal:
		return newRejection(
			"LocalTrafficPolicy",
			"internalTrafficPolicy Local only uses endpoints on the client's node; ours are on none.",
		)
	case svc.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal:
		return newRejection(
			"LocalTrafficPolicy",
			"externalTrafficPolicy Local only uses endpoints on the receiving node; ours are on none.",
		)
	case len(svc.Ports) > MaxPorts:
		return newRejection(
			"TooManyPorts",
			"%s has %d ports; at most %d are possible.",
			keyOf(service).kind(),
			len(svc.Ports),
			MaxPorts,
		)
	case isImport(service):
		return validateImport(service)
	}
	return nil
}

// mirroringController manages the slices that Kubernetes creates for a legacy Endpoints object.
const mirroringController = "endpointslicemirroring-controller.k8s.io"

// checkOtherSlices collects the other slices of the Service, and rejects the target if they must not be
// mixed with owned ones or if another installation writes the owned ones.
func checkOtherSlices(t *Target, existing []*discoveryv1.EndpointSlice) *Rejection {
	desired := t.Desired()
	for _, slice := range existing {
		if desired.Owns(slice) {
			if writer := slice.Labels[LabelWriter]; t.Writer != "" && writer != "" && writer != t.Writer {
				return newRejection(
					reasonOwnedByOtherWriter,
					"EndpointSlice %s is written by the installation in namespace %s, too.",
					slice.Name,
					writer,
				)
			}
			continue
		}
		if slice.Namespace != t.Namespace || slice.Labels[NameLabel(t.kind())] != t.Name {
			continue
		}
		switch {
		case slice.Labels[discoveryv1.LabelManagedBy] == mirroringController && slice.DeletionTimestamp == nil:
			return newRejection("LegacyEndpoints", "Service has a legacy Endpoints object, mirrored as slice %s.", slice.Name)
		case isOtherClass(slice):
			t.OtherClassSlices = append(t.OtherClassSlices, slice.Name)
		default:
			t.ForeignSlices = append(t.ForeignSlices, slice.Name)
		}
	}
	return nil
}

// resolvePorts returns the ports of the slices: kube-proxy joins them to the ports of the Service by
// name and protocol, and sends traffic to the number in the slice.
func (t *Target) resolvePorts(given []corev1.ServicePort) ([]discoveryv1.EndpointPort, *Rejection) {
	if t.FixedPort != 0 && len(given) != 1 {
		return nil, newRejection("AmbiguousTargetPort", "TARGET_PORT requires a Service with one port; this one has %d.", len(given))
	}
	var out []discoveryv1.EndpointPort
	for _, p := range given {
		number, protocol, shown := p.TargetPort.IntVal, p.Protocol, shownName(&p)
		switch {
		case t.FixedPort != 0:
			number = int32(t.FixedPort)
		case p.TargetPort.Type == intstr.String:
			return nil, newRejection(
				"NamedTargetPort",
				"targetPort %q of port %s is a name; only Pods can resolve it.",
				p.TargetPort.StrVal,
				shown,
			)
		case number == 0:
			number = p.Port // as the API server defaults it
		}
		if number < 1 || number > 65535 {
			return nil, newRejection("InvalidTargetPort", "targetPort %d of port %s is out of range.", number, shown)
		}
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		out = append(out, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &protocol, Port: &number, AppProtocol: p.AppProtocol})
	}
	return out, nil
}

// servicePorts returns the numbers of the Service's own ports, by name.
func servicePorts(svc *corev1.Service) map[string]uint16 {
	ports := make(map[string]uint16, len(svc.Spec.Ports))
	for _, p := range svc.Spec.Ports {
		ports[p.Name] = uint16(p.Port)
	}
	return ports
}

func addressTypes(svc *corev1.ServiceSpec) []discoveryv1.AddressType {
	var out []discoveryv1.AddressType
	for _, family := range svc.IPFamilies {
		out = append(out, discoveryv1.AddressType(family)) // both are IPv4 and IPv6
	}
	if len(out) > 0 {
		return out
	}
	// Services created before dual stack have none until their next update.
	if addr, err := netip.ParseAddr(svc.ClusterIP); err == nil && addr.Is6() {
		return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6}
	}
	return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}
}

// Labels of a Service beyond these limits are not copied to its slices: every slice repeats them, and
// every change of a slice is sent to every node of the cluster.
const (
	maxLabels     = 32
	maxLabelBytes = 8 << 10
)

// labelServiceProxyName names the proxy that serves a Service. It selects slices by it, and kube-proxy skips them.
// Kubernetes' own controllers copy it too; it is the only reserved label whose value is the Service's to give.
const labelServiceProxyName = "service.kubernetes.io/service-proxy-name"

// copyLabels returns the labels of a Service that its slices get, in the order of their keys until a
// limit is reached.
func copyLabels(labels map[string]string) map[string]string {
	var copied map[string]string
	room := maxLabelBytes
	if proxy, given := labels[labelServiceProxyName]; given {
		copied = map[string]string{labelServiceProxyName: proxy}
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if isReservedLabel(key) {
			continue
		}
		if room -= len(key) + len(labels[key]); room < 0 || len(copied) == maxLabels {
			break
		}
		if copied == nil {
			copied = map[string]string{}
		}
		copied[key] = labels[key]
	}
	return copied
}

// isReservedLabel reports whether a label has a meaning for readers of slices. Only the labels that the
// writer sets itself are true there.
func isReservedLabel(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	return prefixed && slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", "slicefeed.dev"}, func(reserved string) bool {
		return domain == reserved || strings.HasSuffix(domain, "."+reserved)
	})
}

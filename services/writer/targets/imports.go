package targets

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	utilnet "k8s.io/utils/net"
)

// The types of a ServiceImport.
const (
	typeClusterSetIP = "ClusterSetIP"
	typeHeadless     = "Headless"
)

// serviceOfImport returns a ServiceImport as a Service, so that the same rules apply to both. Its spec has a part of a
// Service's fields, with the same names; spec.ips become the cluster IPs. Kind and APIVersion stay those of the
// ServiceImport, and distinguish it from a Service.
func serviceOfImport(object *unstructured.Unstructured) *corev1.Service {
	svc := &corev1.Service{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, svc); err != nil {
		// Its type is missing then, so it is rejected.
		svc = &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
			DeletionTimestamp: object.GetDeletionTimestamp(), Labels: object.GetLabels(), Annotations: object.GetAnnotations(),
		}}
	}
	svc.Kind = KindServiceImport
	ips, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "ips")
	svc.Spec.ClusterIPs, svc.Spec.ClusterIP = ips, ""
	switch {
	case svc.Spec.Type == typeHeadless:
		svc.Spec.ClusterIP = corev1.ClusterIPNone
	case len(ips) > 0:
		svc.Spec.ClusterIP = ips[0]
	}
	if len(svc.Spec.IPFamilies) == 0 {
		for _, ip := range ips {
			family := corev1.IPv4Protocol
			if utilnet.IsIPv6String(ip) {
				family = corev1.IPv6Protocol
			}
			if !slices.Contains(svc.Spec.IPFamilies, family) {
				svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, family)
			}
		}
	}
	return svc
}

func isImport(svc *corev1.Service) bool { return svc.Kind == KindServiceImport }

// validateImport rejects what the API server rejects in a Service, but not in a ServiceImport: slices with it could not
// be written, or consumers would not find them.
func validateImport(svc *corev1.Service) *Rejection {
	invalid := func(format string, args ...any) *Rejection {
		return newRejection("InvalidServiceImport", format, args...)
	}
	if len(validation.IsDNS1123Label(svc.Name)) > 0 {
		return invalid("The name is no DNS label of at most 63 characters, which slices have as a label.")
	}
	if svc.Spec.Type != typeClusterSetIP && svc.Spec.Type != typeHeadless {
		return invalid("spec.type is %.30q: want %s or %s.", svc.Spec.Type, typeClusterSetIP, typeHeadless)
	}
	for i, family := range svc.Spec.IPFamilies {
		if family != corev1.IPv4Protocol && family != corev1.IPv6Protocol || slices.Contains(svc.Spec.IPFamilies[:i], family) {
			return invalid("spec.ipFamilies has %.30q: want IPv4, IPv6 or both, each once.", family)
		}
	}
	names := map[string]bool{}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		protocols := []corev1.Protocol{"", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
		switch {
		case names[p.Name]:
			return invalid("Two ports have the name %.63q.", p.Name)
		case p.Name != "" && len(validation.IsDNS1123Label(p.Name)) > 0:
			return invalid("Port name %.30q is no DNS label of lower-case letters, digits and dashes.", p.Name)
		case !slices.Contains(protocols, p.Protocol):
			return invalid("Protocol %.20q of port %s: want TCP, UDP or SCTP.", p.Protocol, shownName(p))
		case p.AppProtocol != nil && len(validation.IsQualifiedName(*p.AppProtocol)) > 0:
			return invalid("appProtocol %.20q of port %s: want a name such as kubernetes.io/h2c.", *p.AppProtocol, shownName(p))
		}
		names[p.Name] = true
	}
	return nil
}

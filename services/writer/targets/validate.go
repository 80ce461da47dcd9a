package targets

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// maxPorts is how many ports a slice may have: the limit that the API server enforces, though the API's
// documentation says 100.
const maxPorts = 20000

// validateService rejects Services that cannot work or could do harm.
func validateService(service *corev1.Service) *Rejection {
	svc := &service.Spec
	switch {
	case service.DeletionTimestamp != nil:
		return newRejection(ReasonServiceTerminating, "Service is being deleted. Its slices are deleted with it; nothing more is written.")
	case svc.Type == corev1.ServiceTypeExternalName:
		return newRejection(ReasonExternalName, "Services of type ExternalName have no endpoints. Use ClusterIP, NodePort or LoadBalancer.")
	case len(svc.Selector) > 0:
		return newRejection(ReasonServiceHasSelector, "Service has a selector, so Kubernetes writes its slices. Remove spec.selector, then delete what remains: the Endpoints object %s, which would be mirrored into slices, and the slices with label endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io.", service.Name)
	case svc.InternalTrafficPolicy != nil && *svc.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal:
		return newRejection(ReasonLocalTrafficPolicy, "internalTrafficPolicy Local only uses endpoints on the client's node; ours are on none. Set it to Cluster.")
	case svc.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal:
		return newRejection(ReasonLocalTrafficPolicy, "externalTrafficPolicy Local only uses endpoints on the receiving node; ours are on none. Set it to Cluster.")
	case len(svc.Ports) > maxPorts:
		return newRejection(ReasonTooManyPorts, "Service has %d ports; an EndpointSlice supports %d. Split the Service.", len(svc.Ports), maxPorts)
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
			if writer := slice.Labels[planner.LabelWriter]; t.Writer != "" && writer != "" && writer != t.Writer {
				return newRejection(ReasonOwnedByOtherWriter, "EndpointSlice %s is written by the installation in namespace %s with the same managed-by label. Give one of them another CLASS.", slice.Name, writer)
			}
			continue
		}
		if slice.Namespace != t.Namespace || slice.Labels[discoveryv1.LabelServiceName] != t.Name {
			continue
		}
		switch {
		case slice.Labels[discoveryv1.LabelManagedBy] == mirroringController && slice.DeletionTimestamp == nil:
			return newRejection(ReasonLegacyEndpoints, "Service has a legacy Endpoints object; its mirrored slice %s would be mixed with ours. Delete Endpoints %s.", slice.Name, t.Name)
		case isOtherClass(slice):
			t.OtherClassSlices = append(t.OtherClassSlices, slice.Name)
		default:
			t.ForeignSlices = append(t.ForeignSlices, slice.Name)
		}
	}
	return nil
}

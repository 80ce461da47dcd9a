package adopt

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// Kubernetes' own controllers, which recreate what is taken from them.
const (
	selectorController  = "endpointslice-controller.k8s.io"
	mirroringController = "endpointslicemirroring-controller.k8s.io"
)

// check returns the managed-by label that a slice must have to be the writer's, and warnings about others
// who may write it. The service is the one that the slice's label names; nil: it does not exist. It rejects
// what could only do harm: a slice that its controller would take back immediately, and one that the writer
// would not maintain.
func check(cfg *Config, slice *discoveryv1.EndpointSlice, service *corev1.Service) (newManager string, warnings []string, err error) {
	name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	isNamed := name.Name != "" && name.Name == cfg.Service && name.Namespace == cfg.Namespace
	newManager = "slicefeed-" + cfg.Class
	if isNamed && cfg.ManagedBy != "" {
		newManager = cfg.ManagedBy
	}
	oldManager := slice.Labels[discoveryv1.LabelManagedBy]
	switch {
	case slice.DeletionTimestamp != nil:
		err = newRejection("it is being deleted.")
	case oldManager == newManager:
		return newManager, nil, nil
	case oldManager == selectorController:
		err = newRejection(
			"Kubernetes created it from the selector of a Service. Remove spec.selector from the Service; the writer then creates its own slice. Once that one has ready endpoints, delete this one.",
		)
	case oldManager == mirroringController:
		err = newRejection(
			"Kubernetes mirrors it from the legacy Endpoints object %s, and would recreate it. Create a copy of the slice under another name with label %s=%s, then delete the Endpoints object.",
			name.Name,
			discoveryv1.LabelManagedBy,
			newManager,
		)
	case strings.HasSuffix(oldManager, ".k8s.io"):
		err = newRejection(
			"it is managed by %q, one of Kubernetes' own controllers, which would take it back. Leave it as it is.",
			oldManager,
		)
	case slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6:
		err = newRejection(
			"its address type is %s; the writer supports only IPv4 and IPv6. Let the writer create its own slice, then delete this one.",
			slice.AddressType,
		)
	case slice.Labels[planner.LabelWriter] != "":
		err = newRejection(
			"the Slicefeed installation in namespace %s writes it, as %q. If that installation has been removed, remove its label and try again: kubectl -n %s label endpointslice %s %s-",
			slice.Labels[planner.LabelWriter],
			oldManager,
			slice.Namespace,
			slice.Name,
			planner.LabelWriter,
		)
	case name.Name == "":
		err = newRejection(
			"it does not belong to a Service: label %s is missing. To assign one: kubectl -n %s label endpointslice %s %s=SERVICE",
			discoveryv1.LabelServiceName,
			slice.Namespace,
			slice.Name,
			discoveryv1.LabelServiceName,
		)
	// Services that the writer rejects permanently. Problems that an edit of the Service fixes are left to
	// the writer and its plan.
	case service == nil:
		err = newRejection(
			"Service %s in its label %s does not exist. Create the Service without a selector, or correct the label.",
			name,
			discoveryv1.LabelServiceName,
		)
	case service.DeletionTimestamp != nil:
		err = newRejection("its Service %s is being deleted, and the slice with it.", name)
	case len(service.Spec.Selector) > 0:
		err = newRejection(
			"its Service %s has a selector, so Kubernetes writes its slices. Remove spec.selector, then delete the remaining slices.",
			name,
		)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		err = newRejection("its Service %s is of type ExternalName, which has no endpoints. Use ClusterIP, NodePort or LoadBalancer.", name)
	case !isNamed && service.Labels[targets.LabelClass] != cfg.Class:
		err = newRejection(
			"its Service %s is not of class %s, so the slice would not be maintained any more. First label the Service, and pause it until the slice is adopted: kubectl -n %s annotate service %s slicefeed.dev/paused=true && kubectl -n %s label service %s %s=%s. "+
				"If it is the writer's named target, set TARGET_NAMESPACE, TARGET_SERVICE_NAME and TARGET_MANAGED_BY to the writer's values.",
			name,
			cfg.Class,
			name.Namespace,
			name.Name,
			name.Namespace,
			name.Name,
			targets.LabelClass,
			cfg.Class,
		)
	}
	return newManager, findWarnings(oldManager, slice), err
}

// rejection is why a slice cannot be adopted, and what to do instead, in sentences.
type rejection string

func (r rejection) Error() string { return string(r) }

func newRejection(format string, args ...any) error { return rejection(fmt.Sprintf(format, args...)) }

// findWarnings returns warnings about others who may write the slice again, and so take it back.
func findWarnings(oldManager string, slice *discoveryv1.EndpointSlice) []string {
	var all []string
	if oldManager != "" {
		all = append(
			all,
			fmt.Sprintf(
				"it was managed by %q. Stop that controller before the writer starts, or both undo each other's changes.",
				oldManager,
			),
		)
	}
	if managers := applyManagers(slice); len(managers) > 0 {
		all = append(
			all,
			fmt.Sprintf(
				"it was applied by field manager %s, and the next apply resets its label or endpoints. Remove it from those manifests without pruning it.",
				strings.Join(managers, ", "),
			),
		)
	}
	return all
}

// applyManagers returns the field managers that applied the slice, server-side or client-side, and may
// apply it again.
func applyManagers(slice *discoveryv1.EndpointSlice) []string {
	const clientSide = "kubectl-client-side-apply"
	var names []string
	if _, ok := slice.Annotations[corev1.LastAppliedConfigAnnotation]; ok {
		names = append(names, fmt.Sprintf("%q", clientSide))
	}
	for _, entry := range slice.ManagedFields {
		if entry.Operation == metav1.ManagedFieldsOperationApply || entry.Manager == clientSide {
			names = append(names, fmt.Sprintf("%q", entry.Manager))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

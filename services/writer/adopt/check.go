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

// Installation is the installation that a slice would belong to.
type Installation struct {
	Class     string
	Target    types.NamespacedName // the named target; zero: none
	ManagedBy string               // of the named target's slices; empty: as for all others
}

// managedByFor returns the managed-by label of this Service's slices.
func (i Installation) managedByFor(service types.NamespacedName) string {
	if service == i.Target && i.ManagedBy != "" {
		return i.ManagedBy
	}
	return "slicefeed-" + i.Class
}

// Adoption is what to do with a slice that can be adopted.
type Adoption struct {
	ManagedBy string   // new value of the label; empty: the slice belongs to the installation already
	Warnings  []string // about other writers of the slice; a sentence each
}

// Rejection is why a slice cannot be adopted, and what to do instead.
type Rejection struct{ Message string }

// Error implements error.
func (r *Rejection) Error() string { return r.Message }

func newRejection(format string, args ...any) (Adoption, error) {
	return Adoption{}, &Rejection{fmt.Sprintf(format, args...)}
}

// Check decides whether a slice can be adopted. The service is the one that the slice's label names;
// nil: it does not exist. Check rejects what could only do harm: a slice that its controller would take
// back immediately, and one that the writer would not maintain.
func Check(i Installation, slice *discoveryv1.EndpointSlice, service *corev1.Service) (Adoption, error) {
	name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	oldManager, newManager := slice.Labels[discoveryv1.LabelManagedBy], i.managedByFor(name)
	switch {
	case slice.DeletionTimestamp != nil:
		return newRejection("it is being deleted.")
	case oldManager == newManager:
		return Adoption{}, nil
	case oldManager == selectorController:
		return newRejection("Kubernetes created it from the selector of a Service. Remove spec.selector from the Service; the writer then creates its own slice. Once that one has ready endpoints, delete this one.")
	case oldManager == mirroringController:
		return newRejection("Kubernetes mirrors it from the legacy Endpoints object %s, and would recreate it. Create a copy of the slice under another name with label %s=%s, then delete the Endpoints object.", name.Name, discoveryv1.LabelManagedBy, newManager)
	case strings.HasSuffix(oldManager, ".k8s.io"):
		return newRejection("it is managed by %q, one of Kubernetes' own controllers, which would take it back. Leave it as it is.", oldManager)
	case slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6:
		return newRejection("its address type is %s; the writer supports only IPv4 and IPv6. Let the writer create its own slice, then delete this one.", slice.AddressType)
	case slice.Labels[planner.LabelWriter] != "":
		return newRejection("the Slicefeed installation in namespace %s writes it, as %q. If that installation has been removed, remove its label and try again: kubectl -n %s label endpointslice %s %s-",
			slice.Labels[planner.LabelWriter], oldManager, slice.Namespace, slice.Name, planner.LabelWriter)
	case name.Name == "":
		return newRejection("it does not belong to a Service: label %s is missing. To assign one: kubectl -n %s label endpointslice %s %s=SERVICE",
			discoveryv1.LabelServiceName, slice.Namespace, slice.Name, discoveryv1.LabelServiceName)
	}
	if err := checkService(i, name, service); err != nil {
		return Adoption{}, err
	}
	return Adoption{ManagedBy: newManager, Warnings: findWarnings(oldManager, slice)}, nil
}

// checkService rejects Services that the writer rejects permanently. Problems that an edit of the
// Service fixes are left to the writer and its plan.
func checkService(i Installation, name types.NamespacedName, service *corev1.Service) error {
	var err error
	switch {
	case service == nil:
		_, err = newRejection("Service %s in its label %s does not exist. Create the Service without a selector, or correct the label.", name, discoveryv1.LabelServiceName)
	case service.DeletionTimestamp != nil:
		_, err = newRejection("its Service %s is being deleted, and the slice with it.", name)
	case len(service.Spec.Selector) > 0:
		_, err = newRejection("its Service %s has a selector, so Kubernetes writes its slices. Remove spec.selector, then delete the remaining slices.", name)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		_, err = newRejection("its Service %s is of type ExternalName, which has no endpoints. Use ClusterIP, NodePort or LoadBalancer.", name)
	case name != i.Target && service.Labels[targets.LabelClass] != i.Class:
		_, err = newRejection("its Service %s is not of class %s, so the slice would not be maintained any more. First label the Service, and pause it until the slice is adopted: kubectl -n %s annotate service %s slicefeed.dev/paused=true && kubectl -n %s label service %s %s=%s. "+
			"If it is the writer's named target, set TARGET_NAMESPACE, TARGET_SERVICE_NAME and TARGET_MANAGED_BY to the writer's values.",
			name, i.Class, name.Namespace, name.Name, name.Namespace, name.Name, targets.LabelClass, i.Class)
	}
	return err
}

// findWarnings returns warnings about others who may write the slice again, and so take it back.
func findWarnings(oldManager string, slice *discoveryv1.EndpointSlice) []string {
	var all []string
	if oldManager != "" {
		all = append(all, fmt.Sprintf("it was managed by %q. Stop that controller before the writer starts, or both undo each other's changes.", oldManager))
	}
	if managers := applyManagers(slice); len(managers) > 0 {
		all = append(all, fmt.Sprintf("it was applied by field manager %s, and the next apply resets its label or endpoints. Remove it from those manifests without pruning it.", strings.Join(managers, ", ")))
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

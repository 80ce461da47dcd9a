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

// Kubernetes' own controllers, which would make anew what is taken from them.
const (
	selectorController  = "endpointslice-controller.k8s.io"
	mirroringController = "endpointslicemirroring-controller.k8s.io"
)

// Installation is whom a slice would belong to.
type Installation struct {
	Class     string
	Target    types.NamespacedName // the Service given by name; zero: none is
	ManagedBy string               // of the target's slices; empty: as of all others
}

// managedByFor is what marks a slice of this Service as the installation's.
func (i Installation) managedByFor(service types.NamespacedName) string {
	if service == i.Target && i.ManagedBy != "" {
		return i.ManagedBy
	}
	return "slicefeed-" + i.Class
}

// Adoption is what is to be done with a slice that may be adopted.
type Adoption struct {
	ManagedBy string   // the label's new value; empty: the slice is the installation's already
	Warnings  []string // what would take the slice back, or mix with it; a sentence each
}

// Rejection is why a slice may not be adopted, and what to do instead.
type Rejection struct{ Message string }

// Error makes a Refusal usable as one.
func (r *Rejection) Error() string { return r.Message }

func reject(format string, args ...any) (Adoption, error) {
	return Adoption{}, &Rejection{fmt.Sprintf(format, args...)}
}

// Check decides whether a slice may be adopted. Service is the one that its label names; nil:
// there is none. What could only harm is refused: a slice that its maker would take back at
// once, and one that the writer would not keep up.
func Check(i Installation, slice *discoveryv1.EndpointSlice, service *corev1.Service) (Adoption, error) {
	name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	oldManager, newManager := slice.Labels[discoveryv1.LabelManagedBy], i.managedByFor(name)
	switch {
	case slice.DeletionTimestamp != nil:
		return reject("it is being deleted: there is nothing to adopt any more.")
	case oldManager == newManager:
		return Adoption{}, nil
	case oldManager == selectorController:
		return reject("it is Kubernetes' own, made of a Service's selector. Remove spec.selector from the Service; the writer then makes a slice beside this one, and when that serves, delete this one.")
	case oldManager == mirroringController:
		return reject("it is Kubernetes' own, a mirror of the legacy Endpoints object %s, and would be mirrored again. Create a copy of it under another name and with the label %s=%s, then delete the Endpoints object.", name.Name, discoveryv1.LabelManagedBy, newManager)
	case strings.HasSuffix(oldManager, ".k8s.io"):
		return reject("it is managed by %q, one of Kubernetes' own controllers, which would take it back: leave it alone.", oldManager)
	case slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6:
		return reject("it lists addresses of type %s, and the writer knows only IPv4 and IPv6: let the writer make one of its own, then delete this one.", slice.AddressType)
	case slice.Labels[planner.LabelWriter] != "":
		return reject("the installation of Slicefeed in namespace %s writes it, as %q. If that one is stopped for good, take its mark away and try again: kubectl -n %s label endpointslice %s %s-",
			slice.Labels[planner.LabelWriter], oldManager, slice.Namespace, slice.Name, planner.LabelWriter)
	case name.Name == "":
		return reject("it belongs to no Service: its label %s is missing. If it should belong to one: kubectl -n %s label endpointslice %s %s=SERVICE",
			discoveryv1.LabelServiceName, slice.Namespace, slice.Name, discoveryv1.LabelServiceName)
	}
	if err := checkService(i, name, service); err != nil {
		return Adoption{}, err
	}
	return Adoption{ManagedBy: newManager, Warnings: findWarnings(oldManager, slice)}, nil
}

// checkService refuses what the writer would refuse for good. Shapes that are mended by a word
// in the Service are left to the writer and its plan to tell.
func checkService(i Installation, name types.NamespacedName, service *corev1.Service) error {
	var err error
	switch {
	case service == nil:
		_, err = reject("there is no Service %s, which its label %s names: create it, without a selector, or mend the label.", name, discoveryv1.LabelServiceName)
	case service.DeletionTimestamp != nil:
		_, err = reject("its Service %s is being deleted, and the slice goes with it: there is nothing to adopt any more.", name)
	case len(service.Spec.Selector) > 0:
		_, err = reject("its Service %s has a selector, so Kubernetes itself writes slices for it and the writer would not: remove spec.selector, then delete the slices left over from it.", name)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		_, err = reject("its Service %s is of type ExternalName and has no endpoints: use ClusterIP, NodePort or LoadBalancer.", name)
	case name != i.Target && service.Labels[targets.LabelClass] != i.Class:
		_, err = reject("its Service %s is not of class %s, so nobody would keep the slice up any more. First make the Service one of the writer's, paused until the slice is adopted: kubectl -n %s annotate service %s slicefeed.dev/paused=true && kubectl -n %s label service %s %s=%s. "+
			"Or, if it is the writer's target by name, give TARGET_NAMESPACE, TARGET_SERVICE_NAME and TARGET_MANAGED_BY as the writer has them.",
			name, i.Class, name.Namespace, name.Name, name.Namespace, name.Name, targets.LabelClass, i.Class)
	}
	return err
}

// findWarnings are about those who may write the slice again, and so take it back.
func findWarnings(oldManager string, slice *discoveryv1.EndpointSlice) []string {
	var all []string
	if oldManager != "" {
		all = append(all, fmt.Sprintf("it was managed by %q: stop whatever writes under that name before the writer starts, or the two undo each other's changes.", oldManager))
	}
	if managers := applyManagers(slice); len(managers) > 0 {
		all = append(all, fmt.Sprintf("it was applied, by field manager %s, and the next apply takes its label or endpoints back: remove it from those manifests, without having it pruned.", strings.Join(managers, ", ")))
	}
	return all
}

// applyManagers names the field managers that declared fields of the slice and will again, by apply on
// either side.
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

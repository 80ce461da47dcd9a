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
	controller = "endpointslice-controller.k8s.io"
	mirroring  = "endpointslicemirroring-controller.k8s.io"
)

// Installation is whom a slice would belong to.
type Installation struct {
	Class     string
	Target    types.NamespacedName // the Service given by name; zero: none is
	ManagedBy string               // of the target's slices; empty: as of all others
}

// managedBy is what marks a slice of this Service as the installation's.
func (i Installation) managedBy(service types.NamespacedName) string {
	if service == i.Target && i.ManagedBy != "" {
		return i.ManagedBy
	}
	return "slicefeed-" + i.Class
}

// Verdict is what is to be done with a slice that may be adopted.
type Verdict struct {
	ManagedBy string   // the label's new value; empty: the slice is the installation's already
	Warnings  []string // what would take the slice back, or mix with it; a sentence each
}

// Refusal is why a slice may not be adopted, and what to do instead.
type Refusal struct{ Message string }

// Error makes a Refusal usable as one.
func (r *Refusal) Error() string { return r.Message }

func refuse(format string, args ...any) (Verdict, error) {
	return Verdict{}, &Refusal{fmt.Sprintf(format, args...)}
}

// Judge decides whether a slice may be adopted. Service is the one that its label names; nil:
// there is none. What could only harm is refused: a slice that its maker would take back at
// once, and one that the writer would not keep up.
func Judge(i Installation, slice *discoveryv1.EndpointSlice, service *corev1.Service) (Verdict, error) {
	name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	was, is := slice.Labels[discoveryv1.LabelManagedBy], i.managedBy(name)
	switch {
	case slice.DeletionTimestamp != nil:
		return refuse("it is being deleted: there is nothing to adopt any more.")
	case was == is:
		return Verdict{}, nil
	case was == controller:
		return refuse("it is Kubernetes' own, made of a Service's selector. Remove spec.selector from the Service; the writer then makes a slice beside this one, and when that serves, delete this one.")
	case was == mirroring:
		return refuse("it is Kubernetes' own, a mirror of the legacy Endpoints object %s, and would be mirrored again. Create a copy of it under another name and with the label %s=%s, then delete the Endpoints object.", name.Name, discoveryv1.LabelManagedBy, is)
	case strings.HasSuffix(was, ".k8s.io"):
		return refuse("it is managed by %q, one of Kubernetes' own controllers, which would take it back: leave it alone.", was)
	case slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6:
		return refuse("it lists addresses of type %s, and the writer knows only IPv4 and IPv6: let the writer make one of its own, then delete this one.", slice.AddressType)
	case slice.Labels[planner.LabelWriter] != "":
		return refuse("the installation of Slicefeed in namespace %s writes it, as %q. If that one is stopped for good, take its mark away and try again: kubectl -n %s label endpointslice %s %s-",
			slice.Labels[planner.LabelWriter], was, slice.Namespace, slice.Name, planner.LabelWriter)
	case name.Name == "":
		return refuse("it belongs to no Service: its label %s is missing. If it should belong to one: kubectl -n %s label endpointslice %s %s=SERVICE",
			discoveryv1.LabelServiceName, slice.Namespace, slice.Name, discoveryv1.LabelServiceName)
	}
	if err := refuseService(i, name, service); err != nil {
		return Verdict{}, err
	}
	return Verdict{ManagedBy: is, Warnings: warnings(was, slice)}, nil
}

// refuseService refuses what the writer would refuse for good. Shapes that are mended by a word
// in the Service are left to the writer and its plan to tell.
func refuseService(i Installation, name types.NamespacedName, service *corev1.Service) error {
	var err error
	switch {
	case service == nil:
		_, err = refuse("there is no Service %s, which its label %s names: create it, without a selector, or mend the label.", name, discoveryv1.LabelServiceName)
	case service.DeletionTimestamp != nil:
		_, err = refuse("its Service %s is being deleted, and the slice goes with it: there is nothing to adopt any more.", name)
	case len(service.Spec.Selector) > 0:
		_, err = refuse("its Service %s has a selector, so Kubernetes itself writes slices for it and the writer would not: remove spec.selector, then delete the slices left over from it.", name)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		_, err = refuse("its Service %s is of type ExternalName and has no endpoints: use ClusterIP, NodePort or LoadBalancer.", name)
	case name != i.Target && service.Labels[targets.LabelClass] != i.Class:
		_, err = refuse("its Service %s is not of class %s, so nobody would keep the slice up any more. First make the Service one of the writer's, paused until the slice is adopted: kubectl -n %s annotate service %s slicefeed.dev/paused=true && kubectl -n %s label service %s %s=%s. "+
			"Or, if it is the writer's target by name, give TARGET_NAMESPACE, TARGET_SERVICE_NAME and TARGET_MANAGED_BY as the writer has them.",
			name, i.Class, name.Namespace, name.Name, name.Namespace, name.Name, targets.LabelClass, i.Class)
	}
	return err
}

// warnings are about those who may write the slice again, and so take it back.
func warnings(was string, slice *discoveryv1.EndpointSlice) []string {
	var all []string
	if was != "" {
		all = append(all, fmt.Sprintf("it was managed by %q: stop whatever writes under that name before the writer starts, or the two undo each other's changes.", was))
	}
	if managers := appliers(slice); len(managers) > 0 {
		all = append(all, fmt.Sprintf("it was applied, by field manager %s, and the next apply takes its label or endpoints back: remove it from those manifests, without having it pruned.", strings.Join(managers, ", ")))
	}
	return all
}

// appliers names the field managers that declared fields of the slice and will again, by apply on
// either side.
func appliers(slice *discoveryv1.EndpointSlice) []string {
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

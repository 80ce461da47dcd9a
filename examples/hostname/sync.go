package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// managedBy marks the slices of this program. No other controller changes slices with this label.
const managedBy = "hostname.example.org"

// follower keeps the EndpointSlices of one Service at the addresses of a DNS name.
type follower struct {
	client kubernetes.Interface
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

	host, namespace, service string
}

// sync writes what has changed, and returns it. It is safe to repeat after an error, including a conflict,
// because it computes a new plan from the current slices.
func (f follower) sync(ctx context.Context) (planner.Plan, error) {
	addrs, err := f.lookup(ctx, "ip", f.host)
	if err != nil {
		return planner.Plan{}, fmt.Errorf("look up %s: %w", f.host, err)
	}
	svc, err := f.client.CoreV1().Services(f.namespace).Get(ctx, f.service, metav1.GetOptions{})
	if err != nil {
		return planner.Plan{}, fmt.Errorf("get Service: %w", err)
	}
	desired, err := desiredSlices(svc, addrs)
	if err != nil {
		return planner.Plan{}, fmt.Errorf("follow %s for Service %s/%s: %w", f.host, svc.Namespace, svc.Name, err)
	}
	// The list has all slices of the namespace, so that the planner avoids the names of foreign ones.
	list, err := f.client.DiscoveryV1().EndpointSlices(f.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return planner.Plan{}, fmt.Errorf("list EndpointSlices: %w", err)
	}
	existing := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		existing[i] = &list.Items[i]
	}
	plan := planner.Compute(desired, existing)
	return plan, f.apply(ctx, plan)
}

// desiredSlices returns what the slices of a Service should be, with all addresses ready.
func desiredSlices(svc *corev1.Service, addrs []netip.Addr) (planner.Desired, error) {
	desired := planner.Desired{
		Namespace: svc.Namespace, Service: svc.Name, ManagedBy: managedBy, FirstName: svc.Name + "-hostname",
		Owner:    metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID},
		Headless: svc.Spec.ClusterIP == corev1.ClusterIPNone,
	}
	if len(svc.Spec.Selector) > 0 {
		return desired, errors.New("it has a selector, so Kubernetes writes its slices")
	}
	for _, family := range svc.Spec.IPFamilies {
		desired.Families = append(desired.Families, discoveryv1.AddressType(family))
	}
	for _, port := range svc.Spec.Ports {
		if port.TargetPort.Type == intstr.String {
			return desired, fmt.Errorf("port %q has a named targetPort, and only Pods have names for ports", port.Name)
		}
		desired.Ports = append(desired.Ports, discoveryv1.EndpointPort{Name: &port.Name, Port: &port.TargetPort.IntVal, Protocol: &port.Protocol})
	}
	for _, addr := range addrs {
		desired.Endpoints = append(desired.Endpoints, planner.Endpoint{Address: addr.Unmap(), Ready: true, Serving: true})
	}
	return desired, nil
}

// apply sends the writes of a plan in its order, and stops at the first error.
func (f follower) apply(ctx context.Context, plan planner.Plan) error {
	api := f.client.DiscoveryV1().EndpointSlices(f.namespace)
	for _, slice := range plan.Create {
		if _, err := api.Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create EndpointSlice %s: %w", slice.Name, err)
		}
	}
	for _, slice := range plan.Update {
		if _, err := api.Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update EndpointSlice %s: %w", slice.Name, err)
		}
	}
	for _, slice := range plan.Delete {
		only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &slice.UID, ResourceVersion: &slice.ResourceVersion}}
		if err := api.Delete(ctx, slice.Name, only); err != nil {
			return fmt.Errorf("delete EndpointSlice %s: %w", slice.Name, err)
		}
	}
	return nil
}

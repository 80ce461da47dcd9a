package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
)

const (
	// managedBy marks the slices of this program. No other controller changes slices with this label.
	managedBy = "hostname.example.org"
	// fieldManager is what the API server notes for what this program writes.
	fieldManager = "hostname-example"

	maxStale = 3 // how often one sync plans again because another client has written
)

// follower keeps the EndpointSlices of one Service at the addresses of a DNS name.
type follower struct {
	client  kubernetes.Interface
	lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	store   applier.Store
	applier *applier.Applier // with the memory of what was written

	host, namespace, service string
}

// newFollower returns a follower that writes to the store. It runs in one replica: with several, Config.Leading says
// which one writes.
func newFollower(client kubernetes.Interface, store applier.Store) follower {
	return follower{client: client, store: store, applier: applier.New(applier.Config{
		Store: store, FieldManager: fieldManager, Logger: slog.Default(),
		Hooks: applier.Hooks{ // a place for metrics and Events too
			Wrote: func(w applier.Write) {
				slog.Info("slice request", "verb", w.Verb, "slice", w.Slice, "result", w.Result, "took", w.Took)
			},
			RepairDelayed: func(_ corev1.ObjectReference, d applier.RepairDelay) {
				slog.Warn("another client keeps changing a slice", "slice", d.Slice, "by", d.Editor, "next", d.At.Format(time.TimeOnly))
			},
			Rejected: func(_ corev1.ObjectReference, w applier.Write) bool {
				slog.Error("the API server rejects writes", "slice", w.Slice, "error", w.Err)
				return true
			},
		},
	})}
}

// sync writes what has changed, and returns it. It is safe to repeat after any error.
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
	order := applier.Order{
		Service: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: svc.Namespace, Name: svc.Name, UID: svc.UID},
		Desired: desired,
	}
	existing, version, err := f.store.List(ctx, svc.Namespace, desired.Selector())
	if err != nil {
		return planner.Plan{}, fmt.Errorf("list EndpointSlices: %w", err)
	}
	for stale := 0; ; stale++ {
		order.Current = f.applier.Observed(existing, version)
		plan, err := f.applier.Apply(ctx, order)
		if changed := (*applier.StaleError)(nil); !errors.As(err, &changed) || stale == maxStale {
			return plan, err
		}
		// The applier has read the slices again, and Observed returns them.
	}
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
		desired.Ports = append(
			desired.Ports,
			discoveryv1.EndpointPort{Name: &port.Name, Port: &port.TargetPort.IntVal, Protocol: &port.Protocol},
		)
	}
	for _, addr := range addrs {
		desired.Endpoints = append(desired.Endpoints, planner.Endpoint{Address: addr.Unmap(), Ready: true, Serving: true})
	}
	return desired, nil
}

// Applier is a program of somebody else that writes one address to an EndpointSlice, and counts requests itself.
package main

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// memory is a store without a cluster.
type memory struct {
	applier.Store

	slices []*discoveryv1.EndpointSlice
}

func (m *memory) List(context.Context, corev1.ObjectReference) ([]*discoveryv1.EndpointSlice, string, error) {
	return m.slices, fmt.Sprint(len(m.slices)), nil
}

func (m *memory) Create(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	stored := slice.DeepCopy()
	stored.UID, stored.ResourceVersion = "uid", "1"
	m.slices = append(m.slices, stored)
	return stored, nil
}

func main() {
	requests := map[applier.Result]int{}
	store := &memory{}
	a := applier.New(applier.Config{Store: store, Hooks: applier.Hooks{Wrote: func(w applier.Write) { requests[w.Result]++ }}})
	for range 2 {
		service := corev1.ObjectReference{Kind: "Service", Namespace: "shop", Name: "database", UID: "1"}
		existing, version, err := store.List(context.Background(), service)
		if err != nil {
			panic(err)
		}
		plan, err := a.Apply(context.Background(), applier.Order{
			Service: service,
			Desired: planner.Desired{
				Namespace: "shop", Service: "database", ManagedBy: "example.org", FirstName: "database",
				Families:  []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
				Endpoints: []planner.Endpoint{{Address: netip.MustParseAddr("192.0.2.10"), Hostname: "db-0", Ready: true, Serving: true}},
			},
			Current: a.Observed(existing, version),
		})
		fmt.Println(plan.Writes(), "writes,", err)
	}
	fmt.Println(requests)
}

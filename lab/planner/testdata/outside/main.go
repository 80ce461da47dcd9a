// Outside is a program of somebody else that keeps one address in an EndpointSlice.
package main

import (
	"fmt"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/writer/planner"
)

func main() {
	port := int32(5432)
	plan := planner.Compute(planner.Desired{
		Namespace: "shop", Service: "database", ManagedBy: "example.org", FirstName: "database",
		Families:  []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
		Ports:     []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints: []planner.Endpoint{{Address: netip.MustParseAddr("192.0.2.10"), Ready: true, Serving: true}},
	}, nil)
	for _, slice := range plan.Create {
		fmt.Println("create", slice.Name, slice.Endpoints[0].Addresses)
	}
}

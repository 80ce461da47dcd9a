package planner_test

import (
	"fmt"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
)

// A controller that wrote an Endpoints object moves to slices: it still builds the subsets, and hands them over. Once
// the slices are there, it deletes the Endpoints object, and Kubernetes the slices that it mirrored from it.
func Example_endpoints() {
	built := []corev1.EndpointSubset{ //nolint:staticcheck // that is what such a controller has
		{
			Addresses:         []corev1.EndpointAddress{{IP: "192.0.2.1"}, {IP: "192.0.2.2"}},
			NotReadyAddresses: []corev1.EndpointAddress{{IP: "192.0.2.3"}},
			Ports:             []corev1.EndpointPort{{Name: "ldap", Port: 389}},
		},
		{
			Addresses: []corev1.EndpointAddress{{IP: "192.0.2.4"}},
			Ports:     []corev1.EndpointPort{{Name: "ldap", Port: 10389}},
		},
	}
	desired := planner.Desired{
		Namespace: "shop", Service: "directory", FirstName: "directory", ManagedBy: "directory.example.org",
		Owner:      metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: "directory", UID: "the Service's UID"},
		Families:   []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
		PortGroups: map[string][]discoveryv1.EndpointPort{},
	}
	for n, subset := range built {
		group := strconv.Itoa(n)
		for _, port := range subset.Ports {
			desired.PortGroups[group] = append(desired.PortGroups[group],
				discoveryv1.EndpointPort{Name: &port.Name, Port: &port.Port, AppProtocol: port.AppProtocol})
		}
		add := func(addresses []corev1.EndpointAddress, ready bool) {
			for _, a := range addresses {
				desired.Endpoints = append(desired.Endpoints, planner.Endpoint{
					Address: netip.MustParseAddr(a.IP), Hostname: a.Hostname, TargetRef: a.TargetRef,
					PortGroup: group, Ready: ready, Serving: ready,
				})
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)
	}
	for _, slice := range planner.Compute(desired, nil).Create {
		fmt.Printf("%s, port %d:", slice.Name, *slice.Ports[0].Port)
		for _, e := range slice.Endpoints {
			fmt.Printf(" %s ready: %t;", e.Addresses[0], *e.Conditions.Ready)
		}
		fmt.Println()
	}
	// Output:
	// directory, port 389: 192.0.2.1 ready: true; 192.0.2.2 ready: true; 192.0.2.3 ready: false;
	// directory-2, port 10389: 192.0.2.4 ready: true;
}

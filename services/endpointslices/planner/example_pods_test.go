package planner_test

import (
	"fmt"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	inTree "k8s.io/endpointslice"
	inTreeUtil "k8s.io/endpointslice/util"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
)

// Pods that a controller of its own chooses, as Kubernetes would list them: k8s.io/endpointslice knows what of a Pod
// counts. Two versions of a Pod call different ports "http", so they are in different slices.
func Example_pods() {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "the Service's UID"},
		Spec: corev1.ServiceSpec{
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromString("http")}},
		},
	}
	pods := []*corev1.Pod{
		pod("web-1", "10.1.0.1", 8080, true), pod("web-2", "10.1.0.2", 8080, false), pod("web-3", "10.1.0.3", 9090, true),
	}

	desired := planner.Desired{
		Namespace: service.Namespace, Service: service.Name, FirstName: service.Name, ManagedBy: "pods.example.org",
		Owner:      metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID},
		Families:   []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
		PortGroups: map[string][]discoveryv1.EndpointPort{},
	}
	for _, p := range pods {
		if !inTreeUtil.ShouldPodBeInEndpoints(p, service.Spec.PublishNotReadyAddresses) {
			continue
		}
		var ports []discoveryv1.EndpointPort
		group := ""
		for i := range service.Spec.Ports {
			port := &service.Spec.Ports[i]
			number, err := inTree.FindPort(p, port)
			if err != nil {
				continue // Kubernetes leaves it out, too
			}
			target := int32(number)
			ports, group = append(ports, discoveryv1.EndpointPort{Name: &port.Name, Port: &target}), group+strconv.Itoa(number)+" "
		}
		desired.PortGroups[group] = ports
		ready := inTreeUtil.IsPodReady(p)
		desired.Endpoints = append(desired.Endpoints, planner.Endpoint{
			Address: netip.MustParseAddr(p.Status.PodIP), PortGroup: group,
			Ready: ready, Serving: ready, Terminating: p.DeletionTimestamp != nil,
			NodeName:  p.Spec.NodeName,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		})
	}
	for _, slice := range planner.Compute(desired, nil).Create {
		fmt.Printf("port %d:", *slice.Ports[0].Port)
		for _, e := range slice.Endpoints {
			fmt.Printf(" %s on %s, ready: %t;", e.TargetRef.Name, *e.NodeName, *e.Conditions.Ready)
		}
		fmt.Println()
	}
	// Output:
	// port 8080: web-1 on node-a, ready: true; web-2 on node-a, ready: false;
	// port 9090: web-3 on node-a, ready: true;
}

func pod(name, ip string, port int32, ready bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.PodSpec{NodeName: "node-a", Containers: []corev1.Container{{
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: port, Protocol: corev1.ProtocolTCP}},
		}}},
		Status: corev1.PodStatus{
			PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
		},
	}
}

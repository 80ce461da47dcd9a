// Package targetstest builds Services and EndpointSlices as an API server holds them. It does not import
// package targets, so that the tests of that package can use it.
package targetstest

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NewService returns web/shop, a valid, labeled Service.
func NewService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "shop", UID: "svc-1",
			Labels: map[string]string{"slicefeed.dev/class": "default"}, Annotations: map[string]string{},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.9", ClusterIPs: []string{"10.96.0.9"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(30080), Protocol: corev1.ProtocolTCP}},
		},
	}
}

// NamedService returns a headless Service of that name.
func NamedService(name string, uid types.UID) *corev1.Service {
	svc := NewService()
	svc.Name, svc.UID = name, uid
	svc.Spec.ClusterIP, svc.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	return svc
}

// NewSlice returns a slice of the Service web/shop.
func NewSlice(name, manager string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: manager,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
}

// OwnedSlice returns a slice that the writer "slicefeed" of class default wrote for the Service web/shop of that UID.
func OwnedSlice(name string, owner types.UID) *discoveryv1.EndpointSlice {
	s := NewSlice(name, "slicefeed-default")
	s.Labels["slicefeed.dev/writer"] = "slicefeed"
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "shop", UID: owner}}
	return s
}

// SliceNames returns the names of slices.
func SliceNames(list []*discoveryv1.EndpointSlice) []string {
	var all []string
	for _, s := range list {
		all = append(all, s.Name)
	}
	return all
}

package e2e

import (
	"context"
	"net/netip"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// Shop and Web are the namespace and name of a Service of the secured cluster.
const (
	Shop = "shop"
	Web  = "web"
)

// CreateShop makes the Service and lets the inventory read it, and nothing else, by the
// manifest that users apply.
func (s *Setup) CreateShop() {
	s.T.Helper()
	s.CreateNamespace(Shop)
	s.Must(s.Secured.Apply(s.Ctx(), s.Manifest("inventory-rbac-service.yaml")))
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: Web},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": Web}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	_, err := s.SecuredClient().CoreV1().Services(Shop).Create(s.Ctx(), service, metav1.CreateOptions{})
	s.Must(err)
	s.T.Cleanup(func() {
		ctx := context.Background()
		_ = s.SecuredClient().CoreV1().Services(Shop).Delete(ctx, Web, metav1.DeleteOptions{})
		s.Must(s.SecuredClient().DiscoveryV1().EndpointSlices(Shop).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
}

// CreateNamespace creates a namespace of the secured cluster.
func (s *Setup) CreateNamespace(name string) {
	s.T.Helper()
	s.Must(s.Secured.ApplyYAML(s.Ctx(), []byte("{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")))
}

// Manifest is the path of a manifest that users apply.
func (s *Setup) Manifest(name string) string {
	s.T.Helper()
	root, err := pair.Root()
	s.Must(err)
	return filepath.Join(root, "deploy", "manifests", name)
}

// PutShopSlice makes or changes a slice of the Service.
func (s *Setup) PutShopSlice(name string, kind discoveryv1.AddressType, port int32, endpoints ...discoveryv1.Endpoint) {
	s.T.Helper()
	slices := s.SecuredClient().DiscoveryV1().EndpointSlices(Shop)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: Web}},
		AddressType: kind, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}
	if _, err := slices.Create(s.Ctx(), slice, metav1.CreateOptions{}); err == nil {
		return
	}
	before, err := slices.Get(s.Ctx(), name, metav1.GetOptions{})
	s.Must(err)
	slice.ResourceVersion = before.ResourceVersion
	_, err = slices.Update(s.Ctx(), slice, metav1.UpdateOptions{})
	s.Must(err)
}

// Backing is the endpoint of a Pod with an address and conditions.
func Backing(pod string, address netip.Addr, want pair.Condition) discoveryv1.Endpoint {
	ready, leaving := want == pair.Ready, want == pair.Draining
	serving := ready || leaving
	return discoveryv1.Endpoint{
		Addresses:  []string{address.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &leaving},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: Shop, Name: pod, UID: types.UID("uid-of-" + pod)},
	}
}

// Named gives an endpoint the hostname of its Pod, as Kubernetes does for the Pods of a StatefulSet.
func Named(e discoveryv1.Endpoint, hostname string) discoveryv1.Endpoint {
	e.Hostname, e.NodeName = &hostname, new("a-node-of-theirs")
	return e
}

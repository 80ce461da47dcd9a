package e2e

import (
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// GetSlice reads a slice from the API server itself: the watch may be behind.
func (s *Setup) GetSlice(name string) *discoveryv1.EndpointSlice {
	s.T.Helper()
	slice, err := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).Get(s.Ctx(), name, metav1.GetOptions{})
	s.Must(err)
	return slice
}

// Serves accepts slices in which all these addresses get traffic, with or without explicit conditions.
func Serves(addresses ...netip.Addr) func([]*discoveryv1.EndpointSlice) bool {
	return func(all []*discoveryv1.EndpointSlice) bool {
		ready := map[string]bool{}
		for _, slice := range all {
			for _, e := range slice.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					ready[e.Addresses[0]] = true
				}
			}
		}
		for _, a := range addresses {
			if !ready[a.String()] {
				return false
			}
		}
		return true
	}
}

// ExpectAlways checks each state of the slices since then.
func (s *Setup) ExpectAlways(since time.Time, what string, are func([]*discoveryv1.EndpointSlice) bool) {
	s.T.Helper()
	past, cancel := context.WithCancel(s.T.Context())
	cancel() // of what has been, not of what may come
	var bad string
	_, err := s.WaitSlicesSince(past, since, func(all []*discoveryv1.EndpointSlice) bool {
		bad = pair.Describe(all)
		return !are(all)
	})
	if err == nil {
		s.T.Errorf("there was a moment without it: %s; the slices said: %s", what, bad)
	}
}

// Owned accepts one slice, which is owned by the own Service only.
func Owned(s *Setup) func([]*discoveryv1.EndpointSlice) bool {
	return func(all []*discoveryv1.EndpointSlice) bool {
		return len(all) == 1 && len(all[0].OwnerReferences) == 1 && all[0].OwnerReferences[0].UID == s.Service.UID
	}
}

// WithoutCloud are the settings of an inventory that knows no cloud.
func WithoutCloud() map[string]string {
	return map[string]string{
		"RESOLVER": "node-address", "IONOS_TOKEN_FILE": "", "IONOS_DATACENTER_ID": "", "IONOS_PRIVATE_LAN_ID": "",
		"IONOS_API_URL": "", "IONOS_CA_FILE": "",
	}
}

// CreateNode makes a Node that is ready and has addresses, without a machine.
func (s *Setup) CreateNode(name string, internal ...netip.Addr) {
	s.T.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		}}},
	}
	for _, a := range internal {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	_, err := s.SecuredClient().CoreV1().Nodes().Create(s.Ctx(), node, metav1.CreateOptions{})
	s.Must(err)
}

// CreateSlice creates a slice as another client would.
func (s *Setup) CreateSlice(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.T.Helper()
	made, err := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).Create(s.Ctx(), slice, metav1.CreateOptions{})
	s.Must(err)
	return made
}

// UpdateSlice replaces a slice as another client would.
func (s *Setup) UpdateSlice(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.T.Helper()
	now, err := s.ConsumingClient().DiscoveryV1().EndpointSlices(slice.Namespace).Update(s.Ctx(), slice, metav1.UpdateOptions{})
	s.Must(err)
	return now
}

// NewSlice is a slice of the own Service with ready endpoints.
func NewSlice(name, managedBy string, all ...netip.Addr) *discoveryv1.EndpointSlice {
	yes, no, http, tcp, port := true, false, "http", corev1.ProtocolTCP, int32(pair.NodePort)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: pair.Namespace, Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: pair.Service, discoveryv1.LabelManagedBy: managedBy,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &http, Protocol: &tcp, Port: &port}},
	}
	for _, a := range all {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{a.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		})
	}
	return slice
}

// AnyReady accepts slices with a ready endpoint.
func AnyReady(all []*discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(all, func(s *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return *e.Conditions.Ready })
	})
}

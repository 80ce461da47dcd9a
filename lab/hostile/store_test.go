package hostile

import (
	"context"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

// store writes to the fake cluster, which knows no requests as the real one's client makes them.
type store struct{ kubernetes.Interface }

// Create creates a slice.
func (s store) Create(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	return s.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice, metav1.CreateOptions{})
}

// Update replaces one.
func (s store) Update(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	return s.DiscoveryV1().EndpointSlices(slice.Namespace).Update(ctx, slice, metav1.UpdateOptions{})
}

// Delete deletes one.
func (s store) Delete(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	return s.DiscoveryV1().EndpointSlices(slice.Namespace).Delete(ctx, slice.Name, metav1.DeleteOptions{})
}

// Get reads one.
func (s store) Get(ctx context.Context, namespace, name string) (*discoveryv1.EndpointSlice, error) {
	return s.DiscoveryV1().EndpointSlices(namespace).Get(ctx, name, metav1.GetOptions{})
}

// List reads those of a Service.
func (s store) List(ctx context.Context, namespace string, with map[string]string) ([]*discoveryv1.EndpointSlice, string, error) {
	list, err := s.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set(with).String()})
	if err != nil {
		return nil, "", err
	}
	var all []*discoveryv1.EndpointSlice
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, list.ResourceVersion, nil
}

package churn

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// desired is a Service of the lab with these endpoints, as the writer gives it to its planner.
func desired(endpoints []planner.Endpoint) planner.Desired {
	return planner.Desired{
		Namespace: namespace,
		Service:   service,
		FirstName: "slicefeed-shop",
		ManagedBy: "slicefeed-default",
		Writer:    namespace,
		Owner:     *metav1.NewControllerRef(&metav1.ObjectMeta{Name: service, UID: serviceUID}, corev1.SchemeGroupVersion.WithKind("Service")),
		Families:  []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
		Ports:     []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(nodePort))}},
		Endpoints: endpoints,
	}
}

// plan brings the cluster to what is desired as our planner would, and returns what that takes.
func (c *cluster) plan(d planner.Desired) cost {
	todo := planner.Compute(d, c.slices)
	sent := cost{writes: todo.Writes()}
	for _, slice := range todo.Create {
		sent.bytes += size(slice)
		c.put(slice)
	}
	for _, slice := range todo.Update {
		sent.bytes += size(slice)
		c.put(slice)
	}
	for _, slice := range todo.Delete {
		only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &slice.UID, ResourceVersion: &slice.ResourceVersion}}
		sent.bytes += only.Size()
		c.remove(slice.Name)
	}
	return sent
}

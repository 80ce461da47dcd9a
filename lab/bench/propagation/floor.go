package propagation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// floor is the least that any tool would have to do: a watch of the Node in one API
// server, and for each event one update of a slice in the other. No logic, no link, no cache.
type floor struct {
	node    *node
	address netip.Addr
	sight   *sight

	nodes     <-chan watch.Event
	consuming *kubernetes.Clientset
	slice     *discoveryv1.EndpointSlice
}

const floorName = "floor"

func newFloor(ctx context.Context, p *pair.Pair) (*floor, error) {
	secured, err := newClient(p.Secured)
	if err != nil {
		return nil, err
	}
	consuming, err := newClient(p.Consuming)
	if err != nil {
		return nil, err
	}
	f := &floor{node: &node{secured}, address: netip.MustParseAddr("10.0.2.10"), consuming: consuming}

	// The pair leaves this Node out by its label: it costs a look at a label on that side.
	made, err := secured.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: floorName, Labels: map[string]string{corev1.LabelNodeExcludeBalancers: "true"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	w, err := secured.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + floorName, ResourceVersion: made.ResourceVersion,
	})
	if err != nil {
		return nil, err
	}
	f.nodes = w.ResultChan()

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: floorName}}
	if _, err := consuming.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if f.slice, err = consuming.DiscoveryV1().EndpointSlices(floorName).Create(ctx, f.initial(), metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	f.sight, err = newSight(ctx, p.Consuming, floorName)
	return f, err
}

// initial is a slice of the same size and make as the pair's.
func (f *floor) initial() *discoveryv1.EndpointSlice {
	yes, no, port, protocol, name := true, false, int32(pair.NodePort), corev1.ProtocolTCP, "http"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: floorName, Labels: map[string]string{
			discoveryv1.LabelServiceName: floorName, discoveryv1.LabelManagedBy: floorName,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	for a, i := f.address, 0; i <= readyWorkers; a, i = a.Next(), i+1 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{a.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		})
	}
	return slice
}

// loop runs until ctx is done.
func (f *floor) loop(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-f.nodes:
			if !ok {
				return errors.New("the floor's watch of its Node ended")
			}
			node, ok := event.Object.(*corev1.Node)
			if !ok {
				continue
			}
			next := f.slice.DeepCopy()
			ready := node.Status.Conditions[0].Status == corev1.ConditionTrue
			next.Endpoints[0].Conditions.Ready, next.Endpoints[0].Conditions.Serving = &ready, &ready
			var err error
			if f.slice, err = f.consuming.DiscoveryV1().EndpointSlices(floorName).Update(ctx, next, metav1.UpdateOptions{}); err != nil {
				return fmt.Errorf("update the floor's slice: %w", err)
			}
		}
	}
}

// node is the floor's Node.
type node struct{ client *kubernetes.Clientset }

// SetReady patches the Node's status, as the pair's worker does.
func (n *node) SetReady(ctx context.Context, ready bool) error {
	status := "False"
	if ready {
		status = "True"
	}
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)
	_, err := n.client.CoreV1().Nodes().Patch(ctx, floorName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

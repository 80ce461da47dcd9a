// Package floor is the least that any tool would have to do, and the eyes that see when it is
// done: a watch of one Node in one API server and an update of one slice in the other for each
// event. It promises that the pair and the floor are seen by the same code; it refuses logic, a
// link and a cache.
package floor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// Namespace is where the floor's slices are, so that no writer looks at them.
const Namespace = "floor"

// First is the address of the floor's first endpoint.
var First = netip.MustParseAddr("10.2.0.1")

// Unseen are labels of a Node that the pair leaves out: it costs a look at a label there.
func Unseen() map[string]string { return map[string]string{corev1.LabelNodeExcludeBalancers: "true"} }

// Floor is the loop, and what is needed to set it going and to see what comes of it.
type Floor struct {
	Node  *pair.Node // whose readiness the first endpoint of the slice follows
	Sight *Sight

	nodes  watch.Interface
	client *kubernetes.Clientset
	slice  *discoveryv1.EndpointSlice
}

// New makes a Node of its own in the herd's cluster and a slice of so many endpoints.
func New(ctx context.Context, p *pair.Pair, herd *pair.Herd, endpoints int) (*Floor, error) {
	f := &Floor{}
	if err := f.prepare(ctx, p, herd, endpoints); err != nil {
		return nil, fmt.Errorf("prepare a floor of %d endpoints: %w", endpoints, err)
	}
	return f, nil
}

func (f *Floor) prepare(ctx context.Context, p *pair.Pair, herd *pair.Herd, endpoints int) error {
	name := fmt.Sprintf("floor-%d", len(herd.Nodes()))
	f.Node = herd.NewNode(name, First)
	if err := f.Node.Join(ctx, Unseen()); err != nil {
		return err
	}
	secured, err := pair.FastClient(p.Secured)
	if err != nil {
		return err
	}
	only := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	list, err := secured.CoreV1().Nodes().List(ctx, only)
	if err != nil {
		return err
	}
	only.ResourceVersion = list.ResourceVersion
	if f.nodes, err = secured.CoreV1().Nodes().Watch(ctx, only); err != nil {
		return err
	}
	if f.client, err = pair.FastClient(p.Consuming); err != nil {
		return err
	}
	if err := Open(ctx, f.client); err != nil {
		return err
	}
	f.slice, err = f.client.DiscoveryV1().EndpointSlices(Namespace).Create(ctx, Slice(name, f.Node.Address, endpoints), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	f.Sight, err = NewSight(ctx, p, Namespace)
	return err
}

// Open makes the floor's namespace, unless it is there.
func Open(ctx context.Context, client *kubernetes.Clientset) error {
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Slice is one of the make of the pair's, with so many ready endpoints from an address on.
func Slice(name string, from netip.Addr, endpoints int) *discoveryv1.EndpointSlice {
	yes, no, port, protocol, portName := true, false, int32(pair.NodePort), corev1.ProtocolTCP, "http"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: Namespace,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: Namespace,
				"slicefeed.dev/source": "default", "slicefeed.dev/writer": Namespace,
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
	}
	for a := from; len(slice.Endpoints) < endpoints; a = a.Next() {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{a.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		})
	}
	return slice
}

// Turned is the slice with its first endpoint as told.
func Turned(slice *discoveryv1.EndpointSlice, ready bool) *discoveryv1.EndpointSlice {
	next := slice.DeepCopy()
	next.Endpoints[0].Conditions.Ready, next.Endpoints[0].Conditions.Serving = &ready, &ready
	return next
}

// Run follows the Node until ctx is done; its error is then nil.
func (f *Floor) Run(ctx context.Context) error {
	defer f.nodes.Stop()
	defer f.Sight.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-f.nodes.ResultChan():
			if !ok {
				return errors.New("the floor's watch of its Node ended")
			}
			node, ok := event.Object.(*corev1.Node)
			if !ok {
				continue
			}
			var err error
			f.slice, err = f.client.DiscoveryV1().EndpointSlices(Namespace).Update(ctx, Turned(f.slice, isReady(node)), metav1.UpdateOptions{})
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("update the floor's slice: %w", err)
			}
		}
	}
}

func isReady(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

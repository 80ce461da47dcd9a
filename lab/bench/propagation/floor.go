package propagation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// floorNamespace is where the floor's slices are, so that no writer looks at them.
const floorNamespace = "floor"

// floorAddress is the address of the floor's first endpoint.
var floorAddress = netip.MustParseAddr("10.2.0.1")

// floorLabels keep the floor's Node out of the pair's set, for the cost of a look at a label.
func floorLabels() map[string]string {
	return map[string]string{corev1.LabelNodeExcludeBalancers: "true"}
}

// floor is the least that any tool would have to do: a watch of one Node in one API server, and an update of each slice
// in the other for each event, in a loop without logic, link, cache or process of its own. What is inherent it has as
// the pair does: protobuf, TLS, a Node made and changed by the same code, and slices of the same size.
type floor struct {
	sight  *sight
	nodes  watch.Interface
	client *kubernetes.Clientset // of the consuming cluster

	mu     sync.Mutex
	slices []*discoveryv1.EndpointSlice
	marks  []mark
}

// newFloor watches the Node, and makes the slices. Their first endpoints follow the Node's readiness.
func newFloor(
	ctx context.Context,
	p *pair.Pair,
	node string,
	reader, writer *kubernetes.Clientset,
	slices ...*discoveryv1.EndpointSlice,
) (*floor, error) {
	f := &floor{client: writer}
	only := metav1.ListOptions{FieldSelector: "metadata.name=" + node}
	list, err := reader.CoreV1().Nodes().List(ctx, only)
	if err != nil {
		return nil, err
	}
	only.ResourceVersion = list.ResourceVersion
	if f.nodes, err = reader.CoreV1().Nodes().Watch(ctx, only); err != nil {
		return nil, err
	}
	for _, slice := range slices {
		made, err := writer.DiscoveryV1().EndpointSlices(floorNamespace).Create(ctx, slice, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		f.slices = append(f.slices, made)
	}
	f.sight, err = newSight(ctx, p, floorNamespace)
	return f, err
}

// run follows the Node until ctx is done; its error is then nil.
func (f *floor) run(ctx context.Context) error {
	defer f.nodes.Stop()
	defer f.sight.close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-f.nodes.ResultChan():
			if !ok {
				return errors.New("the floor's watch of its Node ended")
			}
			if node, ok := event.Object.(*corev1.Node); ok {
				if err := f.follow(ctx, node); err != nil && ctx.Err() == nil {
					return fmt.Errorf("update the floor's slices: %w", err)
				}
			}
		}
	}
}

// requestsUnderWay is the limit of the floor's, as it is of the writer's.
const requestsUnderWay = 64

func (f *floor) follow(ctx context.Context, node *corev1.Node) (err error) {
	received := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	ready := isServing(node)
	if len(f.slices) == 1 {
		next := turned(f.slices[0], ready)
		f.marks = append(f.marks, mark{received, "watch event"}, mark{time.Now(), "plan"})
		f.slices[0], err = f.client.DiscoveryV1().EndpointSlices(floorNamespace).Update(ctx, next, metav1.UpdateOptions{})
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(requestsUnderWay)
	for i := range f.slices {
		all.Go(func() (err error) {
			f.slices[i], err = f.client.DiscoveryV1().
				EndpointSlices(floorNamespace).
				Update(ctx, turned(f.slices[i], ready), metav1.UpdateOptions{})
			return err
		})
	}
	return all.Wait()
}

// passed are the milestones of all changes so far.
func (f *floor) passed() []mark {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.marks
}

func isServing(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0
		}
	}
	return false
}

// newSlice is a slice as the pair makes them, with so many ready endpoints from the floor's address on.
func newSlice(name string, endpoints int) *discoveryv1.EndpointSlice {
	yes, no, port, protocol, portName := true, false, int32(pair.NodePort), corev1.ProtocolTCP, "http"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: floorNamespace,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: floorNamespace,
				"slicefeed.dev/source": "default", "slicefeed.dev/writer": floorNamespace,
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
	}
	for a := floorAddress; len(slice.Endpoints) < endpoints; a = a.Next() {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{a.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		})
	}
	return slice
}

// turned is a copy of the slice whose first endpoint is ready or not.
func turned(slice *discoveryv1.EndpointSlice, ready bool) *discoveryv1.EndpointSlice {
	next := slice.DeepCopy()
	next.Endpoints[0].Conditions.Ready, next.Endpoints[0].Conditions.Serving = &ready, &ready
	return next
}

const (
	floorAccount = `
apiVersion: v1
kind: Namespace
metadata: {name: floor}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: floor, namespace: floor}
---
`
	floorReads = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: floor}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: floor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: floor}
subjects: [{kind: ServiceAccount, namespace: floor, name: floor}]
`
	floorWrites = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: floor, namespace: floor}
rules: [{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [create, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: floor, namespace: floor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: floor}
subjects: [{kind: ServiceAccount, namespace: floor, name: floor}]
`
)

// newLeastPrivilegeFloor has accounts with no more rights than they need, a worker of the pair's, a slice like the
// pair's, and the admission policy that checks each write, all as the pair has them.
func newLeastPrivilegeFloor(ctx context.Context, p *pair.Pair, address netip.Addr) (*floor, *pair.Worker, error) {
	reader, err := floorClient(ctx, p.Secured, floorReads)
	if err != nil {
		return nil, nil, err
	}
	writer, err := floorClient(ctx, p.Consuming, floorWrites)
	if err != nil {
		return nil, nil, err
	}
	if err := p.ExtendPolicy(ctx, "system:serviceaccount:"+floorNamespace+":"+floorNamespace, floorNamespace); err != nil {
		return nil, nil, err
	}
	worker, err := p.AddWorker(pair.WorkerOptions{Name: floorNamespace, Address: address, Labels: floorLabels()})
	if err != nil {
		return nil, nil, err
	}
	if err := worker.Join(ctx); err != nil {
		return nil, nil, err
	}
	slice, err := imitation(ctx, p, address)
	if err != nil {
		return nil, nil, err
	}
	f, err := newFloor(ctx, p, worker.Name, reader, writer, slice)
	return f, worker, err
}

// floorClient makes the floor's account with these rights, and returns its client.
func floorClient(ctx context.Context, plane *controlplane.ControlPlane, rights string) (*kubernetes.Clientset, error) {
	if err := plane.ApplyYAML(ctx, []byte(floorAccount+rights)); err != nil {
		return nil, err
	}
	kubeconfig, err := plane.ServiceAccountKubeconfig(ctx, floorNamespace, floorNamespace)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.ContentType, config.QPS = "application/vnd.kubernetes.protobuf", -1
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfig(config)
}

// imitation says what the pair's only slice says now, but for the first address.
func imitation(ctx context.Context, p *pair.Pair, address netip.Addr) (*discoveryv1.EndpointSlice, error) {
	pairs, err := p.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if len(pairs.Items) != 1 {
		return nil, fmt.Errorf("the pair has %d slices, want 1 to imitate", len(pairs.Items))
	}
	slice := pairs.Items[0]
	slice.ObjectMeta = metav1.ObjectMeta{
		Name:            slice.Name,
		Namespace:       floorNamespace,
		Labels:          slice.Labels,
		Annotations:     slice.Annotations,
		OwnerReferences: slice.OwnerReferences,
	}
	slice.Endpoints[0].Addresses = []string{address.String()}
	return &slice, nil
}

// imitate makes the floor's slice as large as the pair's is now.
func (f *floor) imitate(ctx context.Context, p *pair.Pair, address netip.Addr) error {
	slice, err := imitation(ctx, p, address)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	slice.ResourceVersion = f.slices[0].ResourceVersion
	f.slices[0], err = f.client.DiscoveryV1().EndpointSlices(floorNamespace).Update(ctx, slice, metav1.UpdateOptions{})
	return err
}

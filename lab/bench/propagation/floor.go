package propagation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// floorNamespace is where the floor's slice is, so that no writer looks at it.
const floorNamespace = "floor"

// floorAddress is the address of the floor's Node: the admission policy allows it, and no node of the herd has it.
var floorAddress = netip.MustParseAddr("10.1.255.254")

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

// account is the floor's in both clusters: it has no more rights than it needs, and the admission policy checks each of
// its writes, as with the pair.
type account struct {
	pair           *pair.Pair
	reader, writer *kubernetes.Clientset
}

func newAccount(ctx context.Context, p *pair.Pair) (*account, error) {
	a := &account{pair: p}
	var err error
	if a.reader, err = floorClient(ctx, p.Secured, floorReads); err != nil {
		return nil, err
	}
	if a.writer, err = floorClient(ctx, p.Consuming, floorWrites); err != nil {
		return nil, err
	}
	return a, p.ExtendPolicy(ctx, "system:serviceaccount:"+floorNamespace+":"+floorNamespace, floorNamespace)
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

// floor is the least that any tool would have to do: a watch of one Node in one API server, and an update of one slice
// in the other for each event, in a loop without logic, link, cache or process of its own. What is inherent it has as
// the pair does: protobuf, TLS, a Node made and changed by the same code, and a slice of the same size.
type floor struct {
	sight  *sight
	node   *pair.Node
	nodes  watch.Interface
	client *kubernetes.Clientset // of the consuming cluster
	slice  *discoveryv1.EndpointSlice
}

// newFloor makes a Node that the inventory excludes, and a slice as large as the largest of the pair's, whose first
// endpoint follows that Node.
func (a *account) newFloor(ctx context.Context, herd *pair.Herd) (*floor, error) {
	f := &floor{client: a.writer, node: herd.NewNode(fmt.Sprintf("floor-%d", len(herd.Nodes())), floorAddress)}
	if err := f.node.Join(ctx, map[string]string{corev1.LabelNodeExcludeBalancers: "true"}); err != nil {
		return nil, err
	}
	only := metav1.ListOptions{FieldSelector: "metadata.name=" + f.node.Name}
	list, err := a.reader.CoreV1().Nodes().List(ctx, only)
	if err != nil {
		return nil, err
	}
	only.ResourceVersion = list.ResourceVersion
	if f.nodes, err = a.reader.CoreV1().Nodes().Watch(ctx, only); err != nil {
		return nil, err
	}
	slice, err := imitation(ctx, a.pair, f.node)
	if err != nil {
		return nil, err
	}
	if f.slice, err = a.writer.DiscoveryV1().EndpointSlices(floorNamespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	f.sight, err = newSight(ctx, a.pair, floorNamespace)
	return f, err
}

// imitation is the largest of the pair's slices, with the Node as the first endpoint.
func imitation(ctx context.Context, p *pair.Pair, node *pair.Node) (*discoveryv1.EndpointSlice, error) {
	all := p.ConsumingClient().DiscoveryV1()
	if err := all.EndpointSlices(floorNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return nil, err
	}
	pairs, err := all.EndpointSlices(pair.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var slice discoveryv1.EndpointSlice
	for _, s := range pairs.Items {
		if len(s.Endpoints) > len(slice.Endpoints) {
			slice = s
		}
	}
	if len(slice.Endpoints) == 0 {
		return nil, errors.New("the pair has no slice to imitate")
	}
	slice.ObjectMeta = metav1.ObjectMeta{
		Name:            slice.Name,
		Namespace:       floorNamespace,
		Labels:          slice.Labels,
		Annotations:     slice.Annotations,
		OwnerReferences: slice.OwnerReferences,
	}
	slice.Endpoints[0].Addresses = []string{node.Address.String()}
	return &slice, nil
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
			node, ok := event.Object.(*corev1.Node)
			if !ok {
				continue
			}
			next, err := f.client.DiscoveryV1().EndpointSlices(floorNamespace).
				Update(ctx, turned(f.slice, isServing(node)), metav1.UpdateOptions{})
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("update the floor's slice: %w", err)
			}
			f.slice = next
		}
	}
}

// isServing is all that the floor knows of Nodes.
func isServing(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0
		}
	}
	return false
}

// turned is a copy of the slice whose first endpoint is ready or not.
func turned(slice *discoveryv1.EndpointSlice, ready bool) *discoveryv1.EndpointSlice {
	next := slice.DeepCopy()
	next.Endpoints[0].Conditions.Ready, next.Endpoints[0].Conditions.Serving = &ready, &ready
	return next
}

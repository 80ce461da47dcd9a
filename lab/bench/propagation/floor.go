package propagation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicefeed/slicefeed/lab/bench/floor"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// raw is the loop without logic, link, cache or process of its own. What is inherent it has as the
// pair does: a Node made and patched by the same code, a slice that says the same, protobuf, TLS,
// accounts with no more rights than they need, and the admission policy that checks each write.
type raw struct {
	worker *pair.Worker
	sight  *floor.Sight
	nodes  watch.Interface
	client *kubernetes.Clientset

	mu    sync.Mutex
	slice *discoveryv1.EndpointSlice
	marks []mark
}

const (
	rawAccount = `
apiVersion: v1
kind: Namespace
metadata: {name: floor}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: floor, namespace: floor}
---
`
	rawReads = `
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
	rawWrites = `
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

// newRaw makes the Node and the slice of the loop, which Run sets going.
func newRaw(ctx context.Context, p *pair.Pair, address netip.Addr) (*raw, error) {
	r := &raw{}
	if err := r.prepare(ctx, p, address); err != nil {
		return nil, fmt.Errorf("prepare the floor: %w", err)
	}
	return r, nil
}

func (r *raw) prepare(ctx context.Context, p *pair.Pair, address netip.Addr) error {
	reader, err := account(ctx, p.Secured, rawReads)
	if err != nil {
		return err
	}
	if r.client, err = account(ctx, p.Consuming, rawWrites); err != nil {
		return err
	}
	if err := p.ExtendPolicy(ctx, "system:serviceaccount:"+floor.Namespace+":"+floor.Namespace, floor.Namespace); err != nil {
		return err
	}
	if r.worker, err = p.AddWorker(pair.WorkerOptions{Name: floor.Namespace, Address: address, Labels: floor.Unseen()}); err != nil {
		return err
	}
	if err := r.worker.Join(ctx); err != nil {
		return err
	}
	only := metav1.ListOptions{FieldSelector: "metadata.name=" + r.worker.Name}
	list, err := reader.CoreV1().Nodes().List(ctx, only)
	if err != nil {
		return err
	}
	only.ResourceVersion = list.ResourceVersion
	if r.nodes, err = reader.CoreV1().Nodes().Watch(ctx, only); err != nil {
		return err
	}
	if err := r.imitate(ctx, p); err != nil {
		return err
	}
	r.sight, err = floor.NewSight(ctx, p, floor.Namespace)
	return err
}

// account makes one of the loop's with these rights, and returns its client.
func account(ctx context.Context, plane *controlplane.ControlPlane, rights string) (*kubernetes.Clientset, error) {
	if err := plane.ApplyYAML(ctx, []byte(rawAccount+rights)); err != nil {
		return nil, err
	}
	kubeconfig, err := plane.ServiceAccountKubeconfig(ctx, floor.Namespace, floor.Namespace)
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

// imitate makes the loop's slice say what the pair's only one says now, but for the first address.
func (r *raw) imitate(ctx context.Context, p *pair.Pair) error {
	pairs, err := p.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(pairs.Items) != 1 {
		return fmt.Errorf("the pair has %d slices: want 1 to imitate", len(pairs.Items))
	}
	its := pairs.Items[0]
	its.ObjectMeta = metav1.ObjectMeta{
		Name: its.Name, Namespace: floor.Namespace, Labels: its.Labels, Annotations: its.Annotations, OwnerReferences: its.OwnerReferences,
	}
	its.Endpoints[0].Addresses = []string{r.worker.Address.String()}
	r.mu.Lock()
	defer r.mu.Unlock()
	slices := r.client.DiscoveryV1().EndpointSlices(floor.Namespace)
	if r.slice == nil {
		r.slice, err = slices.Create(ctx, &its, metav1.CreateOptions{})
		return err
	}
	its.ResourceVersion = r.slice.ResourceVersion
	r.slice, err = slices.Update(ctx, &its, metav1.UpdateOptions{})
	return err
}

// Run follows the Node until ctx is done; its error is then nil.
func (r *raw) Run(ctx context.Context) error {
	defer r.nodes.Stop()
	defer r.sight.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-r.nodes.ResultChan():
			if !ok {
				return errors.New("the floor's watch of its Node ended")
			}
			if node, ok := event.Object.(*corev1.Node); ok {
				if err := r.follow(ctx, node); err != nil && ctx.Err() == nil {
					return fmt.Errorf("update the floor's slice: %w", err)
				}
			}
		}
	}
}

func (r *raw) follow(ctx context.Context, node *corev1.Node) (err error) {
	told := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	next := floor.Turned(r.slice, node.Status.Conditions[0].Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0)
	r.marks = append(r.marks, mark{told, "watch event"}, mark{time.Now(), "plan"})
	r.slice, err = r.client.DiscoveryV1().EndpointSlices(floor.Namespace).Update(ctx, next, metav1.UpdateOptions{})
	return err
}

// passed are the milestones of all changes so far.
func (r *raw) passed() []mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.marks
}

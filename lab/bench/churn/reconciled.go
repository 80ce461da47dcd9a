package churn

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	inTree "k8s.io/endpointslice"
	inTreeUtil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"

	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// tree runs the reconciler of Kubernetes' own EndpointSlice controller for the same Service,
// on a Pod for each endpoint. What only a Pod's endpoint has, its name and that of its node,
// is there when the reconciler reads a slice, and is counted apart in what it writes.
type tree struct {
	service    *corev1.Service
	reconciler *inTree.Reconciler
	client     *fake.Clientset
	cluster    *cluster // what it writes to
	sent       cost
}

const treeNode = "node"

func newTree() *tree {
	d := desired(nil)
	t := &tree{service: &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Service, UID: serviceUID,
			// It gives its slices the Service's labels, and takes off all others. So both write as many.
			Labels: map[string]string{planner.LabelSource: planner.DefaultSource, planner.LabelWriter: d.Writer},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP:  "10.96.0.10",
			ClusterIPs: []string{"10.96.0.10"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{
				{Name: *d.Ports[0].Name, Protocol: *d.Ports[0].Protocol, Port: 80, TargetPort: intstr.FromInt32(nodePort)},
			},
		},
	}}
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	_ = nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: treeNode}}) // an indexer in memory refuses no object that has a name
	t.client = &fake.Clientset{}
	t.client.AddReactor("*", "endpointslices", t.write)
	t.reconciler = inTree.NewReconciler(t.client, corelisters.NewNodeLister(nodes), perSlice,
		inTreeUtil.NewEndpointSliceTracker(), nil, record.NewFakeRecorder(1), d.ManagedBy)
	return t
}

func (t *tree) write(action clienttesting.Action) (bool, runtime.Object, error) {
	t.sent.writes++
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		slice := action.Object.(*discoveryv1.EndpointSlice)
		slice.Name = fmt.Sprintf("%s%05d", slice.GenerateName, t.cluster.version)
		t.put(slice)
		return true, slice, nil
	case clienttesting.UpdateActionImpl:
		slice := action.Object.(*discoveryv1.EndpointSlice)
		t.put(slice)
		return true, slice, nil
	case clienttesting.DeleteActionImpl:
		t.sent.bytes += (&metav1.DeleteOptions{}).Size()
		t.cluster.remove(action.Name)
		return true, nil, nil
	}
	return false, nil, nil
}

func (t *tree) put(slice *discoveryv1.EndpointSlice) {
	plain := withoutPods(slice)
	t.sent.bytes += size(plain)
	t.sent.pods += size(slice) - size(plain)
	t.cluster.put(plain)
	slice.ResourceVersion, slice.UID = plain.ResourceVersion, plain.UID
}

// reconcile brings the cluster to what is desired as the in-tree controller would, and
// returns what that takes. Annotations that it would add, with the time of the change, are left out.
func (t *tree) reconcile(c *cluster, endpoints []planner.Endpoint) (cost, error) {
	t.cluster, t.sent = c, cost{}
	t.client.ClearActions() // it would keep them all
	existing := make([]*discoveryv1.EndpointSlice, len(c.slices))
	for i, slice := range c.slices {
		existing[i] = withPods(slice, len(c.slices))
	}
	pods := make([]*corev1.Pod, len(endpoints))
	for i := range endpoints {
		pods[i] = podOf(&endpoints[i])
	}
	if err := t.reconciler.Reconcile(klog.Logger{}, t.service, pods, existing, time.Time{}); err != nil {
		return cost{}, fmt.Errorf("the in-tree reconciler: %w", err)
	}
	return t.sent, nil
}

// withPods and withoutPods translate between the two ways of writing the same: only a Pod's
// endpoint names its node and its Pod, and the slice of a Service without endpoints, of which
// both keep one, has no ports in-tree.
func withPods(slice *discoveryv1.EndpointSlice, of int) *discoveryv1.EndpointSlice {
	out := *slice
	if len(slice.Endpoints) == 0 && of == 1 {
		out.Ports = nil
	}
	out.Endpoints = slices.Clone(slice.Endpoints)
	for i := range out.Endpoints {
		e := &out.Endpoints[i]
		name := podName(e.Addresses[0])
		e.NodeName = new(treeNode)
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name, UID: types.UID(name)}
	}
	return &out
}

func withoutPods(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := *slice
	if len(slice.Endpoints) == 0 {
		out.Ports = desired(nil).Ports
	}
	out.Endpoints = slices.Clone(slice.Endpoints)
	for i := range out.Endpoints {
		out.Endpoints[i].NodeName, out.Endpoints[i].TargetRef = nil, nil
	}
	return &out
}

func podName(address string) string { return "pod-" + address }

// podOf is the Pod from which the in-tree reconciler makes this endpoint.
func podOf(e *planner.Endpoint) *corev1.Pod {
	address, status := e.Address.String(), corev1.ConditionFalse
	if e.Serving {
		status = corev1.ConditionTrue
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: podName(address), UID: types.UID(podName(address))},
		Spec:       corev1.PodSpec{NodeName: treeNode},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
		},
	}
	if e.Terminating {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	return pod
}

package planner

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// inTreeOracle runs the reconciler of Kubernetes' own EndpointSlice controller for the same Service, with
// synthetic Pods on one node.
type inTreeOracle struct {
	service    *corev1.Service
	reconciler *inTree.Reconciler
	cluster    *fakeCluster // that it writes to
	writes     int
	written    []*discoveryv1.EndpointSlice
}

func newInTreeOracle(d Desired) *inTreeOracle {
	o := &inTreeOracle{service: &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Service, UID: d.Owner.UID,
		},
		Spec: corev1.ServiceSpec{
			ClusterIP:  "10.96.0.10",
			ClusterIPs: []string{"10.96.0.10"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{
				{Name: *d.Ports[0].Name, Protocol: *d.Ports[0].Protocol, Port: 80, TargetPort: intstr.FromString("named")},
			},
		},
	}}
	o.relabel(d)
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	_ = nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	client := &fake.Clientset{}
	client.AddReactor("*", "endpointslices", o.write)
	o.reconciler = inTree.NewReconciler(client, corelisters.NewNodeLister(nodes), defaultMaxPerSlice,
		inTreeUtil.NewEndpointSliceTracker(), nil, record.NewFakeRecorder(1), d.ManagedBy)
	return o
}

// relabel sets the labels of the Service. The reconciler gives its slices these labels and removes all others.
func (o *inTreeOracle) relabel(d Desired) {
	o.service.Labels = map[string]string{labelGroup: defaultGroup, labelInstance: d.InstanceLabels[labelInstance]}
	maps.Copy(o.service.Labels, d.Labels)
}

func (o *inTreeOracle) write(action clienttesting.Action) (bool, runtime.Object, error) {
	o.writes++
	switch action.GetVerb() {
	case "create":
		slice := action.(clienttesting.CreateAction).GetObject().(*discoveryv1.EndpointSlice)
		o.cluster.version++
		slice.Name = fmt.Sprint(slice.GenerateName, "tree-", o.cluster.version)
		slice.UID = types.UID(slice.Name)
		o.cluster.slices, o.written = append(o.cluster.slices, slice), append(o.written, slice)
		return true, slice, nil
	case "update":
		slice := action.(clienttesting.UpdateAction).GetObject().(*discoveryv1.EndpointSlice)
		o.cluster.slices[o.cluster.find(slice.Name)], o.written = slice, append(o.written, slice)
		return true, slice, nil
	case "delete":
		i := o.cluster.find(action.(clienttesting.DeleteAction).GetName())
		o.cluster.slices = slices.Delete(o.cluster.slices, i, i+1)
		return true, nil, nil
	}
	return false, nil, nil
}

// reconcile returns the slices after the in-tree reconciler, and its number of writes.
func (o *inTreeOracle) reconcile(t *rapid.T, d Desired, existing *fakeCluster) (*fakeCluster, int) {
	o.cluster, o.writes, o.written = &fakeCluster{slices: existing.copy(), version: existing.version}, 0, nil
	for _, slice := range o.cluster.slices {
		toInTree(slice, len(o.cluster.slices))
	}
	pods := make([]*corev1.Pod, len(d.Endpoints))
	for i, e := range d.Endpoints {
		pods[i] = podOf(d, e)
	}
	if err := o.reconciler.Reconcile(klog.Logger{}, o.service, pods, slices.Clone(o.cluster.slices), time.Time{}); err != nil {
		t.Fatalf("the in-tree reconciler: %v", err)
	}
	for _, slice := range o.cluster.slices {
		fromInTree(slice, d)
	}
	return o.cluster, o.writes
}

// toInTree and fromInTree convert equivalent slices: only endpoints of Pods have a node and a Pod, and
// in-tree the one slice of a Service without endpoints has no ports.
func toInTree(slice *discoveryv1.EndpointSlice, of int) {
	if len(slice.Endpoints) == 0 && of == 1 {
		slice.Ports = nil
	}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		name := podName(e.Addresses[0])
		e.NodeName = ptr.To("node")
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: slice.Namespace, Name: name, UID: types.UID(name)}
	}
}

func fromInTree(slice *discoveryv1.EndpointSlice, d Desired) {
	if len(slice.Endpoints) == 0 {
		slice.Ports = d.Ports
	}
	for i := range slice.Endpoints {
		slice.Endpoints[i].NodeName, slice.Endpoints[i].TargetRef = nil, nil
	}
}

func podName(addr string) string { return "pod-" + addr }

// sizeOf is what is sent of slices: without their names, which each side chooses itself.
func sizeOf(all []*discoveryv1.EndpointSlice) (bytes int) {
	for _, slice := range all {
		nameless := *slice
		nameless.Name, nameless.GenerateName, nameless.UID, nameless.ResourceVersion = "", "", "", ""
		bytes += nameless.Size()
	}
	return bytes
}

// podOf is the Pod for which the in-tree reconciler writes this endpoint. Its named port has the number of the
// endpoint's port group, and its hostname counts since its subdomain is the Service.
func podOf(d Desired, e Endpoint) *corev1.Pod {
	addr, status := e.Address.String(), corev1.ConditionFalse
	if e.Serving {
		status = corev1.ConditionTrue
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: podName(addr), UID: types.UID(podName(addr))},
		Spec: corev1.PodSpec{
			NodeName:  "node",
			Hostname:  e.Hostname,
			Subdomain: d.Service,
			Containers: []corev1.Container{
				{Ports: []corev1.ContainerPort{{Name: "named", Protocol: corev1.ProtocolTCP, ContainerPort: *portsOf(d, e)[0].Port}}},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: addr, PodIPs: []corev1.PodIP{{IP: addr}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
		},
	}
	if e.Terminating {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	return pod
}

// endpointPool is the changing endpoints of a Service.
type endpointPool struct {
	endpoints  []Endpoint
	groups     int // port groups besides the default
	used       int // number of addresses used so far; each is used once
	beforeZero int // number of endpoints before the Service was scaled to zero
}

// add adds endpoints to all port groups in turn.
func (c *endpointPool) add(k int) {
	for range k {
		c.addTo(c.used % (c.groups + 1))
	}
}

func (c *endpointPool) addTo(group int) {
	c.used++
	e := readyEndpoint(netip.AddrFrom4([4]byte{10, 0, byte(c.used >> 8), byte(c.used)}).String())
	if e.PortGroup = fmt.Sprint("group-", group); group > 0 {
		e.Hostname = fmt.Sprint("db-", c.used)
	}
	c.endpoints = append(c.endpoints, e)
}

// change makes one random change and returns its description.
func (c *endpointPool) change(t *rapid.T) string {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "which"), 0))
	kind := rapid.SampledFrom([]string{"add", "remove", "flip", "replace", "add", "remove", "flip", "replace", "zero"}).Draw(t, "change")
	// An even distribution: numbers that rapid draws are mostly small.
	k := 1 + random.IntN([]int{3, 30, 150}[random.IntN(3)])
	c.endpoints = slices.Clone(c.endpoints)
	if random.IntN(2) == 0 { // otherwise the oldest, which share slices
		random.Shuffle(len(c.endpoints), func(i, j int) { c.endpoints[i], c.endpoints[j] = c.endpoints[j], c.endpoints[i] })
	} else {
		slices.SortFunc(c.endpoints, func(a, b Endpoint) int { return a.Address.Compare(b.Address) })
	}
	switch {
	case len(c.endpoints) == 0 && c.beforeZero > 0:
		kind, k, c.beforeZero = "back", c.beforeZero, 0
		c.add(k)
		return fmt.Sprint(kind, " ", k)
	case len(c.endpoints) > 300:
		kind = "remove"
	case len(c.endpoints) == 0:
		kind = "add"
	}
	n := min(k, len(c.endpoints))
	switch kind {
	case "add":
		c.add(k)
	case "remove":
		c.endpoints = c.endpoints[n:]
	case "replace":
		c.endpoints = c.endpoints[n:]
		c.add(n)
	case "flip":
		for i := range n {
			// Ready, not ready, draining: all states of a Pod's endpoint.
			states := [][3]bool{{true, true, false}, {false, false, false}, {false, true, true}}
			at := slices.Index(states, [3]bool{c.endpoints[i].Ready, c.endpoints[i].Serving, c.endpoints[i].Terminating})
			s := states[(at+1+random.IntN(2))%3]
			c.endpoints[i].Ready, c.endpoints[i].Serving, c.endpoints[i].Terminating = s[0], s[1], s[2]
		}
	case "zero":
		c.beforeZero, c.endpoints = len(c.endpoints), nil
	}
	return fmt.Sprint(kind, " ", k)
}

// found is what consumers find of an address.
type found struct {
	ready, serving, terminating bool
	hostname                    string
	port                        int32
}

func foundByAddress(slices []*discoveryv1.EndpointSlice) map[string]found {
	out := map[string]found{}
	for _, slice := range slices {
		for _, e := range slice.Endpoints {
			out[e.Addresses[0]] = found{
				*e.Conditions.Ready,
				*e.Conditions.Serving,
				*e.Conditions.Terminating,
				ptr.Deref(e.Hostname, ""),
				*slice.Ports[0].Port,
			}
		}
	}
	return out
}

// randomCluster returns a cluster with randomly filled slices, and their endpoints.
func randomCluster(t *rapid.T, d Desired) (*fakeCluster, *endpointPool) {
	out, c := &fakeCluster{}, &endpointPool{groups: len(d.PortGroups)}
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "layout"), 0))
	for i := range rapid.IntRange(0, 4).Draw(t, "slices") {
		slice := d.newSlice(fmt.Sprint(d.FirstName, "-", i), discoveryv1.AddressTypeIPv4)
		slice.UID, slice.Labels = types.UID(
			slice.Name,
		), d.sliceLabels(
			&plannedSlice{base: slice, group: &sliceGroup{name: defaultGroup}},
		)
		slice.OwnerReferences = []metav1.OwnerReference{d.Owner}
		at := len(c.endpoints)
		group := random.IntN(c.groups + 1)
		for range 1 + random.IntN(defaultMaxPerSlice) {
			c.addTo(group)
		}
		slice.Ports = portsOf(d, c.endpoints[at])
		for _, e := range c.endpoints[at:] {
			slice.Endpoints = append(slice.Endpoints, toAPI(&e))
		}
		out.slices = append(out.slices, slice)
	}
	return out, c
}

// Both plan each change from the same slices, once from those after the planner and once from those
// after the in-tree reconciler.
//
// Over a sequence their slices differ, and the test compares only the sums: the cost of a later change
// depends on which endpoints share a slice, and the in-tree reconciler takes them from a map in random
// order, which is sometimes better by chance.
func TestNeedsNoMoreWritesThanInTreeReconciler(t *testing.T) {
	var sequences, changes, fewer, exceeded int
	var sum struct{ writes, slices struct{ planner, inTree int } }
	rapid.Check(t, func(t *rapid.T) {
		d := testTarget(0)
		d.Owner = *metav1.NewControllerRef(&metav1.ObjectMeta{Name: d.Service, UID: "svc-1"}, corev1.SchemeGroupVersion.WithKind("Service"))
		d.Ports[0].Protocol = ptr.To(corev1.ProtocolTCP)
		d.PortGroups = map[string][]discoveryv1.EndpointPort{}
		for i := range rapid.IntRange(0, 2).Draw(t, "port groups") {
			d.PortGroups[fmt.Sprint("group-", i+1)] = []discoveryv1.EndpointPort{
				{Name: d.Ports[0].Name, Protocol: d.Ports[0].Protocol, Port: ptr.To(int32(8081 + i))},
			}
		}
		tree := newInTreeOracle(d)
		byPlanner, c := randomCluster(t, d)
		byInTree := &fakeCluster{slices: byPlanner.copy()}
		plannerWrites, inTreeWrites := 0, 0
		for range rapid.IntRange(1, 14).Draw(t, "changes") {
			changed := c.change(t)
			d.Endpoints = c.endpoints
			if rapid.IntRange(0, 3).Draw(t, "labels") == 0 {
				d.Labels = rapid.SampledFrom([]map[string]string{
					nil, {"team": "a"}, {"team": "b"}, {"service.kubernetes.io/service-proxy-name": "other-proxy"},
				}).Draw(t, "relabel")
				tree.relabel(d)
				changed += fmt.Sprint(", labels ", d.Labels)
			}
			both := func(from *fakeCluster) (planned, reconciled *fakeCluster, plan, writes int) {
				planned = &fakeCluster{slices: from.copy(), version: from.version}
				todo := Compute(d, planned.slices)
				planned.apply(t, todo, func() {})
				reconciled, writes = tree.reconcile(t, d, from)
				if todo.Writes() > writes {
					t.Fatalf("%s: %d writes, in-tree %d", changed, todo.Writes(), writes)
				}
				if k := todo.Writes(); k == 1 && writes == 1 && strings.HasSuffix(changed, " 1") {
					if got, want := sizeOf(slices.Concat(todo.Create, todo.Update)), sizeOf(tree.written); got > want {
						t.Fatalf("%s: %d bytes, in-tree %d", changed, got, want)
					}
				}
				if want, got := foundByAddress(reconciled.slices), foundByAddress(planned.slices); !maps.Equal(want, got) {
					t.Fatalf("%s: endpoints differ from in-tree: %s", changed, cmp.Diff(want, got, cmp.AllowUnexported(found{})))
				}
				if todo.Writes() < writes {
					fewer++
				}
				changes++
				return planned, reconciled, todo.Writes(), writes
			}
			var n int
			byPlanner, _, n, _ = both(byPlanner)
			plannerWrites += n
			_, byInTree, _, n = both(byInTree)
			inTreeWrites += n
		}
		sequences++
		sum.writes.planner += plannerWrites
		sum.writes.inTree += inTreeWrites
		sum.slices.planner += len(byPlanner.slices)
		sum.slices.inTree += len(byInTree.slices)
		if plannerWrites > inTreeWrites || len(byPlanner.slices) > len(byInTree.slices) {
			exceeded++
		}
	})
	t.Logf("%d changes, %d of them with fewer writes than in-tree, none with more", changes, fewer)
	t.Logf("%d sequences, each from its own slices: %d writes, in-tree %d; %d slices left, in-tree %d; more than in-tree in %d",
		sequences, sum.writes.planner, sum.writes.inTree, sum.slices.planner, sum.slices.inTree, exceeded)
	if sequences >= 50 && (sum.writes.planner > sum.writes.inTree || sum.slices.planner > sum.slices.inTree) {
		t.Error("over whole sequences the in-tree reconciler needs fewer writes or slices")
	}
}

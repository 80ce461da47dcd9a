package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// testCluster is a fake cluster, a running source of its Nodes, and the states reported so far.
type testCluster struct {
	*Nodes

	t      *testing.T
	client *fake.Clientset
	states map[string]roster.NodeState
}

func startCluster(t *testing.T, rules Rules, objects ...any) *testCluster {
	t.Helper()
	client := fake.NewClientset()
	watching := make(chan struct{}, 10)
	client.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		stream, err := client.Tracker().Watch(a.GetResource(), a.GetNamespace())
		watching <- struct{}{} // the fake client loses changes between list and watch
		return true, stream, err
	})
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *corev1.Node:
			_, err = client.CoreV1().Nodes().Create(t.Context(), o, metav1.CreateOptions{})
		case *corev1.Pod:
			_, err = client.CoreV1().Pods(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	n := New(Config{Client: client, Rules: rules, Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	<-watching
	if rules.Workload != nil {
		<-watching
	}
	return &testCluster{Nodes: n, t: t, client: client, states: map[string]roster.NodeState{}}
}

// awaitStates takes updates until the nodes have exactly these states.
func (c *testCluster) awaitStates(want map[string]roster.NodeState) {
	c.t.Helper()
	deadline := time.After(20 * time.Second)
	for !maps.Equal(want, c.states) {
		select {
		case <-c.Changed():
		case <-deadline:
			c.t.Fatal(cmp.Diff(want, c.states))
		}
		update := c.Take()
		for _, n := range update.Changed {
			c.states[n.Name] = n.State
		}
		for _, name := range update.Removed {
			delete(c.states, name)
		}
	}
}

func TestFollowsNodes(t *testing.T) {
	c := startCluster(t, Rules{}, newWorker("a"), newWorker("b"))
	c.awaitStates(map[string]roster.NodeState{"a": roster.Ready, "b": roster.Ready})
	ctx, nodes := t.Context(), c.client.CoreV1().Nodes()
	for _, err := range []error{
		errOf(nodes.Create(ctx, newWorker("c"), metav1.CreateOptions{})),
		errOf(nodes.Update(ctx, newWorker("b", notReady), metav1.UpdateOptions{})),
		nodes.Delete(ctx, "a", metav1.DeleteOptions{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c.awaitStates(map[string]roster.NodeState{"b": roster.NotReady, "c": roster.Ready})
}

func TestCountsCordonedNodes(t *testing.T) {
	c := startCluster(t, Rules{}, newWorker("a", cordoned), newWorker("b"), newWorker("c", cordoned, withLabel(labelControlPlane, "")))
	c.awaitStates(map[string]roster.NodeState{"a": roster.Ready, "b": roster.Ready, "c": roster.Ready})
	if n := c.countCordoned(); n != 1 {
		t.Errorf("%v Nodes, want the worker alone", n)
	}
}

func errOf[T any](_ T, err error) error { return err }

func gatewayRules(t *testing.T) Rules {
	t.Helper()
	w, err := ParseWorkload("ingress/app=gateway")
	if err != nil {
		t.Fatal(err)
	}
	return Rules{Workload: w}
}

func newPod(node, name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ingress", Name: name, Labels: map[string]string{"app": "gateway"}},
		Spec:       corev1.PodSpec{NodeName: node},
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, e := range edit {
		e(p)
	}
	return p
}

func deletingPod(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
func notReadyPod(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func TestWorkloadDrainEndsWithLastPod(t *testing.T) {
	c := startCluster(t, gatewayRules(t), newWorker("a"), newWorker("b"), newPod("a", "one"), newPod("a", "two", notReadyPod))
	ctx, pods := t.Context(), c.client.CoreV1().Pods("ingress")
	c.awaitStates(map[string]roster.NodeState{"a": roster.Ready, "b": roster.NotReady})
	update := func(p *corev1.Pod) {
		t.Helper()
		if _, err := pods.Update(ctx, p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.client.CoreV1().
		Nodes().
		Update(ctx, newWorker("a", cordoned, withTaint(taintAutoscaler)), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Create(ctx, newPod("b", "three"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitStates(map[string]roster.NodeState{"a": roster.Ready, "b": roster.Ready}) // the drained node still has a ready Pod
	update(newPod("a", "one", deletingPod))
	c.awaitStates(map[string]roster.NodeState{"a": roster.Draining, "b": roster.Ready})
	update(newPod("a", "two"))
	c.awaitStates(map[string]roster.NodeState{"a": roster.Ready, "b": roster.Ready})
	update(newPod("b", "two")) // as when a Pod of a StatefulSet moves to another node
	c.awaitStates(map[string]roster.NodeState{"a": roster.Draining, "b": roster.Ready})
	if err := pods.Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Verify(ctx, roster.FullVerification); err != nil {
		t.Fatal(err)
	}
	c.Take()
	c.awaitStates(map[string]roster.NodeState{"a": roster.Draining, "b": roster.Ready}) // by the autoscaler's taint
	if pods := c.pods.Take().Objects; len(c.countsByNode) != 1 || len(pods) != 2 {
		t.Errorf("deleted objects are kept: %v, %v", c.countsByNode, pods)
	}
}

// While the Pods of the workload cannot be read, nothing is verified: the states that depend on them are unknown.
func TestUnreadablePodsKeepTheSourceUnverified(t *testing.T) {
	client := fake.NewClientset(newWorker("a"))
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, k8sruntime.Object, error) {
		return true, nil, errors.New("forbidden in this test")
	})
	n := New(Config{Client: client, Rules: gatewayRules(t), Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	if _, err := n.Verify(ctx, roster.FullVerification); err == nil || !strings.Contains(err.Error(), "forbidden in this test") {
		t.Errorf("got %v", err)
	}
	cancel()
	<-done
	if update := n.Take(); update.Verified != 0 {
		t.Errorf("verified %d", update.Verified)
	}
}

func TestRequestsOnlyPodsOfWorkload(t *testing.T) {
	c := startCluster(t, gatewayRules(t), newWorker("a"), newPod("a", "one"))
	c.awaitStates(map[string]roster.NodeState{"a": roster.Ready})
	if _, err := c.Verify(t.Context(), roster.LightVerification); err != nil {
		t.Fatal(err)
	}
	requests := 0
	for _, action := range c.client.Actions() {
		if action.GetResource().Resource != "pods" {
			continue
		}
		var labelSelector, fieldSelector string
		switch a := action.(type) {
		case clienttesting.ListAction:
			labelSelector, fieldSelector = a.GetListRestrictions().Labels.String(), a.GetListRestrictions().Fields.String()
		case clienttesting.WatchAction:
			labelSelector, fieldSelector = a.GetWatchRestrictions().Labels.String(), a.GetWatchRestrictions().Fields.String()
		default:
			continue
		}
		requests++
		if action.GetNamespace() != "ingress" || labelSelector != "app=gateway" || fieldSelector != "spec.nodeName!=,status.phase=Running" {
			t.Errorf("%s pods of %q, labels %q, fields %q", action.GetVerb(), action.GetNamespace(), labelSelector, fieldSelector)
		}
	}
	if requests < 3 {
		t.Errorf("%d lists and watches of pods", requests)
	}
}

func TestRequestsNoPodsWithoutWorkload(t *testing.T) {
	c := startCluster(t, Rules{}, newWorker("a"))
	c.awaitStates(map[string]roster.NodeState{"a": roster.Ready})
	if _, err := c.Verify(t.Context(), roster.FullVerification); err != nil {
		t.Fatal(err)
	}
	for _, action := range c.client.Actions() {
		if action.GetResource().Resource == "pods" {
			t.Errorf("%s pods", action.GetVerb())
		}
	}
}

func TestPodMemoryIsBounded(t *testing.T) {
	const n = 20_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	kind := podKind(fake.NewClientset(), *gatewayRules(t).Workload)
	kept := make([]podState, 0, n)
	before := heap()
	for i := range n {
		p := newPod(fmt.Sprintf("node-%d", i%100), fmt.Sprintf("gateway-%d", i))
		p.Annotations = map[string]string{"big": strings.Repeat("x", 4096)}
		kept = append(kept, kind.Extract(p))
	}
	if each := (heap() - before) / n; each > 256 {
		t.Errorf("%d bytes are kept per Pod", each)
	}
	runtime.KeepAlive(kept)
}

func TestParseWorkload(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"ingress/app=gateway", "ingress/app=gateway"},
		{"ingress/app.kubernetes.io/name=gateway,tier!=test", "ingress/app.kubernetes.io/name=gateway,tier!=test"},
		{"ingress/Deployment/gateway", "ingress/deployment/gateway"},
		{"ingress/deployment/role=gateway", "ingress/deployment/role=gateway"},
		{"ingress/deployment/Gateway", ""},
		{"ingress/deployment/", ""},
		{"app=gateway", ""},
		{"ingress/", ""},
		{"/app=gateway", ""},
		{"Ingress/app=gateway", ""},
		{"ingress/app in gateway", ""},
	} {
		w, err := ParseWorkload(tc.text)
		got := ""
		if err == nil && w.Selector != nil {
			got = w.Namespace + "/" + w.Selector.String()
		} else if err == nil {
			got = w.Namespace + "/" + w.Kind + "/" + w.Name
		}
		if (err == nil) != (tc.want != "") || got != tc.want {
			t.Errorf("%q: %q, %v", tc.text, got, err)
		}
	}
}

func TestStateFromWorkload(t *testing.T) {
	workload := &Workload{Namespace: "ingress", Selector: labels.SelectorFromSet(labels.Set{"app": "gateway"})}
	ready, terminating, none, failing := podCounts{all: 1, ready: 1}, podCounts{all: 1, readyDeleting: 1}, podCounts{}, podCounts{all: 1}
	for _, tc := range []struct {
		name   string
		edit   []func(*corev1.Node)
		drains bool
		pods   podCounts
		want   roster.NodeState
	}{
		{"a ready Pod runs there", nil, false, ready, roster.Ready},
		{"no Pod runs there", nil, false, none, roster.NotReady},
		{"its Pod is not ready", nil, false, failing, roster.NotReady},
		{"its only ready Pod is being deleted", nil, false, terminating, roster.Draining},
		{"the kubelet is not ready", []func(*corev1.Node){notReady}, false, ready, roster.NotReady},
		{"cordoned", []func(*corev1.Node){cordoned}, false, ready, roster.Ready},
		{"cordoned where that means drain", []func(*corev1.Node){cordoned}, true, ready, roster.Ready},
		{"cordoned where that means drain, and the Pod has left", []func(*corev1.Node){cordoned}, true, none, roster.Draining},
		{"cordoned, and the Pod has left", []func(*corev1.Node){cordoned}, false, none, roster.NotReady},
		{"tainted by the autoscaler", []func(*corev1.Node){withTaint(taintAutoscaler)}, false, ready, roster.Ready},
		{"tainted by the autoscaler, and the Pod has left", []func(*corev1.Node){withTaint(taintAutoscaler)}, false, none, roster.Draining},
		{"being deleted", []func(*corev1.Node){deleting}, false, ready, roster.Draining},
		{"shut down", []func(*corev1.Node){withTaint(taintShutdown)}, false, ready, roster.NotReady},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := newWorker("w", tc.edit...)
			rules := Rules{DrainCordoned: tc.drains, Workload: workload}
			if got := summarizeNode(node, rules).evaluate(rules, tc.pods); got.State != tc.want {
				t.Errorf("got %s, want %s", got.State, tc.want)
			}
		})
	}
}

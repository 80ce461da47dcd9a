package kube

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Workload selects Pods: with a workload, a node is ready only while a ready Pod of it runs there.
type Workload struct {
	Namespace string
	Selector  labels.Selector // nil: by Kind and Name
	Kind      string          // one of workloadKinds
	Name      string
}

// workloadKinds are the kinds of workloads that can be named, in lower case.
var workloadKinds = []string{"deployment", "statefulset", "daemonset"}

// ParseWorkload parses <namespace>/<label selector>, such as ingress/app=gateway, or <namespace>/<kind>/<name>, such as
// ingress/deployment/gateway. It rejects an empty selector, which selects every Pod of the namespace and is probably a
// mistake.
func ParseWorkload(text string) (*Workload, error) {
	namespace, rest, ok := strings.Cut(text, "/")
	if !ok {
		return nil, errors.New("no slash")
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return nil, fmt.Errorf("%q is not a namespace", namespace)
	}
	kind, name, named := strings.Cut(rest, "/")
	if named && slices.Contains(workloadKinds, strings.ToLower(kind)) && !strings.ContainsAny(name, "=!,( ") {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return nil, fmt.Errorf("%q is not the name of a %s", name, kind)
		}
		return &Workload{Namespace: namespace, Kind: strings.ToLower(kind), Name: name}, nil
	}
	s, err := labels.Parse(rest)
	if err != nil {
		return nil, err
	}
	if s.Empty() {
		return nil, errors.New("label selector is empty")
	}
	return &Workload{Namespace: namespace, Selector: s}, nil
}

// runningSelector selects the Pods that run on a node. A Pod that ends or fails leaves the
// selection, which the watch reports as a deletion.
var runningSelector = fields.AndSelectors(
	fields.OneTermNotEqualSelector("spec.nodeName", ""),
	fields.OneTermEqualSelector("status.phase", string(corev1.PodRunning)),
).String()

func podKind(client kubernetes.Interface, w Workload) Kind[*corev1.Pod, podState] {
	selector := "" // all Pods of the namespace
	if w.Selector != nil {
		selector = w.Selector.String()
	}
	return Kind[*corev1.Pod, podState]{
		Resource: "pods", Example: &corev1.Pod{},
		Requests: cluster.NewRequests(client.CoreV1().Pods(w.Namespace), selector, runningSelector),
		Extract: func(p *corev1.Pod) podState {
			if !w.has(p) {
				return podState{} // on no node
			}
			return readPod(p)
		},
		Equal: func(a, b podState) bool { return a == b },
	}
}

// has reports whether a Pod of the request belongs to the workload. The ReplicaSet of a Deployment is named
// like it, a dash, and the hash in the Pod's label pod-template-hash.
func (w *Workload) has(p *corev1.Pod) bool {
	if w.Selector != nil {
		return true
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return false
	}
	kind, name := strings.ToLower(owner.Kind), owner.Name
	if hash := p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; kind == "replicaset" && hash != "" {
		kind, name = "deployment", strings.TrimSuffix(name, "-"+hash)
	}
	return kind == w.Kind && name == w.Name
}

// podState is where a Pod of the workload runs, and whether it serves.
type podState struct {
	node            string
	ready, deleting bool
}

// readPod returns the state of a running Pod. A Pod that is being deleted may still be ready:
// it finishes its open requests.
func readPod(p *corev1.Pod) podState {
	state := podState{node: roster.KeepValid(p.Spec.NodeName, maxIdentifier), deleting: p.DeletionTimestamp != nil}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			state.ready = true
		}
	}
	return state
}

// podCounts counts the running Pods of the workload on one node.
type podCounts struct {
	all           int
	ready         int // ready and not being deleted
	readyDeleting int // ready and being deleted
}

// plus returns the counts with one more Pod.
func (c podCounts) plus(p podState) podCounts {
	c.all++
	switch {
	case p.ready && p.deleting:
		c.readyDeleting++
	case p.ready:
		c.ready++
	}
	return c
}

func (c podCounts) String() string {
	switch {
	case c.all == 0:
		return "none running"
	case c.readyDeleting > 0:
		return fmt.Sprintf("%d running, %d ready, %d ready and being deleted", c.all, c.ready, c.readyDeleting)
	}
	return fmt.Sprintf("%d running, %d ready", c.all, c.ready)
}

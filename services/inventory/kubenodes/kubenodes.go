// Package kubenodes follows the Nodes of the secured cluster, and the Pods of a workload if
// one is given, and judges which Nodes count and in which state. It promises the careful
// following of kubewatch, and that each change is judged at the cost of the Nodes it is about. It
// refuses to change anything there, and to keep more of a Node or Pod than it is judged by.
package kubenodes

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/slicefeed/slicefeed/services/inventory/kubewatch"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// listWatcher lists and watches objects, whose list is an L.
type listWatcher[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Config is what Nodes needs. All fields are mandatory but Rules and Pods.
type Config struct {
	Nodes      listWatcher[*corev1.NodeList]
	Pods       listWatcher[*corev1.PodList] // of the workload's namespace; nil: Rules have no workload
	Client     any                          // behind both: see kubewatch.Config
	Rules      Rules
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Nodes follows the Nodes of a cluster. Its methods are safe for concurrent use.
type Nodes struct {
	rules    Rules
	nodes    *kubewatch.Watch[nodeSummary]
	pods     *kubewatch.Watch[podState] // nil: no workload is given
	verifier *kubewatch.Verifier
	changed  chan struct{} // capacity 1

	mu           sync.Mutex
	nodesByName  map[string]nodeSummary      // Nodes by name
	reported     map[string]roster.Candidate // as they were told last, by name
	podsByName   map[string]podState         // Pods by name
	countsByNode map[string]podCounts        // the Pods on a Node, by its name

	sharedSteps [][]roster.Step // the last few that differ: most Nodes share one
}

// maxSharedSteps is how many are remembered to be shared.
const maxSharedSteps = 16

// New returns Nodes that have read nothing yet: see Run.
func New(cfg Config) *Nodes {
	n := &Nodes{
		rules: cfg.Rules, changed: make(chan struct{}, 1),
		nodesByName: map[string]nodeSummary{}, reported: map[string]roster.Candidate{}, podsByName: map[string]podState{}, countsByNode: map[string]podCounts{},
	}
	watching := kubewatch.Config{
		Client: cfg.Client, Log: cfg.Log, Metrics: kubewatch.NewMetrics(cfg.Registerer), Changed: n.changed,
	}
	n.nodes = kubewatch.New(nodeKind(cfg.Nodes, cfg.Rules), watching)
	if cfg.Rules.Workload == nil {
		n.verifier = kubewatch.NewVerifier(n.nodes)
		return n
	}
	n.pods = kubewatch.New(podKind(cfg.Pods, *cfg.Rules.Workload), watching)
	n.verifier = kubewatch.NewVerifier(n.nodes, n.pods)
	return n
}

func nodeKind(nodes listWatcher[*corev1.NodeList], rules Rules) kubewatch.Kind[nodeSummary] {
	return kubewatch.Kind[nodeSummary]{
		Resource: "nodes", Example: &corev1.Node{},
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) },
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return nodes.Watch(ctx, o)
		},
		Extract: func(o runtime.Object) nodeSummary {
			node, _ := o.(*corev1.Node)
			return summarizeNode(node, rules)
		},
		Equal: nodeSummary.equal,
	}
}

// runningSelector selects Pods that a node runs: others prove nothing of a node, and a Pod that ends
// or fails leaves the selection, which the watch tells as a deletion.
var runningSelector = fields.AndSelectors(
	fields.OneTermNotEqualSelector("spec.nodeName", ""),
	fields.OneTermEqualSelector("status.phase", string(corev1.PodRunning)),
).String()

func podKind(pods listWatcher[*corev1.PodList], w Workload) kubewatch.Kind[podState] {
	selected := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = w.Selector.String(), runningSelector
		return o
	}
	return kubewatch.Kind[podState]{
		Resource: "pods", Example: &corev1.Pod{},
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, selected(o))
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, selected(o))
		},
		Extract: func(o runtime.Object) podState {
			p, _ := o.(*corev1.Pod)
			return readPod(p)
		},
		Equal: func(a, b podState) bool { return a == b },
	}
}

// Run follows the cluster until ctx is done; its error is then nil.
func (n *Nodes) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.nodes.Run(ctx) })
	if n.pods != nil {
		g.Go(func() error { return n.pods.Run(ctx) })
	}
	return g.Wait()
}

// Verify asks the API server whether what was told can be believed: see kubewatch.Verifier.
func (n *Nodes) Verify(ctx context.Context, look roster.Look) (mark uint64, err error) {
	return n.verifier.Verify(ctx, look)
}

// Changed receives when there is something to take. It has room for one signal, which
// stands for any number of changes.
func (n *Nodes) Changed() <-chan struct{} { return n.changed }

// Take returns what the watches have told since the last Take, judged.
func (n *Nodes) Take() roster.News {
	n.mu.Lock()
	defer n.mu.Unlock()
	var news roster.News
	dirty := map[string]struct{}{}

	nodes := n.nodes.Take()
	for _, o := range nodes.Changed {
		n.nodesByName[o.Name] = o.Value
		dirty[o.Name] = struct{}{}
	}
	for _, name := range nodes.Removed {
		delete(n.nodesByName, name)
		dirty[name] = struct{}{}
	}
	at, rvs := []time.Time{nodes.LastContact}, []uint64{nodes.ResourceVersion}
	news.Failure, news.ChangedAt = nodes.Failure, nodes.ChangedAt

	if n.pods != nil {
		pods := n.pods.Take()
		for _, o := range pods.Changed {
			n.updatePod(o.Name, o.Value, dirty)
		}
		for _, name := range pods.Removed {
			n.updatePod(name, podState{}, dirty)
		}
		at, rvs = append(at, pods.LastContact), append(rvs, pods.ResourceVersion)
		news.Failure = joinFailures(news.Failure, pods.Failure)
		if at := pods.ChangedAt; news.ChangedAt.IsZero() || !at.IsZero() && at.Before(news.ChangedAt) {
			news.ChangedAt = at
		}
	}

	for _, name := range slices.Sorted(maps.Keys(dirty)) {
		before, wasTold := n.reported[name]
		s, ok := n.nodesByName[name]
		if !ok {
			if wasTold {
				delete(n.reported, name)
				news.Removed = append(news.Removed, name)
			}
			continue
		}
		c := s.candidate
		var states []roster.Step
		c.State, states = s.evaluateState(n.rules, n.countsByNode[name])
		c.Trail = n.joinSteps(c.Trail, states)
		if wasTold && equalCandidates(before, c) {
			continue
		}
		n.reported[name] = c
		news.Changed = append(news.Changed, c)
	}
	news.HeardAt, news.Mark = n.verifier.Progress(at, rvs)
	return news
}

// joinSteps joins steps, in a slice that Nodes whose steps are the same share.
func (n *Nodes) joinSteps(eligibility, state []roster.Step) []roster.Step {
	for _, known := range n.sharedSteps {
		if k := len(eligibility); len(known) == k+len(state) && slices.Equal(known[:k], eligibility) && slices.Equal(known[k:], state) {
			return known
		}
	}
	joined := slices.Concat(eligibility, state)
	n.sharedSteps = append(n.sharedSteps[max(0, len(n.sharedSteps)-maxSharedSteps+1):], joined)
	return joined
}

// updatePod takes in that a Pod is now where and as it is told; the zero Pod is nowhere.
func (n *Nodes) updatePod(name string, now podState, dirty map[string]struct{}) {
	before := n.podsByName[name]
	if before == now {
		return
	}
	for _, p := range []struct {
		podState

		by int
	}{{before, -1}, {now, +1}} {
		if p.node == "" {
			continue
		}
		c := n.countsByNode[p.node].plus(p.podState, p.by)
		if n.countsByNode[p.node] = c; c == (podCounts{}) {
			delete(n.countsByNode, p.node)
		}
		dirty[p.node] = struct{}{}
	}
	if n.podsByName[name] = now; now.node == "" {
		delete(n.podsByName, name)
	}
}

func joinFailures(a, b string) string {
	return strings.Join(slices.DeleteFunc([]string{a, b}, func(s string) bool { return s == "" }), "; ")
}

// Workload are the Pods that make a node worth sending traffic to.
type Workload struct {
	Namespace string
	Selector  labels.Selector
}

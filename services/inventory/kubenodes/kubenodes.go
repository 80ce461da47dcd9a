// Package kubenodes reads the Nodes of the secured cluster, and the Pods of the workload if one
// is configured, and evaluates which Nodes are eligible and in which state. It guarantees what
// kubewatch guarantees, and that a change costs only the evaluation of the Nodes it affects. It
// does not write to the cluster, and it keeps only those fields of a Node or Pod that it evaluates.
package kubenodes

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/inventory/kubewatch"
)

// Config is what Nodes needs. All fields except Rules are mandatory.
type Config struct {
	Client     kubernetes.Interface
	Rules      Rules
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Nodes is the source of the Nodes of a cluster. Its methods are safe for concurrent use.
type Nodes struct {
	rules    Rules
	nodes    *kubewatch.Watch[nodeSummary]
	verifier *kubewatch.Verifier
	changed  chan struct{} // capacity 1

	mu          sync.Mutex
	nodesByName map[string]nodeSummary
	reported    map[string]roster.Node // as last reported, by name
	pods        *workloadPods          // of Rules.Workload; nil: there is none
}

// workloadPods are the Pods of the workload.
type workloadPods struct {
	watch        *kubewatch.Watch[podState]
	podsByName   map[string]podState
	countsByNode map[string]podCounts // of the Pods on each Node
}

// New returns a source that has no Nodes yet; Run fills it.
func New(cfg Config) *Nodes {
	n := &Nodes{
		rules: cfg.Rules, changed: make(chan struct{}, 1), nodesByName: map[string]nodeSummary{}, reported: map[string]roster.Node{},
	}
	watchConfig := kubewatch.Config{
		Client: cfg.Client, Log: cfg.Log, Metrics: kubewatch.NewMetrics(cfg.Registerer), Changed: n.changed,
	}
	n.nodes = kubewatch.New(nodeKind(cfg.Client, cfg.Rules), watchConfig)
	watches := []kubewatch.Verifiable{n.nodes}
	if cfg.Rules.Workload != nil {
		n.pods = &workloadPods{
			watch:      kubewatch.New(podKind(cfg.Client, *cfg.Rules.Workload), watchConfig),
			podsByName: map[string]podState{}, countsByNode: map[string]podCounts{},
		}
		watches = append(watches, n.pods.watch)
	}
	n.verifier = kubewatch.NewVerifier(watches...)
	cfg.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: "inventory", Name: "nodes_cordoned",
		Help: "Number of eligible Nodes that are cordoned, whatever CORDONED makes of that.",
	}, n.countCordoned))
	return n
}

func (n *Nodes) countCordoned() (count float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.nodesByName {
		if s.signals.cordoned && s.candidate.Excluded == 0 {
			count++
		}
	}
	return count
}

func nodeKind(client kubernetes.Interface, rules Rules) kubewatch.Kind[nodeSummary] {
	return kubewatch.Kind[nodeSummary]{
		Resource: "nodes", Example: &corev1.Node{}, Requests: cluster.NewRequests(client.CoreV1().Nodes(), "", ""),
		Extract: func(o runtime.Object) nodeSummary {
			node, _ := o.(*corev1.Node)
			return summarizeNode(node, rules)
		},
		Equal: nodeSummary.equal,
	}
}

// runningSelector selects the Pods that run on a node. A Pod that ends or fails leaves the
// selection, which the watch reports as a deletion.
var runningSelector = fields.AndSelectors(
	fields.OneTermNotEqualSelector("spec.nodeName", ""),
	fields.OneTermEqualSelector("status.phase", string(corev1.PodRunning)),
).String()

func podKind(client kubernetes.Interface, w Workload) kubewatch.Kind[podState] {
	return kubewatch.Kind[podState]{
		Resource: "pods", Example: &corev1.Pod{},
		Requests: cluster.NewRequests(client.CoreV1().Pods(w.Namespace), w.podSelector(), runningSelector),
		Extract: func(o runtime.Object) podState {
			p, _ := o.(*corev1.Pod)
			if p == nil || !w.has(p) {
				return podState{} // on no node
			}
			return readPod(p)
		},
		Equal: func(a, b podState) bool { return a == b },
	}
}

// Run watches the cluster until ctx is done, and then returns nil.
func (n *Nodes) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.nodes.Run(ctx) })
	if n.pods != nil {
		g.Go(func() error { return n.pods.watch.Run(ctx) })
	}
	return g.Wait()
}

// Verify checks that the reported Nodes are current; see kubewatch.Verifier.
func (n *Nodes) Verify(ctx context.Context, mode roster.Verification) (number uint64, err error) {
	return n.verifier.Verify(ctx, mode)
}

// Changed receives a signal when there is something to take. It holds one signal, which stands
// for any number of changes.
func (n *Nodes) Changed() <-chan struct{} { return n.changed }

// Take evaluates the Nodes that changed since the previous Take, and returns them as candidates.
func (n *Nodes) Take() roster.Update {
	n.mu.Lock()
	defer n.mu.Unlock()
	var update roster.Update
	dirty := map[string]struct{}{} // names of the Nodes to evaluate again

	nodes := n.nodes.Take()
	for _, o := range nodes.Changed {
		n.nodesByName[o.Name] = o.Value
		dirty[o.Name] = struct{}{}
	}
	for _, name := range nodes.Removed {
		delete(n.nodesByName, name)
		dirty[name] = struct{}{}
	}
	contacts, rvs := []time.Time{nodes.LastContact}, []uint64{nodes.ResourceVersion}
	update.Failure, update.ChangedAt = nodes.Failure, nodes.ChangedAt

	if n.pods != nil {
		pods := n.pods.take(dirty)
		contacts, rvs = append(contacts, pods.LastContact), append(rvs, pods.ResourceVersion)
		update.Failure = joinFailures(update.Failure, pods.Failure)
		if at := pods.ChangedAt; update.ChangedAt.IsZero() || !at.IsZero() && at.Before(update.ChangedAt) {
			update.ChangedAt = at
		}
	}

	for _, name := range slices.Sorted(maps.Keys(dirty)) {
		old, wasReported := n.reported[name]
		s, ok := n.nodesByName[name]
		if !ok {
			if wasReported {
				delete(n.reported, name)
				update.Removed = append(update.Removed, name)
			}
			continue
		}
		var pods podCounts
		if n.pods != nil {
			pods = n.pods.countsByNode[name]
		}
		c := s.evaluate(n.rules, pods)
		if wasReported && old.Equal(c) {
			continue
		}
		n.reported[name] = c
		update.Changed = append(update.Changed, c)
	}
	update.LastContact, update.Verified = n.verifier.Progress(contacts, rvs)
	return update
}

// take takes the changes of the Pods, and marks the Nodes whose counts changed as dirty.
func (w *workloadPods) take(dirty map[string]struct{}) kubewatch.Changes[podState] {
	pods := w.watch.Take()
	for _, o := range pods.Changed {
		w.podsByName[o.Name] = o.Value
	}
	for _, name := range pods.Removed {
		delete(w.podsByName, name)
	}
	if len(pods.Changed)+len(pods.Removed) == 0 {
		return pods
	}
	old := w.countsByNode
	w.countsByNode = map[string]podCounts{}
	for _, pod := range w.podsByName {
		w.countsByNode[pod.node] = w.countsByNode[pod.node].plus(pod)
	}
	for _, counts := range []map[string]podCounts{old, w.countsByNode} {
		for node := range counts {
			if old[node] != w.countsByNode[node] {
				dirty[node] = struct{}{}
			}
		}
	}
	return pods
}

func joinFailures(a, b string) string {
	return strings.Join(slices.DeleteFunc([]string{a, b}, func(s string) bool { return s == "" }), "; ")
}

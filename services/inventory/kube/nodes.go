// Package kube follows the objects of an API server: of any kind, by a Watch, and the Nodes of the secured cluster as a
// source. It guarantees that changes are reported in order, coalesced by name, with the resourceVersion reached, that
// a verification compares exactly what was reported, and that a change costs only the evaluation of the Nodes it
// affects. It does not write to the cluster, and keeps only those fields of an object that are used.
package kube

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
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
	*Verifier

	rules   Rules
	nodes   *Watch[nodeSummary]
	pods    *Watch[podState] // of Rules.Workload; nil: there is none
	changed chan struct{}    // capacity 1

	mu           sync.Mutex
	nodesByName  map[string]nodeSummary // as of the last Take
	countsByNode map[string]podCounts   // of the Pods on each Node
}

// New returns a source that has no Nodes yet; Run fills it.
func New(cfg Config) *Nodes {
	n := &Nodes{rules: cfg.Rules, changed: make(chan struct{}, 1)}
	watchConfig := WatchConfig{Client: cfg.Client, Log: cfg.Log, Metrics: NewMetrics(cfg.Registerer), Changed: n.changed}
	n.nodes = NewWatch(Kind[*corev1.Node, nodeSummary]{
		Resource: "nodes", Example: &corev1.Node{}, Requests: cluster.NewRequests(cfg.Client.CoreV1().Nodes(), "", ""),
		Extract: func(node *corev1.Node) nodeSummary { return summarizeNode(node, cfg.Rules) },
		Equal:   nodeSummary.equal,
	}, watchConfig)
	n.Verifier = NewVerifier(n.nodes)
	if cfg.Rules.Workload != nil {
		n.pods = NewWatch(podKind(cfg.Client, *cfg.Rules.Workload), watchConfig)
		n.Verifier = NewVerifier(n.nodes, n.pods)
	}
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
		if s.signals.cordoned && s.node.Excluded == 0 {
			count++
		}
	}
	return count
}

// Run watches the cluster until ctx is done, and then returns nil.
func (n *Nodes) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.nodes.Run(ctx) })
	if n.pods != nil {
		g.Go(func() error { return n.pods.Run(ctx) })
	}
	return g.Wait()
}

// Changed receives a signal when there is something to take. It holds one signal, which stands
// for any number of changes.
func (n *Nodes) Changed() <-chan struct{} { return n.changed }

// Take evaluates the Nodes that changed since the previous Take.
func (n *Nodes) Take() roster.Update {
	n.mu.Lock()
	defer n.mu.Unlock()
	nodes := n.nodes.Take()
	n.nodesByName = nodes.Objects
	dirty := sets.New(nodes.Names...) // the Nodes to evaluate again
	update := roster.Update{Failure: nodes.Failure, ChangedAt: nodes.ChangedAt}
	reached := []Progress{nodes.Progress}
	if n.pods != nil {
		pods := n.pods.Take()
		if len(pods.Names) > 0 {
			n.countPods(pods.Objects, dirty)
		}
		update.Failure, update.ChangedAt = cmp.Or(nodes.Failure, pods.Failure), cmp.Or(nodes.ChangedAt, pods.ChangedAt)
		reached = append(reached, pods.Progress)
	}
	for _, name := range sets.List(dirty) {
		if s, ok := nodes.Objects[name]; ok {
			update.Changed = append(update.Changed, s.evaluate(n.rules, n.countsByNode[name]))
		} else {
			update.Removed = append(update.Removed, name)
		}
	}
	update.LastContact, update.Verified = n.Progress(reached...)
	return update
}

// countPods counts the Pods on each Node, and marks the Nodes whose counts changed as dirty.
func (n *Nodes) countPods(pods map[string]podState, dirty sets.Set[string]) {
	old := n.countsByNode
	n.countsByNode = map[string]podCounts{}
	for _, pod := range pods {
		n.countsByNode[pod.node] = n.countsByNode[pod.node].plus(pod)
	}
	for node := range sets.KeySet(old).Union(sets.KeySet(n.countsByNode)) {
		if old[node] != n.countsByNode[node] {
			dirty.Insert(node)
		}
	}
}

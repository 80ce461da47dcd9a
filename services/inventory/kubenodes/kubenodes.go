// Package kubenodes follows the Nodes of the secured cluster and judges which of them
// count. It promises that what it was told is told on in order, coalesced by name, with
// the resourceVersion reached, and that a look compares with exactly that. It refuses to
// change anything there, and to read more of a Node than the roster judges by.
package kubenodes

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Config is what Nodes needs. All fields are mandatory but Rules.
type Config struct {
	Client     kubernetes.Interface
	Rules      Rules
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Nodes follows the Nodes of a cluster. Its methods are safe for concurrent use.
type Nodes struct {
	client  kubernetes.Interface
	log     *slog.Logger
	tracker *tracker
	anew    chan struct{} // capacity 1: read all Nodes anew

	looks    *prometheus.CounterVec
	relists  prometheus.Counter
	failures *prometheus.CounterVec
}

// New returns Nodes that have read nothing yet: see Run.
func New(cfg Config) *Nodes {
	n := &Nodes{
		client:  cfg.Client,
		log:     cfg.Log,
		tracker: newTracker(cfg.Rules),
		anew:    make(chan struct{}, 1),
		looks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicefeed_inventory_node_looks_total",
			Help: "Looks at the API server that check the watch of the Nodes, by kind (light, full) and result (ok, failed, disagreed).",
		}, []string{"look", "result"}),
		relists: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slicefeed_inventory_node_relists_total",
			Help: "Times that all Nodes were read anew because the watch disagreed with the API server.",
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slicefeed_inventory_node_watch_failures_total",
			Help: "Lists and watches of the Nodes that could not be begun, by verb.",
		}, []string{"verb"}),
	}
	cfg.Registerer.MustRegister(n.looks, n.relists, n.failures)
	return n
}

// Run follows the cluster until ctx is done; its error is then nil.
func (n *Nodes) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		n.follow(ctx)
	}
	return nil
}

// retry is how the reflector tries again. client-go's own pauses grow to a minute, meant for
// thousands of kubelets: after an outage of the API server the feed would stay
// behind for as long. There are but a few inventories.
func retry() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 5 * time.Second}
}

// follow reads all Nodes and watches them until ctx is done or they are to be read anew.
func (n *Nodes) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	reflector := cache.NewReflectorWithOptions(n.listerWatcher(), &corev1.Node{}, n.tracker, cache.ReflectorOptions{Name: "nodes", Backoff: retry()})
	done := make(chan struct{})
	go func() {
		defer close(done)
		reflector.RunWithContext(ctx)
	}()
	select {
	case <-ctx.Done():
	case <-n.anew:
		n.log.Warn("reading all nodes anew: the watch disagreed with the API server")
		n.relists.Inc()
	}
	cancel()
	<-done
}

// listerWatcher notes what lists and watches fail with: the reflector itself only logs it.
// Events and bookmarks come to the tracker in order, once what led there was taken in.
func (n *Nodes) listerWatcher() cache.ListerWatcher {
	nodes := n.client.CoreV1().Nodes()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := nodes.List(ctx, options)
			n.note(ctx, "list", err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := nodes.Watch(ctx, options)
			n.note(ctx, "watch", err)
			return w, err
		},
	}, n.client)
}

func (n *Nodes) note(ctx context.Context, verb string, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	n.failures.WithLabelValues(verb).Inc()
	n.tracker.failed(verb + " nodes: " + err.Error())
}

// readAnew has Run read all Nodes anew.
func (n *Nodes) readAnew() {
	select {
	case n.anew <- struct{}{}:
	default:
	}
}

// Changed receives when there is something to take. It has room for one signal, which
// stands for any number of changes.
func (n *Nodes) Changed() <-chan struct{} { return n.tracker.changed }

// Take returns what the watch has told since the last Take, for Roster.Hear.
func (n *Nodes) Take() roster.News { return n.tracker.take() }

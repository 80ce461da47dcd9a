package kube

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
)

// Kind describes the objects to watch. O is their type, and T is what is kept of an object.
type Kind[O runtime.Object, T any] struct {
	Resource string // such as nodes; used in messages and metrics
	Example  O      // an empty object of the kind
	Requests *cache.ListWatch

	Extract func(O) T         // returns what is kept of an object; it never fails
	Equal   func(a, b T) bool // objects whose values are equal are not reported as changed
}

// WatchConfig is what a watch needs besides the kind. All fields are mandatory.
type WatchConfig struct {
	Client  any // behind the requests; see cluster.KeepCurrent
	Log     *slog.Logger
	Metrics *Metrics
	Changed chan<- struct{} // of capacity 1; receives a signal after every update, unless one is pending
}

// Watch keeps track of the objects of a kind, of which it keeps a T. Its methods are safe for concurrent use.
type Watch[T any] struct {
	cfg      WatchConfig
	resource string
	example  runtime.Object
	requests *cache.ListWatch
	tracker  *tracker[T]
	relist   atomic.Pointer[context.CancelFunc] // ends the reflector; nil: there is none yet

	minCatchUp time.Duration
}

// NewWatch returns a watch that has no objects yet; Run fills it.
func NewWatch[O runtime.Object, T any](kind Kind[O, T], cfg WatchConfig) *Watch[T] {
	for _, verb := range []string{"list", "watch"} { // from 0, so that a rate includes the first failure
		cfg.Metrics.failures.WithLabelValues(kind.Resource, verb)
	}
	return &Watch[T]{
		cfg: cfg, resource: kind.Resource, example: kind.Example, requests: kind.Requests, minCatchUp: minCatchUp,
		tracker: newTracker(kind, cfg.Changed),
	}
}

// Run lists and watches the objects until ctx is done, and then returns nil.
func (w *Watch[T]) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		running, stop := context.WithCancel(ctx)
		w.relist.Store(&stop)
		cache.NewReflectorWithOptions(w.listerWatcher(), w.example, w.tracker,
			cache.ReflectorOptions{Name: w.resource, Backoff: newBackoff()}).RunWithContext(running)
		stop()
	}
	return nil
}

// newBackoff returns the reflector's backoff. client-go's default grows to a minute, meant for
// thousands of kubelets: after an outage of the API server the inventory would lag by as much.
// A cluster has few inventories, so that they can retry sooner.
func newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 5 * time.Second}
}

// listerWatcher returns the reflector's client. It records failed requests, which the reflector
// itself only logs.
func (w *Watch[T]) listerWatcher() cache.ListerWatcher {
	return cluster.KeepCurrent(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := w.requests.ListWithContext(ctx, options)
			w.recordError(ctx, "list", err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			stream, err := w.requests.WatchWithContext(ctx, options)
			w.recordError(ctx, "watch", err)
			return stream, err
		},
	}, w.cfg.Client)
}

func (w *Watch[T]) recordError(ctx context.Context, verb string, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	w.cfg.Metrics.failures.WithLabelValues(w.resource, verb).Inc()
	w.tracker.setFailure(verb + " " + w.resource + ": " + err.Error())
}

// requestRelist makes Run list all objects again.
func (w *Watch[T]) requestRelist() {
	w.cfg.Log.Warn("relisting: watch inconsistent", "resource", w.resource)
	if stop := w.relist.Load(); stop != nil {
		(*stop)()
	}
}

// Take returns the changes since the previous Take.
func (w *Watch[T]) Take() Changes[T] { return w.tracker.takeChanges() }

// Number returns the number of changes so far. A request that is sent afterwards is later than all of them.
func (w *Watch[T]) Number() uint64 {
	w.tracker.mu.Lock()
	defer w.tracker.mu.Unlock()
	return w.tracker.number
}

// Metrics count the requests of all watches of a process, by resource.
type Metrics struct {
	verifications, failures *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: "inventory", Name: name, Help: help,
		}, labels)
	}
	return &Metrics{
		verifications: counter(
			"source_verifications_total",
			"Number of verifications of a watch, by mode (light, full) and result (ok, failed, inconsistent).",
			"resource",
			"mode",
			"result",
		),
		failures: counter("watch_failures_total", "Number of lists and watches that could not be started, by verb.", "resource", "verb"),
	}
}

// Package kubewatch follows the objects of one kind at an API server and checks that what
// it is told can be believed. It promises that what the watch tells is told on in order,
// coalesced by name, with the resourceVersion reached, and that a look compares with exactly
// that. It refuses to know what the objects mean, and to keep more of one than it is told to.
package kubewatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Kind is what is followed: objects of one kind, of one namespace or of none, so that their
// names tell them apart. T is what is kept of an object.
type Kind[T any] struct {
	Resource string         // such as nodes: for messages and metrics
	Example  runtime.Object // an empty object of the kind

	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch func(context.Context, metav1.ListOptions) (watch.Interface, error)

	Extract func(runtime.Object) T // what is kept of an object; it never fails
	Equal   func(a, b T) bool      // whether two are worth telling apart
}

// Config is what a watch needs beside the kind. All fields are mandatory.
type Config struct {
	Client  any // behind List and Watch; client-go asks it whether a watch can tell a whole list: a fake one cannot
	Log     *slog.Logger
	Metrics *Metrics
	Changed chan<- struct{} // of capacity 1: is sent to after anything was told, unless a signal waits there
}

// Watch follows the objects of a kind. Its methods are safe for concurrent use.
type Watch[T any] struct {
	kind    Kind[T]
	cfg     Config
	tracker *tracker[T]
	relist  chan struct{} // capacity 1: read all objects anew
}

// New returns a watch that has read nothing yet: see Run.
func New[T any](kind Kind[T], cfg Config) *Watch[T] {
	cfg.Metrics.initSeries(kind.Resource)
	return &Watch[T]{kind: kind, cfg: cfg, tracker: newTracker(kind, cfg.Changed), relist: make(chan struct{}, 1)}
}

// Run follows the objects until ctx is done; its error is then nil.
func (w *Watch[T]) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		w.listAndWatch(ctx)
	}
	return nil
}

// newBackoff is how the reflector tries again. client-go's own pauses grow to a minute, meant for
// thousands of kubelets: after an outage of the API server the feed would stay
// behind for as long. There are but a few inventories.
func newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 5 * time.Second}
}

// listAndWatch reads all objects and watches them until ctx is done or they are to be read anew.
func (w *Watch[T]) listAndWatch(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	reflector := cache.NewReflectorWithOptions(w.listerWatcher(), w.kind.Example, w.tracker,
		cache.ReflectorOptions{Name: w.kind.Resource, Backoff: newBackoff()})
	done := make(chan struct{})
	go func() {
		defer close(done)
		reflector.RunWithContext(ctx)
	}()
	select {
	case <-ctx.Done():
	case <-w.relist:
		w.cfg.Log.Warn("reading all objects anew: the watch disagreed with the API server, or is dead", "resource", w.kind.Resource)
		w.cfg.Metrics.relists.WithLabelValues(w.kind.Resource).Inc()
	}
	cancel()
	<-done
}

// listerWatcher notes what lists and watches fail with: the reflector itself only logs it.
// Events and bookmarks come to the tracker in order, once what led there was taken in.
func (w *Watch[T]) listerWatcher() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := w.kind.List(ctx, options)
			w.recordError(ctx, "list", err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			stream, err := w.kind.Watch(ctx, options)
			w.recordError(ctx, "watch", err)
			return stream, err
		},
	}, w.cfg.Client)
}

func (w *Watch[T]) recordError(ctx context.Context, verb string, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	w.cfg.Metrics.failures.WithLabelValues(w.kind.Resource, verb).Inc()
	w.tracker.setFailure(verb + " " + w.kind.Resource + ": " + err.Error())
}

// requestRelist has Run read all objects anew.
func (w *Watch[T]) requestRelist() {
	select {
	case w.relist <- struct{}{}:
	default:
	}
}

// Take returns what the watch has told since the last Take.
func (w *Watch[T]) Take() Changes[T] { return w.tracker.takeChanges() }

// Metrics count what all watches of a process do, by resource.
type Metrics struct {
	verifications, relists, failures *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: "inventory", Name: name, Help: help,
		}, labels)
	}
	m := &Metrics{
		verifications: counter("looks_total", "Looks at the API server that check a watch, by kind (light, full) and result (ok, failed, disagreed).", "resource", "look", "result"),
		relists:       counter("relists_total", "Times that all objects were read anew because the watch disagreed with the API server, or was silent for too long.", "resource"),
		failures:      counter("watch_failures_total", "Lists and watches that could not be begun, by verb.", "resource", "verb"),
	}
	reg.MustRegister(m.verifications, m.relists, m.failures)
	return m
}

// initSeries makes the series of a resource, so that a rate of its first failure is seen.
func (m *Metrics) initSeries(resource string) {
	m.relists.WithLabelValues(resource)
	for _, verb := range []string{"list", "watch"} {
		m.failures.WithLabelValues(resource, verb)
	}
}

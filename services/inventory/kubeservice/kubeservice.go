// Package kubeservice follows the endpoints of one Service of the secured cluster, by its
// EndpointSlices. It promises the careful following of kubewatch, that an endpoint is one
// member however many slices list it, and that a Service which is not there is no empty one. It
// refuses to change anything, and to guess: ports are told for comparison only.
package kubeservice

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/slicefeed/slicefeed/services/inventory/kubewatch"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// getTimeout is how long the API server may take to say that the Service is there.
const getTimeout = 5 * time.Second

// serviceGetter gets Services.
type serviceGetter interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Service, error)
}

// sliceListWatcher lists and watches EndpointSlices.
type sliceListWatcher interface {
	List(context.Context, metav1.ListOptions) (*discoveryv1.EndpointSliceList, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Config is what Endpoints needs. All fields are mandatory.
type Config struct {
	Services        serviceGetter    // of the namespace
	Slices          sliceListWatcher // of the namespace
	Client          any              // behind both: see kubewatch.Config
	Namespace, Name string           // of the Service
	Log             *slog.Logger
	Registerer      prometheus.Registerer
}

// Endpoints follows the endpoints of a Service. Its methods are safe for concurrent use.
type Endpoints struct {
	cfg      Config
	watch    *kubewatch.Watch[sliceSummary]
	verifier *kubewatch.Verifier
	changed  chan struct{} // capacity 1

	mu             sync.Mutex
	slicesByName   map[string]sliceSummary        // by name
	endpointsByKey map[string]map[string]endpoint // by the member's key, then by the slice that lists it
	reported       map[string]roster.Candidate    // as they were told last, by key
	invalidCount   int                            // members whose endpoint cannot be used
	ports          []roster.Port                  // of all slices
}

// New returns Endpoints that have read nothing yet: see Run.
func New(cfg Config) *Endpoints {
	e := &Endpoints{
		cfg: cfg, changed: make(chan struct{}, 1),
		slicesByName: map[string]sliceSummary{}, endpointsByKey: map[string]map[string]endpoint{}, reported: map[string]roster.Candidate{},
	}
	all := cfg.Slices
	ours := func(o metav1.ListOptions) metav1.ListOptions {
		// A slice belongs to a Service by this label alone: its name says nothing.
		o.LabelSelector = labels.Set{discoveryv1.LabelServiceName: cfg.Name}.String()
		return o
	}
	e.watch = kubewatch.New(kubewatch.Kind[sliceSummary]{
		Resource: "endpointslices", Example: &discoveryv1.EndpointSlice{},
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return all.List(ctx, ours(o))
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return all.Watch(ctx, ours(o))
		},
		Extract: func(o runtime.Object) sliceSummary {
			s, _ := o.(*discoveryv1.EndpointSlice)
			return summarizeSlice(s)
		},
		Equal: sliceSummary.equal,
	}, kubewatch.Config{
		Client: cfg.Client, Log: cfg.Log, Metrics: kubewatch.NewMetrics(cfg.Registerer), Changed: e.changed,
	})
	e.verifier = kubewatch.NewVerifier(e.watch)
	return e
}

// Run follows the Service until ctx is done; its error is then nil.
func (e *Endpoints) Run(ctx context.Context) error { return e.watch.Run(ctx) }

// Verify asks the API server whether the Service is there, and whether what was told of its
// slices can be believed: see kubewatch.Verifier.
func (e *Endpoints) Verify(ctx context.Context, look roster.Look) (mark uint64, err error) {
	if err := e.checkService(ctx); err != nil {
		return 0, err
	}
	return e.verifier.Verify(ctx, look)
}

// checkService is no error if the Service is there and can have endpoints. A typing mistake, or a
// Service that is made anew, must not look like one whose endpoints have all gone.
func (e *Endpoints) checkService(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	service, err := e.cfg.Services.Get(ctx, e.cfg.Name, metav1.GetOptions{})
	name := e.cfg.Namespace + "/" + e.cfg.Name
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the Service %s is not there: check SOURCE_SERVICE; what was known of it stays", name)
	case err != nil:
		return fmt.Errorf("get the Service %s: %w", name, err)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return fmt.Errorf("the Service %s is of the type ExternalName and has no endpoints: check SOURCE_SERVICE", name)
	}
	return nil
}

// Changed receives when there is something to take. It has room for one signal, which
// stands for any number of changes.
func (e *Endpoints) Changed() <-chan struct{} { return e.changed }

// Take returns what the watch has told since the last Take, judged.
func (e *Endpoints) Take() roster.News {
	e.mu.Lock()
	defer e.mu.Unlock()
	told := e.watch.Take()
	dirty := map[string]struct{}{}
	for _, o := range told.Changed {
		e.updateSlice(o.Name, o.Value, dirty)
	}
	for _, name := range told.Removed {
		e.updateSlice(name, sliceSummary{}, dirty)
	}
	news := roster.News{Failure: told.Failure, ChangedAt: told.ChangedAt}
	for _, key := range slices.Sorted(maps.Keys(dirty)) {
		e.reportMember(key, &news)
	}
	slices.SortFunc(news.Changed, func(a, b roster.Candidate) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(news.Removed)
	if e.invalidCount > 0 {
		news.Flaw = fmt.Sprintf("%d endpoints of the Service cannot be used: those that are known stay as they were", e.invalidCount)
	}
	if len(told.Changed)+len(told.Removed) > 0 {
		e.ports = e.allPorts()
	}
	news.Ports = e.ports
	news.HeardAt, news.Mark = e.verifier.Progress([]time.Time{told.LastContact}, []uint64{told.ResourceVersion})
	return news
}

// updateSlice takes in what a slice lists now, and notes whom that is about.
func (e *Endpoints) updateSlice(name string, now sliceSummary, dirty map[string]struct{}) {
	for _, p := range e.slicesByName[name].endpoints {
		delete(e.endpointsByKey[p.key], name)
		dirty[p.key] = struct{}{}
	}
	for _, p := range now.endpoints {
		if e.endpointsByKey[p.key] == nil {
			e.endpointsByKey[p.key] = map[string]endpoint{}
		}
		e.endpointsByKey[p.key][name] = p
		dirty[p.key] = struct{}{}
	}
	e.slicesByName[name] = now
	if len(now.endpoints) == 0 && len(now.ports) == 0 {
		delete(e.slicesByName, name)
	}
}

// reportMember adds to the news what became of a member.
func (e *Endpoints) reportMember(key string, news *roster.News) {
	before, wasTold := e.reported[key]
	if wasTold && before.Bad != "" {
		e.invalidCount--
	}
	if len(e.endpointsByKey[key]) == 0 {
		delete(e.endpointsByKey, key)
		delete(e.reported, key)
		if wasTold {
			news.Removed = append(news.Removed, before.Name)
		}
		return
	}
	now := mergeEndpoints(e.endpointsByKey[key])
	if now.Bad != "" {
		e.invalidCount++
	}
	e.reported[key] = now
	if !wasTold || !equalCandidates(before, now) {
		news.Changed = append(news.Changed, now)
	}
}

// allPorts are those of all slices, each once, sorted.
func (e *Endpoints) allPorts() []roster.Port {
	var all []roster.Port
	for _, s := range e.slicesByName {
		all = append(all, s.ports...)
	}
	slices.SortFunc(all, comparePorts)
	return slices.Compact(all)
}

// Package kubeservice reads the endpoints of one Service of the secured cluster from its
// EndpointSlices. It guarantees what kubewatch guarantees, that an endpoint is one member however
// many slices list it, and that a missing Service is an error rather than an empty set. It does
// not write to the cluster, and reports ports only so that writers can compare them.
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
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// getTimeout limits the request for the Service.
const getTimeout = 5 * time.Second

type serviceGetter interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Service, error)
}

type sliceListWatcher interface {
	List(context.Context, metav1.ListOptions) (*discoveryv1.EndpointSliceList, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Config is what Endpoints needs. All fields are mandatory.
type Config struct {
	Services        serviceGetter    // in the namespace
	Slices          sliceListWatcher // in the namespace
	Client          any              // behind both; see kubewatch.Config
	Namespace, Name string           // of the Service
	Log             *slog.Logger
	Registerer      prometheus.Registerer
}

// Endpoints is the source of the endpoints of a Service. Its methods are safe for concurrent use.
type Endpoints struct {
	cfg      Config
	watch    *kubewatch.Watch[sliceSummary]
	verifier *kubewatch.Verifier
	changed  chan struct{} // capacity 1

	mu             sync.Mutex
	slicesByName   map[string]sliceSummary        // by name
	endpointsByKey map[string]map[string]endpoint // by endpoint.key, then by the name of the slice
	reported       map[string]source.Candidate    // as last reported, by key
	invalidCount   int                            // number of reported members that are invalid
	ports          []source.Port                  // of all slices, sorted
}

// New returns a source that has no endpoints yet; Run fills it.
func New(cfg Config) *Endpoints {
	e := &Endpoints{
		cfg: cfg, changed: make(chan struct{}, 1),
		slicesByName: map[string]sliceSummary{}, endpointsByKey: map[string]map[string]endpoint{}, reported: map[string]source.Candidate{},
	}
	client := cfg.Slices
	selectService := func(o metav1.ListOptions) metav1.ListOptions {
		// Only this label ties a slice to its Service; the name of a slice is arbitrary.
		o.LabelSelector = labels.Set{discoveryv1.LabelServiceName: cfg.Name}.String()
		return o
	}
	e.watch = kubewatch.New(kubewatch.Kind[sliceSummary]{
		Resource: "endpointslices", Example: &discoveryv1.EndpointSlice{},
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, selectService(o))
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, selectService(o))
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

// Run watches the slices until ctx is done, and then returns nil.
func (e *Endpoints) Run(ctx context.Context) error { return e.watch.Run(ctx) }

// Verify checks that the Service exists and that its reported slices are current; see
// kubewatch.Verifier.
func (e *Endpoints) Verify(ctx context.Context, mode source.Verification) (number uint64, err error) {
	if err := e.checkService(ctx); err != nil {
		return 0, err
	}
	return e.verifier.Verify(ctx, mode)
}

// checkService returns an error if the Service does not exist or cannot have endpoints. A typing
// mistake, or a Service that is being recreated, must not look like a Service without endpoints.
func (e *Endpoints) checkService(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	service, err := e.cfg.Services.Get(ctx, e.cfg.Name, metav1.GetOptions{})
	name := e.cfg.Namespace + "/" + e.cfg.Name
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("service %s does not exist and its last known endpoints are kept; check SOURCE_SERVICE", name)
	case err != nil:
		return fmt.Errorf("get Service %s: %w", name, err)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return fmt.Errorf("service %s is of type ExternalName, which has no endpoints; check SOURCE_SERVICE", name)
	}
	return nil
}

// Changed receives a signal when there is something to take. It holds one signal, which stands
// for any number of changes.
func (e *Endpoints) Changed() <-chan struct{} { return e.changed }

// Take returns the members that changed since the previous Take.
func (e *Endpoints) Take() source.Update {
	e.mu.Lock()
	defer e.mu.Unlock()
	changes := e.watch.Take()
	dirty := map[string]struct{}{} // keys of the members to merge again
	for _, o := range changes.Changed {
		e.updateSlice(o.Name, o.Value, dirty)
	}
	for _, name := range changes.Removed {
		e.updateSlice(name, sliceSummary{}, dirty)
	}
	update := source.Update{Failure: changes.Failure, ChangedAt: changes.ChangedAt}
	for _, key := range slices.Sorted(maps.Keys(dirty)) {
		e.reportMember(key, &update)
	}
	slices.SortFunc(update.Changed, func(a, b source.Candidate) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(update.Removed)
	if e.invalidCount > 0 {
		update.PartialError = fmt.Sprintf("%d invalid endpoints in the slices of the Service: those that were valid before are kept", e.invalidCount)
	}
	if len(changes.Changed)+len(changes.Removed) > 0 {
		e.ports = e.allPorts()
	}
	update.Ports = e.ports
	update.LastContact, update.Verified = e.verifier.Progress([]time.Time{changes.LastContact}, []uint64{changes.ResourceVersion})
	return update
}

// updateSlice stores what a slice lists, and marks the members that it listed or lists as dirty.
func (e *Endpoints) updateSlice(name string, updated sliceSummary, dirty map[string]struct{}) {
	for _, p := range e.slicesByName[name].endpoints {
		delete(e.endpointsByKey[p.key], name)
		dirty[p.key] = struct{}{}
	}
	for _, p := range updated.endpoints {
		if e.endpointsByKey[p.key] == nil {
			e.endpointsByKey[p.key] = map[string]endpoint{}
		}
		e.endpointsByKey[p.key][name] = p
		dirty[p.key] = struct{}{}
	}
	e.slicesByName[name] = updated
	if len(updated.endpoints) == 0 && len(updated.ports) == 0 {
		delete(e.slicesByName, name)
	}
}

// reportMember adds a member to the update if it changed or is no longer listed.
func (e *Endpoints) reportMember(key string, update *source.Update) {
	old, wasReported := e.reported[key]
	if wasReported && old.Invalid != "" {
		e.invalidCount--
	}
	if len(e.endpointsByKey[key]) == 0 {
		delete(e.endpointsByKey, key)
		delete(e.reported, key)
		if wasReported {
			update.Removed = append(update.Removed, old.Name)
		}
		return
	}
	merged := mergeEndpoints(e.endpointsByKey[key])
	if merged.Invalid != "" {
		e.invalidCount++
	}
	e.reported[key] = merged
	if !wasReported || !equalCandidates(old, merged) {
		update.Changed = append(update.Changed, merged)
	}
}

// allPorts returns the ports of all slices, sorted, without duplicates.
func (e *Endpoints) allPorts() []source.Port {
	var all []source.Port
	for _, s := range e.slicesByName {
		all = append(all, s.ports...)
	}
	slices.SortFunc(all, comparePorts)
	return slices.Compact(all)
}

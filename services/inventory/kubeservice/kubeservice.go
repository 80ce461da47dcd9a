// Package kubeservice reads the endpoints of one Service of the secured cluster from its
// EndpointSlices. It guarantees what kubewatch guarantees, that an endpoint is one member however
// many slices list it, that a missing Service is an error rather than an empty set, and that
// nothing is reported of a Service that is not exported. It does not write to the cluster.
package kubeservice

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/inventory/kubewatch"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// getTimeout limits the request for the Service.
const getTimeout = 5 * time.Second

// Config is what Endpoints needs. All fields are mandatory unless stated.
type Config struct {
	Client          kubernetes.Interface
	Namespace, Name string          // of the Service
	Exported        labels.Selector // of the Service's labels: while they do not match, nothing is reported; nil: any
	Log             *slog.Logger
	Metrics         *kubewatch.Metrics // several sources can share them
}

// Endpoints is the source of the endpoints of a Service. Its methods are safe for concurrent use.
type Endpoints struct {
	cfg      Config
	watch    *kubewatch.Watch[sliceSummary]
	verifier *kubewatch.Verifier
	changed  chan struct{} // capacity 1

	exportedOnce sync.Once
	exported     chan struct{} // closed once the Service was exported

	mu           sync.Mutex
	withheld     bool // the Service is not exported
	slicesByName map[string]sliceSummary
	reported     map[string]source.Candidate // as last reported, by endpoint.key
	invalidCount int                         // number of reported members that are invalid
}

// New returns a source that has no endpoints yet; Run fills it.
func New(cfg Config) *Endpoints {
	e := &Endpoints{
		cfg: cfg, changed: make(chan struct{}, 1), exported: make(chan struct{}),
		withheld: cfg.Exported != nil, slicesByName: map[string]sliceSummary{},
	}
	if cfg.Exported == nil {
		e.exportedOnce.Do(func() { close(e.exported) })
	}
	// Only this label ties a slice to its Service; the name of a slice is arbitrary.
	selector := labels.Set{discoveryv1.LabelServiceName: cfg.Name}.String()
	e.watch = kubewatch.New(kubewatch.Kind[sliceSummary]{
		Resource: "endpointslices", Example: &discoveryv1.EndpointSlice{},
		Requests: kubewatch.NewRequests(cfg.Client.DiscoveryV1().EndpointSlices(cfg.Namespace), selector, ""),
		Extract: func(o runtime.Object) sliceSummary {
			s, _ := o.(*discoveryv1.EndpointSlice)
			return summarizeSlice(s)
		},
		Equal: sliceSummary.equal,
	}, kubewatch.Config{
		Client: cfg.Client, Log: cfg.Log, Metrics: cfg.Metrics, Changed: e.changed,
	})
	e.verifier = kubewatch.NewVerifier(e.watch)
	return e
}

// Run watches the slices until ctx is done, and then returns nil. It starts once the Service is exported:
// clients can request any number of Services that are not, and a watch for each would be expensive.
func (e *Endpoints) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-e.exported:
		return e.watch.Run(ctx)
	}
}

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
	service, err := e.cfg.Client.CoreV1().Services(e.cfg.Namespace).Get(ctx, e.cfg.Name, metav1.GetOptions{})
	name := e.cfg.Namespace + "/" + e.cfg.Name
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("service %s does not exist and its last known endpoints are kept; check %s", name, e.setting())
	case err != nil:
		return fmt.Errorf("get Service %s: %w", name, err)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return fmt.Errorf("service %s is of type ExternalName, which has no endpoints; check %s", name, e.setting())
	}
	return e.checkExported(service)
}

// setting is what names the Service.
func (e *Endpoints) setting() string {
	if e.cfg.Exported != nil {
		return "the annotation slicefeed.dev/source-service in the consuming cluster"
	}
	return "SOURCE_SERVICE"
}

// checkExported returns an error, and stops the reports, if the labels of the Service do not match.
func (e *Endpoints) checkExported(service *corev1.Service) error {
	if e.cfg.Exported == nil {
		return nil
	}
	matches := e.cfg.Exported.Matches(labels.Set(service.Labels))
	e.mu.Lock()
	e.withheld = !matches
	e.mu.Unlock()
	if !matches {
		return fmt.Errorf(
			"service %s/%s is not exported; give it the labels %s, which SOURCE_SERVICE_SELECTOR requires",
			e.cfg.Namespace,
			e.cfg.Name,
			e.cfg.Exported,
		)
	}
	e.exportedOnce.Do(func() { close(e.exported) })
	return nil
}

// Changed receives a signal when there is something to take. It holds one signal, which stands
// for any number of changes.
func (e *Endpoints) Changed() <-chan struct{} { return e.changed }

// Take returns the members that changed since the previous Take.
func (e *Endpoints) Take() source.Update {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.withheld {
		return source.Update{}
	}
	changes := e.watch.Take()
	for _, o := range changes.Changed {
		e.slicesByName[o.Name] = o.Value
	}
	for _, name := range changes.Removed {
		delete(e.slicesByName, name)
	}
	update := source.Update{Failure: changes.Failure, ChangedAt: changes.ChangedAt}
	if len(changes.Changed)+len(changes.Removed) > 0 {
		e.mergeSlices(&update)
	}
	if e.invalidCount > 0 {
		update.PartialError = fmt.Sprintf(
			"%d invalid endpoints in the slices of the Service: those that were valid before are kept",
			e.invalidCount,
		)
	}
	update.LastContact, update.Verified = e.verifier.Progress([]time.Time{changes.LastContact}, []uint64{changes.ResourceVersion})
	return update
}

// mergeSlices merges the endpoints of all slices, and adds the members that changed to the update.
func (e *Endpoints) mergeSlices(update *source.Update) {
	listed := map[string]map[string]endpoint{} // by endpoint.key, then by the name of the slice
	e.invalidCount = 0
	for name, s := range e.slicesByName {
		for _, p := range s.endpoints {
			if listed[p.key] == nil {
				listed[p.key] = map[string]endpoint{}
			}
			listed[p.key][name] = p
		}
	}

	reported := make(map[string]source.Candidate, len(listed))
	for key, endpoints := range listed {
		merged := mergeEndpoints(endpoints, e.slicesByName)
		reported[key] = merged
		if merged.Invalid != "" {
			e.invalidCount++
		}
		if old, ok := e.reported[key]; !ok || !old.Equal(merged) {
			update.Changed = append(update.Changed, merged)
		}
	}
	for key, old := range e.reported {
		if _, ok := reported[key]; !ok {
			update.Removed = append(update.Removed, old.Name)
		}
	}
	e.reported = reported
	slices.SortFunc(update.Changed, func(a, b source.Candidate) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(update.Removed)
}

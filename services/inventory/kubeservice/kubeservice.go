// Package kubeservice reads the endpoints of one Service of the secured cluster from its
// EndpointSlices. It guarantees what a kube.Watch guarantees, that an endpoint is one member however
// many slices list it, that no endpoint leaves before the Service was seen to exist after the slices
// ceased to list it, and that nothing is reported of a Service that does not exist or is not exported. It does not write
// to the cluster.
package kubeservice

import (
	"cmp"
	"context"
	"errors"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/inventory/kube"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// getTimeout limits the request for the Service.
const getTimeout = 5 * time.Second

// Config is what Endpoints or a Catalog needs. All fields are mandatory unless stated.
type Config struct {
	Client  kubernetes.Interface
	Service types.NamespacedName // that is read; a Catalog has only a namespace, and none stands for all
	// Exported selects Services by their labels. While the Service does not match, nothing is reported; nil: any matches.
	Exported labels.Selector
	Log      *slog.Logger
	Metrics  *kube.Metrics // several sources can share them
}

// Endpoints is the source of the endpoints of a Service. Its methods are safe for concurrent use.
type Endpoints struct {
	cfg      Config
	watch    *kube.Watch[[]roster.Node] // by slice, what it lists
	verifier *kube.Verifier
	changed  chan struct{} // capacity 1
	recheck  chan struct{} // capacity 1: Run has to check the Service
	checking sync.Mutex    // so that the last answer is the newest

	mu        sync.Mutex
	isRead    bool                   // the Service need not be read before anything is reported of it
	withheld  string                 // why nothing is reported; empty: the endpoints of the Service are
	failure   string                 // of the last check that Run made
	confirmed uint64                 // Number of the watch before the Service was seen last
	listed    map[string]roster.Node // what the slices list, by name
	reported  map[string]roster.Node // as last reported; may have some that are no longer listed
	unlisted  map[string]uint64      // those, by the Number of the watch at which they were found to be
}

// New returns a source that has no endpoints yet; Run fills it.
func New(cfg Config) *Endpoints {
	e := &Endpoints{
		cfg: cfg, changed: make(chan struct{}, 1), recheck: make(chan struct{}, 1), isRead: cfg.Exported == nil,
		reported: map[string]roster.Node{}, unlisted: map[string]uint64{},
	}
	// Only this label ties a slice to its Service; the name of a slice is arbitrary.
	selector := labels.Set{discoveryv1.LabelServiceName: cfg.Service.Name}.String()
	e.watch = kube.NewWatch(kube.Kind[*discoveryv1.EndpointSlice, []roster.Node]{
		Resource: "endpointslices", Example: &discoveryv1.EndpointSlice{},
		Requests: cluster.NewRequests(cfg.Client.DiscoveryV1().EndpointSlices(cfg.Service.Namespace), selector, ""),
		Extract:  readSlice,
		Equal:    equalMembers,
	}, kube.WatchConfig{Client: cfg.Client, Log: cfg.Log, Metrics: cfg.Metrics, Changed: e.changed})
	e.verifier = kube.NewVerifier(e.watch)
	return e
}

// Run watches the slices until ctx is done, and then returns nil.
func (e *Endpoints) Run(ctx context.Context) error {
	var checks sync.WaitGroup
	defer checks.Wait()
	checks.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-e.recheck:
			}
			if err := e.checkService(ctx); err != nil {
				e.mu.Lock()
				e.failure = err.Error() // makes the roster verify
				e.mu.Unlock()
			}
			roster.Signal(e.changed)
		}
	})
	return e.watch.Run(ctx)
}

// Recheck reads the Service soon: it may have changed.
func (e *Endpoints) Recheck() { roster.Signal(e.recheck) }

// Verify checks that the reported slices are current, and then that the Service exists; see kube.Verifier.
func (e *Endpoints) Verify(ctx context.Context, mode roster.Verification) (number uint64, err error) {
	if number, err = e.verifier.Verify(ctx, mode); err != nil {
		return 0, err
	}
	return number, e.checkService(ctx)
}

// checkService returns an error if the Service does not exist, is not exported, or cannot have endpoints. What the
// watch has delivered before a check that succeeds may leave: a typing mistake, or a Service that is deleted together
// with its slices, must not look like a Service without endpoints.
func (e *Endpoints) checkService(ctx context.Context) error {
	e.checking.Lock()
	defer e.checking.Unlock()
	number := e.watch.Number()
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	service, err := e.cfg.Client.CoreV1().Services(e.cfg.Service.Namespace).Get(ctx, e.cfg.Service.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get Service %s: %w", e.cfg.Service, err)
	}
	problem := e.findProblem(service, err != nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.isRead, e.withheld = true, problem
	if problem != "" {
		return errors.New(problem)
	}
	e.confirmed = number
	return nil
}

// findProblem returns why the endpoints of a Service do not count; empty: they do.
func (e *Endpoints) findProblem(service *corev1.Service, isMissing bool) string {
	name, setting := e.cfg.Service.String(), "SOURCE_SERVICE"
	if e.cfg.Exported != nil {
		setting = "the annotation slicefeed.dev/source-service in the consuming cluster"
	}
	switch {
	case isMissing, service.DeletionTimestamp != nil:
		return fmt.Sprintf("service %s does not exist; clients keep its last known endpoints; check %s", name, setting)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return fmt.Sprintf("service %s is of type ExternalName, which has no endpoints; check %s", name, setting)
	case e.cfg.Exported != nil && !e.cfg.Exported.Matches(labels.Set(service.Labels)):
		return NotExported(name, e.cfg.Exported)
	}
	return ""
}

// NotExported is the problem of a Service that does not match the selector, or does not exist.
func NotExported(service string, selector labels.Selector) string {
	return fmt.Sprintf("service %s is not exported; give it the labels %s, which SOURCE_SERVICE_SELECTOR requires", service, selector)
}

// Changed receives a signal when there is something to take. It holds one signal, which stands
// for any number of changes.
func (e *Endpoints) Changed() <-chan struct{} { return e.changed }

// Take returns the members that changed since the previous Take.
func (e *Endpoints) Take() roster.Update {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.isRead || e.withheld != "" {
		return roster.Update{Withheld: e.withheld, Failure: cmp.Or(e.withheld, "the Service has not been read yet")}
	}
	changes := e.watch.Take()
	if len(changes.Names) > 0 {
		e.listed = mergeSlices(changes.Objects)
	}
	update := roster.Update{
		Failure: cmp.Or(e.failure, changes.Failure), ChangedAt: changes.ChangedAt, PartialError: e.partialError(),
	}
	e.failure = ""
	e.reportChanges(&update, changes.Number)
	update.LastContact, update.Verified = e.verifier.Progress(changes.Progress)
	return update
}

// mergeSlices merges the endpoints of all slices.
func mergeSlices(slicesByName map[string][]roster.Node) map[string]roster.Node {
	listed := map[string][]roster.Node{}
	for _, members := range slicesByName {
		for _, c := range members {
			listed[c.Name] = append(listed[c.Name], c)
		}
	}
	merged := make(map[string]roster.Node, len(listed))
	for name, all := range listed {
		merged[name] = mergeMembers(all)
	}
	return merged
}

// partialError describes the invalid endpoints of the slices.
func (e *Endpoints) partialError() string {
	invalid := 0
	for _, c := range e.listed {
		if c.Invalid != "" {
			invalid++
		}
	}
	if invalid == 0 {
		return ""
	}
	return display.Count(
		invalid,
		"invalid endpoint",
		"invalid endpoints",
	) + " in the slices of the Service: until that is corrected, none leaves"
}

// reportChanges adds the members that changed to an update, with those that are no longer listed and may leave. It
// has the Service checked if more of them could.
func (e *Endpoints) reportChanges(update *roster.Update, number uint64) {
	for name, c := range e.listed {
		delete(e.unlisted, name)
		if old, ok := e.reported[name]; !ok || !old.Equal(c) {
			e.reported[name] = c
			update.Changed = append(update.Changed, c)
		}
	}
	for name := range e.reported {
		if _, ok := e.listed[name]; ok {
			continue
		}
		since, known := e.unlisted[name]
		switch {
		case !known && e.confirmed < number:
			e.unlisted[name] = number
			roster.Signal(e.recheck)
		case update.PartialError != "": // one of them may be this one
		case !known || since <= e.confirmed:
			delete(e.reported, name)
			delete(e.unlisted, name)
			update.Removed = append(update.Removed, name)
		}
	}
	slices.SortFunc(update.Changed, func(a, b roster.Node) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(update.Removed)
}

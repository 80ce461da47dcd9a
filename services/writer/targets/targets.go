// Package targets watches the Services that we manage and the EndpointSlices of their
// namespaces. It promises that what it shows came from the API server, and how new it is;
// it outlives an API server that is away, keeping what it saw last. It writes nothing, and
// refuses Services of shapes that could not work, each with a sentence that says what to do.
//
// At present there is one target, given by name. Services selected by label will be more
// Specs over the same two informers, so Resolve takes all that it needs as arguments.
package targets

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Config is what Targets need.
type Config struct {
	Client kubernetes.Interface
	Target Spec
	Logger *slog.Logger
}

// View is what is known of a target at one moment. Its objects are shared with the cache
// and must not be changed.
type View struct {
	// Synced is whether both caches were filled once; before, nothing else means anything.
	Synced bool
	// Target is served unless Refusal says why not.
	Target  Target
	Refusal *Refusal
	// Service names the Service for Events; its UID is empty if there is none.
	Service corev1.ObjectReference
	// Slices are all of the namespace; those that others manage come without endpoints.
	Slices []*discoveryv1.EndpointSlice
	// ResourceVersion is how new Slices are at least: a slice written before and not among
	// them was deleted since. Empty: not known.
	ResourceVersion string
}

// Targets follows the consuming cluster. Make one with New.
type Targets struct {
	spec     Spec
	services cache.SharedIndexInformer
	slices   cache.SharedIndexInformer
	changed  chan struct{}
	log      *slog.Logger
}

// New prepares the watches; Run starts them.
func New(cfg Config) (*Targets, error) {
	spec := cfg.Target
	t := &Targets{
		spec:    spec,
		changed: make(chan struct{}, 1),
		log:     cfg.Logger,
		services: coreinformers.NewFilteredServiceInformer(cfg.Client, spec.Namespace, 0, cache.Indexers{},
			func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, spec.Service).String()
			}),
		// All of the namespace: a slice of ours whose labels someone altered is still ours to
		// mend, and names that others have are not ours to take.
		slices: discoveryinformers.NewEndpointSliceInformer(cfg.Client, spec.Namespace, 0, cache.Indexers{}),
	}
	if err := t.slices.SetTransform(t.trim); err != nil {
		return nil, err
	}
	for what, informer := range map[string]cache.SharedIndexInformer{"Services": t.services, "EndpointSlices": t.slices} {
		err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			t.log.Warn("watch interrupted, what was seen last stays in use", "resource", what, "namespace", spec.Namespace, "error", err)
		})
		if err != nil {
			return nil, err
		}
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { t.mark() },
			UpdateFunc: func(any, any) { t.mark() },
			DeleteFunc: func(any) { t.mark() },
		})
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Run watches until the context ends, and then waits for its watches.
func (t *Targets) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { t.services.RunWithContext(ctx) })
	wg.Go(func() { t.slices.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), t.services.HasSynced, t.slices.HasSynced) {
		t.mark() // empty caches fire no events
	}
	<-ctx.Done()
	return nil
}

// Changed has a value whenever something may have changed since it was last read.
func (t *Targets) Changed() <-chan struct{} { return t.changed }

func (t *Targets) mark() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Get looks at the caches and resolves the target.
func (t *Targets) Get() View {
	view := View{Synced: t.services.HasSynced() && t.slices.HasSynced()}
	if !view.Synced {
		return view
	}
	// The version first: the list is that new, or newer.
	view.ResourceVersion = t.slices.GetStore().LastStoreSyncResourceVersion()
	for _, obj := range t.slices.GetStore().List() {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
			view.Slices = append(view.Slices, slice)
		}
	}
	slices.SortFunc(view.Slices, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })

	var svc *corev1.Service
	if obj, found, err := t.services.GetStore().GetByKey(t.spec.Namespace + "/" + t.spec.Service); err == nil && found {
		svc, _ = obj.(*corev1.Service)
	}
	view.Service = corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: t.spec.Namespace, Name: t.spec.Service}
	if svc != nil {
		view.Service.UID = svc.UID
	}
	view.Target, view.Refusal = Resolve(t.spec, svc, view.Slices)
	return view
}

// trim drops what is never looked at of slices that others manage: a namespace may have many.
func (t *Targets) trim(obj any) (any, error) {
	if slice, ok := obj.(*discoveryv1.EndpointSlice); ok && slice.Labels[discoveryv1.LabelManagedBy] != t.spec.ManagedBy {
		slice.Endpoints, slice.ManagedFields, slice.Annotations = nil, nil, nil
	}
	return obj, nil
}

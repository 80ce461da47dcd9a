// Package targets watches the Services of some namespaces and their EndpointSlices, and says
// of each Service that is ours, by its label or its name, what is to be done about it. It
// promises that what it shows came from the API server, and how new it is; it outlives an
// API server that is away, keeping what it saw last. It writes nothing, and refuses Services
// that could not work or may not point where they would, each with a sentence that says what
// to do.
//
// What is judged is in pure functions: read (annotations), Resolve (the rest), and concern
// (which slices a Service's view needs). The informers around them only say what changed.
package targets

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Config is what Targets need.
type Config struct {
	Client kubernetes.Interface
	// Class is the value of LabelClass on Services that are ours; their slices are managed by
	// slicefeed-<Class>.
	Class string
	// Writer is our own namespace, the value of slicefeed.dev/writer.
	Writer string
	// Namespaces are watched, besides that of the one named; a single "*": all.
	Namespaces  []string
	NamedTarget NamedTarget
	Defaults    Settings // without Sources: the only source there is
	Sources     []Source
	Logger      *slog.Logger
}

// Targets follows the consuming cluster. Make one with New.
type Targets struct {
	cfg       Config
	informers map[string]*namespaceInformers // by namespace; "" is all of them
	changed   chan struct{}

	mu                  sync.Mutex
	dirty               map[Key]struct{}        // since Take last gave them
	returned            map[Key]struct{}        // by Take, and ours then
	memories            map[Key]serviceMemory   // of Services that are ours
	clusterIPsByService map[Key][]netip.Addr    // ClusterIPs of all Services
	clusterIPUnion      map[netip.Addr]struct{} // of used; nil: to be made anew. Never changed once it was given
}

// serviceMemory is of one Service: another one of its name begins anew.
type serviceMemory struct {
	Memory

	uid types.UID
}

// New prepares the watches; Run starts them.
func New(cfg Config) (*Targets, error) {
	t := &Targets{
		cfg: cfg, informers: map[string]*namespaceInformers{}, changed: make(chan struct{}, 1),
		dirty: map[Key]struct{}{}, returned: map[Key]struct{}{}, memories: map[Key]serviceMemory{}, clusterIPsByService: map[Key][]netip.Addr{},
	}
	namespaces := slices.DeleteFunc(append(slices.Clone(cfg.Namespaces), cfg.NamedTarget.Namespace), func(n string) bool { return n == "" })
	if slices.Contains(namespaces, "*") {
		namespaces = []string{metav1.NamespaceAll}
	}
	if len(namespaces) == 0 {
		return nil, errors.New("no namespace to watch Services in")
	}
	for _, namespace := range namespaces {
		if t.informers[namespace] != nil {
			continue
		}
		a, err := newNamespaceInformers(t, namespace)
		if err != nil {
			return nil, err
		}
		t.informers[namespace] = a
	}
	t.markDirty(cfg.NamedTarget.key()) // it may not be there: then nothing would tell of it
	return t, nil
}

// Run watches until the context ends, and then waits for its watches.
func (t *Targets) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, a := range t.informers {
		wg.Go(func() { a.services.RunWithContext(ctx) })
		wg.Go(func() { a.slices.RunWithContext(ctx) })
		wg.Go(func() {
			if !a.waitForSync(ctx) {
				return
			}
			t.markDirty() // what was touched before waits to be taken
		})
	}
	<-ctx.Done()
	return nil
}

// Changed has a value whenever Take may have something. It is for one reader.
func (t *Targets) Changed() <-chan struct{} { return t.changed }

// TakeChanged returns the Services that may have changed since it was last called, sorted: those
// that are ours, and once more those that no longer are. Namespaces that were never read
// through are left for later.
func (t *Targets) TakeChanged() []Key {
	t.mu.Lock()
	var touched []Key
	for key := range t.dirty {
		if a := t.informersFor(key.Namespace); a == nil || a.synced() {
			touched = append(touched, key)
			delete(t.dirty, key)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(touched, Key.compare)
	return slices.DeleteFunc(touched, func(key Key) bool {
		owned := t.Get(key).Relevant
		t.mu.Lock()
		defer t.mu.Unlock()
		_, given := t.returned[key]
		if owned {
			t.returned[key] = struct{}{}
		} else {
			delete(t.returned, key)
		}
		return !owned && !given
	})
}

// Synced is nil once all namespaces were read through; else it says which not yet.
func (t *Targets) Synced() error {
	var missing []string
	for _, a := range t.informers {
		if !a.synced() {
			missing = append(missing, a.String())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return errors.New("Services and EndpointSlices have not been read yet of " + strings.Join(missing, "; "))
}

// Get looks at the caches and judges one Service. What it costs does not depend on what
// else there is in the namespace.
func (t *Targets) Get(key Key) Resolution {
	a := t.informersFor(key.Namespace)
	if a == nil || !a.synced() {
		return Resolution{}
	}
	// The version first: the slices are that new, or newer.
	version := a.slices.GetStore().LastStoreSyncResourceVersion()
	in := Input{Key: key, Service: a.getService(key), Now: time.Now()}
	in.Slices = a.slicesFor(key, in.Service)
	var uid types.UID
	if in.Service != nil {
		uid = in.Service.UID
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if before := t.memories[key]; before.uid == uid {
		in.Previous = before.Memory
	}
	resolution, after := Resolve(t.cfg, in)
	if after == (Memory{}) {
		delete(t.memories, key)
	} else {
		t.memories[key] = serviceMemory{after, uid}
	}
	resolution.Synced, resolution.ResourceVersion, resolution.ClusterIPs = true, version, t.allClusterIPs()
	return resolution
}

// informersFor is the one that a namespace lies in.
func (t *Targets) informersFor(namespace string) *namespaceInformers {
	if all := t.informers[metav1.NamespaceAll]; all != nil {
		return all
	}
	return t.informers[namespace]
}

// markDirty notes that Services may have changed.
func (t *Targets) markDirty(keys ...Key) {
	t.mu.Lock()
	for _, key := range keys {
		t.dirty[key] = struct{}{}
	}
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// recordClusterIPs notes the ClusterIPs of a Service; none: it is gone.
func (t *Targets) recordClusterIPs(key Key, ips []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Equal(t.clusterIPsByService[key], ips) {
		return
	}
	t.clusterIPUnion = nil
	if len(ips) == 0 {
		delete(t.clusterIPsByService, key)
	} else {
		t.clusterIPsByService[key] = ips
	}
}

func (t *Targets) allClusterIPs() map[netip.Addr]struct{} {
	if t.clusterIPUnion == nil {
		t.clusterIPUnion = make(map[netip.Addr]struct{}, len(t.clusterIPsByService))
		for _, ips := range t.clusterIPsByService {
			for _, ip := range ips {
				t.clusterIPUnion[ip] = struct{}{}
			}
		}
	}
	return t.clusterIPUnion
}

// trimService drops what is never looked at: of Services not ours, there may be many, all
// but what tells them from ours, and what must never be written.
func (t *Targets) trimService(obj any) (any, error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return obj, nil
	}
	svc.ManagedFields, svc.Status = nil, corev1.ServiceStatus{}
	if t.recordLabel(svc) || t.cfg.isTarget(svc) {
		return svc, nil
	}
	small := &corev1.Service{}
	small.Namespace, small.Name, small.UID, small.ResourceVersion = svc.Namespace, svc.Name, svc.UID, svc.ResourceVersion
	small.DeletionTimestamp = svc.DeletionTimestamp
	if class, labelled := svc.Labels[LabelClass]; labelled {
		small.Labels = map[string]string{LabelClass: class}
	}
	if text, given := svc.Annotations[annotationPrefix+pausedAnnotation]; given {
		small.Annotations = map[string]string{annotationPrefix + pausedAnnotation: text}
	}
	small.Spec.ClusterIP, small.Spec.ClusterIPs = svc.Spec.ClusterIP, svc.Spec.ClusterIPs
	return small, nil
}

// recordLabel notes that the Service belongs to this class by its label, before anyone asks for it: the
// label may be removed at once. It reports whether it does or did, so that it may stay managed for a while.
func (t *Targets) recordLabel(svc *corev1.Service) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := keyOf(svc)
	before := t.memories[key]
	if before.uid != svc.UID {
		before = serviceMemory{uid: svc.UID}
	}
	if t.cfg.Class != "" && svc.Labels[LabelClass] == t.cfg.Class {
		before.Labeled, before.UnlabeledSince = true, time.Time{}
		t.memories[key] = before
	}
	return before.Labeled
}

// trimSlice drops what is never looked at of slices that others manage. Of another class's it
// keeps whether they list a ready endpoint.
func (t *Targets) trimSlice(obj any) (any, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return obj, nil
	}
	if by := slice.Labels[discoveryv1.LabelManagedBy]; by != t.cfg.managedBy() && (by == "" || by != t.cfg.NamedTarget.ManagedBy) {
		endpoints := slice.Endpoints
		slice.Endpoints, slice.Ports, slice.ManagedFields, slice.Annotations = nil, nil, nil, nil
		if at := slices.IndexFunc(endpoints, isReady); at >= 0 && isOtherClass(slice) {
			slice.Endpoints = []discoveryv1.Endpoint{*endpoints[at].DeepCopy()}
		}
	}
	return slice, nil
}

// Package targets watches the Services and EndpointSlices of the configured namespaces and resolves
// each Service that concerns this writer, by its label or by name. It guarantees that what it returns
// came from the API server, and states how recent it is; while the API server is away it keeps the last
// state. It does not write anything. It rejects Services that cannot work or may not use their source,
// each with a message that says what to do.
//
// The rules are pure functions: parseAnnotations, Resolve (everything else), and sliceIndex (which
// slices a Service needs). The informers around them only report what changed.
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

// Config is what New needs.
type Config struct {
	Client kubernetes.Interface
	// Class is the value of LabelClass on this writer's Services; their slices are managed by
	// slicefeed-<Class>.
	Class string
	// Writer is the namespace of this writer, the value of slicefeed.dev/writer.
	Writer string
	// Namespaces are watched, and the namespace of NamedTarget; a single "*" means all namespaces.
	Namespaces  []string
	NamedTarget NamedTarget
	Defaults    Settings // without Sources: the only configured source
	Sources     []Source
	Logger      *slog.Logger
}

// Targets watches the consuming cluster. Create it with New.
type Targets struct {
	cfg       Config
	informers map[string]*namespaceInformers // by namespace; "" stands for all
	changed   chan struct{}

	mu                  sync.Mutex
	dirty               map[Key]struct{}        // not yet returned by TakeChanged
	returned            map[Key]struct{}        // by TakeChanged, and relevant then
	memories            map[Key]serviceMemory   // of relevant Services
	clusterIPsByService map[Key][]netip.Addr    // ClusterIPs of all Services
	clusterIPUnion      map[netip.Addr]struct{} // of clusterIPsByService; nil: recompute. Never modified once it was returned
}

// serviceMemory is the Memory of one Service; a recreated Service of the same name starts without it.
type serviceMemory struct {
	Memory

	uid types.UID
}

// New creates the informers; Run starts them.
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
		return nil, errors.New("no namespace to watch")
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
	t.markDirty(cfg.NamedTarget.key()) // it may not exist, and then no watch event reports it
	return t, nil
}

// Run watches until the context ends, and then waits for its informers.
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
			t.markDirty() // signal what became dirty before the sync
		})
	}
	<-ctx.Done()
	return nil
}

// Changed has a value whenever TakeChanged may return something. It is for one reader.
func (t *Targets) Changed() <-chan struct{} { return t.changed }

// TakeChanged returns the Services that may have changed since the last call, sorted: those that are
// relevant, and once more those that stopped being relevant. Namespaces that have not synced are left
// for a later call.
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

// Synced returns nil once all namespaces have synced, and otherwise an error that names those that have
// not.
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
	return errors.New("Services and EndpointSlices not synced in " + strings.Join(missing, "; "))
}

// Get resolves one Service from the caches. Its cost does not depend on the other objects of the
// namespace.
func (t *Targets) Get(key Key) Resolution {
	a := t.informersFor(key.Namespace)
	if a == nil || !a.synced() {
		return Resolution{}
	}
	// Read the version first: the slices are at least that recent.
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

// informersFor returns the informers of a namespace; nil: it is not watched.
func (t *Targets) informersFor(namespace string) *namespaceInformers {
	if all := t.informers[metav1.NamespaceAll]; all != nil {
		return all
	}
	return t.informers[namespace]
}

// markDirty records that Services may have changed.
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

// recordClusterIPs stores the ClusterIPs of a Service; none: the Service is gone.
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

// trimService drops fields that are never read. There may be many Services that are no targets: of
// those it keeps only what is needed to recognize them, and their ClusterIPs, which must never become
// endpoints.
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
	if class, labeled := svc.Labels[LabelClass]; labeled {
		small.Labels = map[string]string{LabelClass: class}
	}
	if text, given := svc.Annotations[annotationPrefix+pausedAnnotation]; given {
		small.Annotations = map[string]string{annotationPrefix + pausedAnnotation: text}
	}
	small.Spec.ClusterIP, small.Spec.ClusterIPs = svc.Spec.ClusterIP, svc.Spec.ClusterIPs
	return small, nil
}

// recordLabel records that the Service has the label of this class, before anything reads it from the
// cache: the label may be removed immediately. It reports whether the Service has or had the label, so
// that it may stay managed for a while.
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

// trimSlice drops fields that are never read from slices that others manage. Of slices of another class
// it keeps whether they list a ready endpoint.
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

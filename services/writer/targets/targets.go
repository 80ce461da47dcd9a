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
	Namespaces []string
	Named      Named
	Defaults   Settings // without Sources: the only source there is
	Sources    []Source
	Logger     *slog.Logger
}

// Targets follows the consuming cluster. Make one with New.
type Targets struct {
	cfg     Config
	areas   map[string]*area // by namespace; "" is all of them
	changed chan struct{}

	mu       sync.Mutex
	touched  map[Key]struct{}        // since Take last gave them
	given    map[Key]struct{}        // by Take, and ours then
	memories map[Key]memory          // of Services that are ours
	used     map[Key][]netip.Addr    // ClusterIPs of all Services
	union    map[netip.Addr]struct{} // of used; nil: to be made anew. Never changed once it was given
}

// memory is of one Service: another one of its name begins anew.
type memory struct {
	Memory

	uid types.UID
}

// New prepares the watches; Run starts them.
func New(cfg Config) (*Targets, error) {
	t := &Targets{
		cfg: cfg, areas: map[string]*area{}, changed: make(chan struct{}, 1),
		touched: map[Key]struct{}{}, given: map[Key]struct{}{}, memories: map[Key]memory{}, used: map[Key][]netip.Addr{},
	}
	namespaces := slices.DeleteFunc(append(slices.Clone(cfg.Namespaces), cfg.Named.Namespace), func(n string) bool { return n == "" })
	if slices.Contains(namespaces, "*") {
		namespaces = []string{metav1.NamespaceAll}
	}
	if len(namespaces) == 0 {
		return nil, errors.New("no namespace to watch Services in")
	}
	for _, namespace := range namespaces {
		if t.areas[namespace] != nil {
			continue
		}
		a, err := newArea(t, namespace)
		if err != nil {
			return nil, err
		}
		t.areas[namespace] = a
	}
	t.touch(cfg.Named.key()) // it may not be there: then nothing would tell of it
	return t, nil
}

// Run watches until the context ends, and then waits for its watches.
func (t *Targets) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, a := range t.areas {
		wg.Go(func() { a.services.RunWithContext(ctx) })
		wg.Go(func() { a.slices.RunWithContext(ctx) })
		wg.Go(func() {
			if !a.wait(ctx) {
				return
			}
			t.touch() // what was touched before waits to be taken
		})
	}
	<-ctx.Done()
	return nil
}

// Changed has a value whenever Take may have something. It is for one reader.
func (t *Targets) Changed() <-chan struct{} { return t.changed }

// Take returns the Services that may have changed since it was last called, sorted: those
// that are ours, and once more those that no longer are. Namespaces that were never read
// through are left for later.
func (t *Targets) Take() []Key {
	t.mu.Lock()
	var touched []Key
	for key := range t.touched {
		if a := t.area(key.Namespace); a == nil || a.synced() {
			touched = append(touched, key)
			delete(t.touched, key)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(touched, Key.compare)
	return slices.DeleteFunc(touched, func(key Key) bool {
		ours := t.Get(key).Ours
		t.mu.Lock()
		defer t.mu.Unlock()
		_, given := t.given[key]
		if ours {
			t.given[key] = struct{}{}
		} else {
			delete(t.given, key)
		}
		return !ours && !given
	})
}

// Synced is nil once all namespaces were read through; else it says which not yet.
func (t *Targets) Synced() error {
	var missing []string
	for _, a := range t.areas {
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
func (t *Targets) Get(key Key) View {
	a := t.area(key.Namespace)
	if a == nil || !a.synced() {
		return View{}
	}
	// The version first: the slices are that new, or newer.
	version := a.slices.GetStore().LastStoreSyncResourceVersion()
	found := Found{Key: key, Service: a.service(key), Now: time.Now()}
	found.Slices = a.concerning(key, found.Service)
	var uid types.UID
	if found.Service != nil {
		uid = found.Service.UID
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if before := t.memories[key]; before.uid == uid {
		found.Before = before.Memory
	}
	view, after := Resolve(t.cfg, found)
	if after == (Memory{}) {
		delete(t.memories, key)
	} else {
		t.memories[key] = memory{after, uid}
	}
	view.Synced, view.ResourceVersion, view.ClusterIPs = true, version, t.clusterIPs()
	return view
}

// area is the one that a namespace lies in.
func (t *Targets) area(namespace string) *area {
	if all := t.areas[metav1.NamespaceAll]; all != nil {
		return all
	}
	return t.areas[namespace]
}

// touch notes that Services may have changed.
func (t *Targets) touch(keys ...Key) {
	t.mu.Lock()
	for _, key := range keys {
		t.touched[key] = struct{}{}
	}
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// use notes the ClusterIPs of a Service; none: it is gone.
func (t *Targets) use(key Key, ips []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Equal(t.used[key], ips) {
		return
	}
	t.union = nil
	if len(ips) == 0 {
		delete(t.used, key)
	} else {
		t.used[key] = ips
	}
}

func (t *Targets) clusterIPs() map[netip.Addr]struct{} {
	if t.union == nil {
		t.union = make(map[netip.Addr]struct{}, len(t.used))
		for _, ips := range t.used {
			for _, ip := range ips {
				t.union[ip] = struct{}{}
			}
		}
	}
	return t.union
}

// trimService drops what is never looked at: of Services not ours, there may be many, all
// but what tells them from ours, and what must never be written.
func (t *Targets) trimService(obj any) (any, error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return obj, nil
	}
	svc.ManagedFields, svc.Status = nil, corev1.ServiceStatus{}
	if t.noteLabel(svc) || t.cfg.belongs(svc) {
		return svc, nil
	}
	small := &corev1.Service{}
	small.Namespace, small.Name, small.UID, small.ResourceVersion = svc.Namespace, svc.Name, svc.UID, svc.ResourceVersion
	small.DeletionTimestamp = svc.DeletionTimestamp
	if class, labelled := svc.Labels[LabelClass]; labelled {
		small.Labels = map[string]string{LabelClass: class}
	}
	if text, given := svc.Annotations[prefix+paused]; given {
		small.Annotations = map[string]string{prefix + paused: text}
	}
	small.Spec.ClusterIP, small.Spec.ClusterIPs = svc.Spec.ClusterIP, svc.Spec.ClusterIPs
	return small, nil
}

// noteLabel notes that the Service belongs to this class by its label, before anyone asks for it: the
// label may be removed at once. It reports whether it does or did, so that it may stay managed for a while.
func (t *Targets) noteLabel(svc *corev1.Service) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := keyOf(svc)
	before := t.memories[key]
	if before.uid != svc.UID {
		before = memory{uid: svc.UID}
	}
	if t.cfg.Class != "" && svc.Labels[LabelClass] == t.cfg.Class {
		before.Labelled, before.Unlabelled = true, time.Time{}
		t.memories[key] = before
	}
	return before.Labelled
}

// trimSlice drops what is never looked at of slices that others manage. Of another class's it
// keeps whether they list a ready endpoint.
func (t *Targets) trimSlice(obj any) (any, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return obj, nil
	}
	if by := slice.Labels[discoveryv1.LabelManagedBy]; by != t.cfg.managedBy() && (by == "" || by != t.cfg.Named.ManagedBy) {
		endpoints := slice.Endpoints
		slice.Endpoints, slice.Ports, slice.ManagedFields, slice.Annotations = nil, nil, nil, nil
		if at := slices.IndexFunc(endpoints, isReady); at >= 0 && ofAnotherClass(slice) {
			slice.Endpoints = []discoveryv1.Endpoint{*endpoints[at].DeepCopy()}
		}
	}
	return slice, nil
}

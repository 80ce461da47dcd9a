package targets

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// Watcher watches the Services and EndpointSlices of the configured namespaces, and ServiceImports if they are targets
// too, and resolves each target. It guarantees that what it returns came from the API server, and states how recent it is;
// while the API server is away it keeps the last state. It does not write anything. Create it with New.
type Watcher struct {
	cfg       Config
	log       *slog.Logger
	informers map[string]*namespaceInformers // by namespace; "" stands for all
	changed   chan struct{}

	mu       sync.Mutex
	dirty    map[Key]struct{} // not yet returned by TakeChanged
	memories map[Key]Memory   // of relevant Services
	// Addresses that must not become endpoints, by the namespace of the target; see clusterIPsFor. The inner maps are
	// never modified; nil: recompute.
	clusterIPs map[string]map[netip.Addr]struct{}
}

// New creates the informers; Run starts them. Without cfg.ServiceImports their client is not used.
func New(client kubernetes.Interface, imports dynamic.Interface, cfg Config, log *slog.Logger) (*Watcher, error) {
	w := &Watcher{
		cfg: cfg, log: log, informers: map[string]*namespaceInformers{}, changed: make(chan struct{}, 1),
		dirty: map[Key]struct{}{}, memories: map[Key]Memory{},
	}
	if len(cfg.Namespaces) == 0 || slices.Contains(cfg.Namespaces, "") {
		return nil, errors.New("no namespace to watch")
	}
	for _, namespace := range cfg.Namespaces {
		if namespace == "*" {
			namespace = metav1.NamespaceAll
		}
		a, err := newNamespaceInformers(w, client, imports, namespace)
		if err != nil {
			return nil, err
		}
		w.informers[namespace] = a
	}
	if cfg.NamedTarget.Name != "" { // it may not exist, and then no watch event reports it
		w.markDirty(cfg.NamedTarget.Key)
	}
	return w, nil
}

// Run watches until the context ends, and then waits for its informers.
func (w *Watcher) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, a := range w.informers {
		a.run(ctx, &wg)
	}
	<-ctx.Done()
	return nil
}

// Changed has a value whenever TakeChanged may return something. It is for one reader.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// TakeChanged returns the Services that may have changed since the last call, sorted, whether they are
// relevant or not. Namespaces that have not synced are left for a later call.
func (w *Watcher) TakeChanged() []Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	var taken []Key
	for key := range w.dirty {
		if a := w.informersFor(key.Namespace); a == nil || a.knows(key) {
			taken = append(taken, key)
			delete(w.dirty, key)
		}
	}
	slices.SortFunc(taken, Key.Compare)
	return taken
}

// Synced returns nil once all namespaces have synced, and otherwise an error that names those that have
// not.
func (w *Watcher) Synced() error {
	var missing []string
	for _, namespace := range slices.Sorted(maps.Keys(w.informers)) {
		if a := w.informers[namespace]; !a.synced() || !a.importsSynced() {
			missing = append(missing, a.String())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	kinds := "Services and EndpointSlices"
	if w.cfg.ServiceImports {
		kinds = "Services, EndpointSlices and ServiceImports"
	}
	return errors.New(kinds + " not synced in " + strings.Join(missing, "; "))
}

// ImportsServed returns nil unless ServiceImports are targets, and the API server has not served them since the start.
// Services are managed all the same, and ServiceImports once they are served.
func (w *Watcher) ImportsServed() error {
	for _, a := range w.informers {
		if a.importsNotServed.Load() && !a.imports.synced() {
			return errImportsNotServed
		}
	}
	return nil
}

// Get resolves one Service from the caches. leadingSince is when this writer began to lead; zero: it does not. The cost
// does not depend on the other objects of the namespace.
func (w *Watcher) Get(key Key, leadingSince time.Time) Resolution {
	a := w.informersFor(key.Namespace)
	if a == nil || !a.knows(key) {
		return Resolution{}
	}
	// Read the version first: the slices are at least that recent.
	version := a.slices.GetStore().LastStoreSyncResourceVersion()
	in := Input{Key: key, Service: a.getService(key), Now: time.Now(), LeadingSince: leadingSince}
	in.Slices = a.slicesFor(key, in.Service)
	w.mu.Lock()
	defer w.mu.Unlock()
	in.Previous = w.memories[key]
	resolution, after := Resolve(w.cfg, in)
	if after == (Memory{}) {
		delete(w.memories, key)
	} else {
		w.memories[key] = after
	}
	resolution.ResourceVersion, resolution.ClusterIPs = version, w.clusterIPsFor(a, key.Namespace)
	return resolution
}

// clusterIPsFor returns the addresses that must not become endpoints in a namespace: the cluster IPs of all Services,
// which the API server allocates, and the IPs of the ServiceImports of the namespace. These are free text: in another
// namespace they would let anyone who may create a ServiceImport remove endpoints.
func (w *Watcher) clusterIPsFor(a *namespaceInformers, namespace string) map[netip.Addr]struct{} {
	if w.clusterIPs == nil {
		ofServices := map[netip.Addr]struct{}{}
		for _, a := range w.informers {
			addAddresses(ofServices, a.services.GetIndexer().ListIndexFuncValues(indexByClusterIP))
		}
		w.clusterIPs = map[string]map[netip.Addr]struct{}{metav1.NamespaceAll: ofServices}
	}
	all, known := w.clusterIPs[namespace]
	if !known {
		all = w.clusterIPs[metav1.NamespaceAll]
		if ofImports := a.importIPs(namespace); len(ofImports) > 0 {
			all = maps.Clone(all)
			addAddresses(all, ofImports)
		}
		w.clusterIPs[namespace] = all
	}
	return all
}

func addAddresses(to map[netip.Addr]struct{}, texts []string) {
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil { // "None" and "" are not addresses
			to[addr.Unmap()] = struct{}{}
		}
	}
}

// informersFor returns the informers of a namespace; nil: it is not watched.
func (w *Watcher) informersFor(namespace string) *namespaceInformers {
	if all := w.informers[metav1.NamespaceAll]; all != nil {
		return all
	}
	return w.informers[namespace]
}

// markDirty records that Services may have changed.
func (w *Watcher) markDirty(keys ...Key) {
	w.mu.Lock()
	for _, key := range keys {
		w.dirty[key] = struct{}{}
	}
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// recordLabel records that the Service has the label of this class, before anything reads it from the
// cache: the label may be removed immediately. It reports whether the Service has or had the label, so
// that it may stay managed for a while.
func (w *Watcher) recordLabel(svc *corev1.Service) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := keyOf(svc)
	before := w.memories[key]
	if before.UID != svc.UID {
		before = Memory{UID: svc.UID}
	}
	if w.cfg.isLabeled(svc) {
		before.Labeled, before.UnlabeledSince = true, time.Time{}
		w.memories[key] = before
	}
	return before.Labeled
}

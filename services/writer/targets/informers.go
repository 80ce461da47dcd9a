package targets

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/internal/display"
)

// Names of the indexes: slices by the Services that they affect, Services and ServiceImports by UID, Services by cluster
// IP.
const (
	indexByService   = "service"
	indexByUID       = "uid"
	indexByClusterIP = "cluster-ip"
)

// namespaceInformers holds the informers of one namespace, or of all.
type namespaceInformers struct {
	watcher   *Watcher
	namespace string
	services  cache.SharedIndexInformer
	slices    cache.SharedIndexInformer
	imports   cache.SharedIndexInformer // of ServiceImports, as Services; nil: they are not targets
	// Handlers of Services and slices that have processed the complete first list: only then is the cache complete.
	handlers []cache.ResourceEventHandlerRegistration
	// That of ServiceImports: without these, Services are managed all the same.
	importHandler    cache.ResourceEventHandlerRegistration
	importsNotServed atomic.Bool

	mu          sync.Mutex
	watchErrors map[string]string // the last error of each watch, by resource
}

func newNamespaceInformers(
	w *Watcher, client kubernetes.Interface, imports dynamic.Interface, namespace string,
) (*namespaceInformers, error) {
	a := &namespaceInformers{watcher: w, namespace: namespace, watchErrors: map[string]string{}}
	indexByUIDFunc := indexFunc(func(svc *corev1.Service) []string { return []string{uidKey(svc.Namespace, svc.UID)} })
	trim := func(svc *corev1.Service) *corev1.Service { return w.cfg.trimService(svc, w.recordLabel(svc)) }
	requests := cluster.KeepCurrent(cluster.NewRequests(client.CoreV1().Services(namespace), "", ""), client)
	a.services = cache.NewSharedIndexInformer(requests, &corev1.Service{}, 0, cache.Indexers{
		indexByUID: indexByUIDFunc, indexByClusterIP: indexFunc(clusterIPs),
	})
	// All slices: an owned slice whose labels someone modified must still be repaired, and the names of
	// other slices must not be taken.
	requests = cluster.KeepCurrent(cluster.NewRequests(client.DiscoveryV1().EndpointSlices(namespace), "", ""), client)
	a.slices = cache.NewSharedIndexInformer(requests, &discoveryv1.EndpointSlice{}, 0, cache.Indexers{
		indexByService: indexFunc(w.cfg.indexKeys),
	})
	services, errServices := configureInformer(a, "Services", a.services, trim, a.onServiceChange)
	slices, errSlices := configureInformer(a, "EndpointSlices", a.slices, w.cfg.trimSlice, a.onSliceChange)
	a.handlers = []cache.ResourceEventHandlerRegistration{services, slices}
	var errImports error
	if w.cfg.ServiceImports {
		a.imports = newImportInformer(imports, namespace, &a.importsNotServed, cache.Indexers{
			indexByUID: indexByUIDFunc, cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		})
		trimImport := func(object *unstructured.Unstructured) *corev1.Service { return trim(serviceOfImport(object)) }
		a.importHandler, errImports = configureInformer(a, "ServiceImports", a.imports, trimImport, a.onServiceChange)
	}
	return a, errors.Join(errServices, errSlices, errImports)
}

func indexFunc[T metav1.Object](keys func(T) []string) cache.IndexFunc {
	return func(obj any) ([]string, error) { return keys(obj.(T)), nil }
}

func clusterIPs(svc *corev1.Service) []string {
	if len(svc.Spec.ClusterIPs) > 0 {
		return svc.Spec.ClusterIPs
	}
	return []string{svc.Spec.ClusterIP}
}

// configureInformer sets up an informer: what it keeps of each object, and what it does with changes and errors. The
// handler gets the object before and after a change, or nil.
func configureInformer[R any, T metav1.Object](
	a *namespaceInformers, resource string, informer cache.SharedIndexInformer, trim func(R) T, handle func(before, after T),
) (cache.ResourceEventHandlerRegistration, error) {
	var none T
	errTransform := informer.SetTransform(func(obj any) (any, error) {
		if object, ok := obj.(R); ok {
			return trim(object), nil
		}
		return obj, nil // of a deletion that the watch missed
	})
	errHandler := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsResourceExpired(err) { // it lists again now
			return
		}
		a.watcher.log.Warn("watch interrupted, keeping last state",
			slog.String("resource", resource), slog.String("namespace", a.namespace), slog.Any("error", err))
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watchErrors[resource] = err.Error()
	})
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(after any) { handle(none, after.(T)) },
		UpdateFunc: func(before, after any) {
			if b, a := before.(T), after.(T); !equalVersions(b, a) {
				handle(b, a)
			}
		},
		DeleteFunc: func(before any) {
			if missed, ok := before.(cache.DeletedFinalStateUnknown); ok {
				before = missed.Obj
			}
			handle(before.(T), none)
		},
	})
	return registration, errors.Join(errTransform, errHandler, err)
}

// equalVersions reports whether nothing changed: a relist repeats known objects.
func equalVersions(before, after metav1.Object) bool {
	return after.GetResourceVersion() != "" && after.GetUID() == before.GetUID() &&
		after.GetResourceVersion() == before.GetResourceVersion()
}

func (a *namespaceInformers) synced() bool {
	return !slices.ContainsFunc(a.handlers, func(h cache.ResourceEventHandlerRegistration) bool { return !h.HasSynced() })
}

// importsSynced reports whether all ServiceImports are known. There are none if the API server does not serve them.
func (a *namespaceInformers) importsSynced() bool {
	return a.imports == nil || a.importHandler.HasSynced() || a.importsNotServed.Load()
}

// knows reports whether the caches have all that the resolution of a target needs.
func (a *namespaceInformers) knows(key Key) bool {
	return a.synced() && (!key.Import || a.imports != nil && a.importHandler.HasSynced())
}

// signalSync makes the watcher signal what became dirty before all is known.
func (a *namespaceInformers) signalSync(ctx context.Context, known func() bool) {
	if cache.WaitForCacheSync(ctx.Done(), known) {
		a.watcher.markDirty()
	}
}

// targetInformers returns the informers of what may be a target.
func (a *namespaceInformers) targetInformers() []cache.SharedIndexInformer {
	if a.imports == nil {
		return []cache.SharedIndexInformer{a.services}
	}
	return []cache.SharedIndexInformer{a.services, a.imports}
}

// importIPs returns the IPs of the ServiceImports of a namespace.
func (a *namespaceInformers) importIPs(namespace string) (ips []string) {
	if a.imports == nil {
		return nil
	}
	found, _ := a.imports.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	for _, svc := range found {
		ips = append(ips, clusterIPs(svc.(*corev1.Service))...)
	}
	return ips
}

// String names the namespace, and why it cannot be read.
func (a *namespaceInformers) String() string {
	name := "namespace " + a.namespace
	if a.namespace == metav1.NamespaceAll {
		name = "all namespaces"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.watchErrors) == 0 {
		return name
	}
	var causes []string
	for _, resource := range slices.Sorted(maps.Keys(a.watchErrors)) {
		causes = append(causes, display.Truncate(a.watchErrors[resource], 256))
	}
	return name + " (" + strings.Join(causes, "; ") + ")"
}

// getService returns a Service, or a ServiceImport as a Service; nil: there is none.
func (a *namespaceInformers) getService(key Key) *corev1.Service {
	informer := a.services
	if key.Import {
		informer = a.imports
	}
	obj, found, err := informer.GetStore().GetByKey(cache.ObjectName{Namespace: key.Namespace, Name: key.Name}.String())
	if err != nil || !found {
		return nil
	}
	return obj.(*corev1.Service)
}

// slicesFor returns the slices that a Service needs, by name.
func (a *namespaceInformers) slicesFor(key Key, svc *corev1.Service) []*discoveryv1.EndpointSlice {
	values := []string{key.String()}
	if svc != nil {
		values = append(values, uidKey(svc.Namespace, svc.UID))
	}
	var all []*discoveryv1.EndpointSlice
	for _, value := range values {
		found, _ := a.slices.GetIndexer().ByIndex(indexByService, value) // its only error: no such index
		for _, obj := range found {
			all = append(all, obj.(*discoveryv1.EndpointSlice))
		}
	}
	slices.SortFunc(all, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b *discoveryv1.EndpointSlice) bool { return a.Name == b.Name })
}

// onServiceChange marks a Service or a ServiceImport dirty. The cluster IPs are read again if they may have changed.
func (a *namespaceInformers) onServiceChange(before, after *corev1.Service) {
	if before == nil || after == nil || !slices.Equal(clusterIPs(before), clusterIPs(after)) {
		a.watcher.mu.Lock()
		a.watcher.clusterIPs = nil
		a.watcher.mu.Unlock()
	}
	if after == nil {
		after = before
	}
	a.watcher.markDirty(keyOf(after))
}

// onSliceChange marks the Services dirty that the slice affected before and affects now.
func (a *namespaceInformers) onSliceChange(before, after *discoveryv1.EndpointSlice) {
	var keys []Key
	for _, slice := range []*discoveryv1.EndpointSlice{before, after} {
		if slice == nil {
			continue
		}
		for _, value := range a.watcher.cfg.indexKeys(slice) {
			if strings.Contains(value, "/") {
				keys = append(keys, ParseKey(value))
				continue
			}
			for _, informer := range a.targetInformers() {
				owners, _ := informer.GetIndexer().ByIndex(indexByUID, value)
				for _, owner := range owners {
					keys = append(keys, keyOf(owner.(*corev1.Service)))
				}
			}
		}
	}
	if len(keys) > 0 {
		a.watcher.markDirty(keys...)
	}
}

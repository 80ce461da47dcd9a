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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/internal/display"
)

// Names of the indexes: slices by the targets that they affect, Services and ServiceImports by their ownerKey, Services
// by cluster IP.
const (
	indexByTarget    = "target"
	indexByOwnerKey  = "owner"
	indexByClusterIP = "cluster-ip"
)

// informer keeps the objects of one kind. It is complete once its handler has processed the first list.
type informer struct {
	cache.SharedIndexInformer

	handler cache.ResourceEventHandlerRegistration
}

func (i *informer) synced() bool { return i.handler.HasSynced() }

// namespaceInformers holds the informers of one namespace, or of all.
type namespaceInformers struct {
	watcher          *Watcher
	namespace        string
	services, slices *informer
	imports          *informer // of ServiceImports, as Services; nil: they are not targets
	importsNotServed atomic.Bool

	mu          sync.Mutex
	watchErrors map[string]string // the last error of each watch, by resource
}

func newNamespaceInformers(
	w *Watcher, client kubernetes.Interface, imports dynamic.Interface, namespace string,
) (*namespaceInformers, error) {
	a := &namespaceInformers{watcher: w, namespace: namespace, watchErrors: map[string]string{}}
	trim := func(svc *corev1.Service) *corev1.Service { return w.cfg.trimService(svc, w.recordLabel(svc)) }
	byOwnerKey := indexFunc(func(svc *corev1.Service) []string { return []string{ownerKey(svc.Namespace, svc.UID)} })
	byTarget := indexFunc(func(slice *discoveryv1.EndpointSlice) []string {
		keys, all := w.cfg.affected(slice)
		for _, key := range keys {
			all = append(all, key.String())
		}
		return all
	})
	var errs [3]error
	requests := cluster.KeepCurrent(cluster.NewRequests(client.CoreV1().Services(namespace), "", ""), client)
	indexes := cache.Indexers{indexByOwnerKey: byOwnerKey, indexByClusterIP: indexFunc(clusterIPs)}
	a.services, errs[0] = newInformer(a, "Services", requests, &corev1.Service{}, indexes, trim, a.onServiceChange)
	// All slices: an owned slice whose labels someone modified must still be repaired, and the names of
	// other slices must not be taken.
	requests = cluster.KeepCurrent(cluster.NewRequests(client.DiscoveryV1().EndpointSlices(namespace), "", ""), client)
	indexes = cache.Indexers{indexByTarget: byTarget}
	a.slices, errs[1] = newInformer(a, "EndpointSlices", requests, &discoveryv1.EndpointSlice{}, indexes, w.cfg.trimSlice, a.onSliceChange)
	if w.cfg.ServiceImports {
		requests = newImportRequests(imports, namespace, &a.importsNotServed)
		indexes = cache.Indexers{indexByOwnerKey: byOwnerKey, cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		object, trimImport := &unstructured.Unstructured{}, func(o *unstructured.Unstructured) *corev1.Service { return trim(serviceOfImport(o)) }
		a.imports, errs[2] = newInformer(a, "ServiceImports", requests, object, indexes, trimImport, a.onServiceChange)
	}
	return a, errors.Join(errs[:]...)
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

// newInformer returns an informer of objects R, which keeps what trim returns of each. The handler gets the object before
// and after a change, or nil.
func newInformer[R runtime.Object, T metav1.Object](
	a *namespaceInformers, resource string, requests cache.ListerWatcher, object R, indexers cache.Indexers,
	trim func(R) T, handle func(before, after T),
) (*informer, error) {
	var none T
	of := cache.NewSharedIndexInformer(requests, object, 0, indexers)
	errTransform := of.SetTransform(func(obj any) (any, error) {
		if object, ok := obj.(R); ok {
			return trim(object), nil
		}
		return obj, nil // of a deletion that the watch missed
	})
	errHandler := of.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsResourceExpired(err) { // it lists again now
			return
		}
		a.watcher.log.Warn("watch interrupted, keeping last state",
			slog.String("resource", resource), slog.String("namespace", a.namespace), slog.Any("error", err))
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watchErrors[resource] = err.Error()
	})
	handler, err := of.AddEventHandler(cache.ResourceEventHandlerFuncs{
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
	return &informer{of, handler}, errors.Join(errTransform, errHandler, err)
}

// equalVersions reports whether nothing changed: a relist repeats known objects.
func equalVersions(before, after metav1.Object) bool {
	return after.GetResourceVersion() != "" && after.GetUID() == before.GetUID() &&
		after.GetResourceVersion() == before.GetResourceVersion()
}

func (a *namespaceInformers) synced() bool { return a.services.synced() && a.slices.synced() }

// importsSynced reports whether all ServiceImports are known. There are none if the API server does not serve them, and
// Services are managed without.
func (a *namespaceInformers) importsSynced() bool {
	return a.imports == nil || a.imports.synced() || a.importsNotServed.Load()
}

// knows reports whether the caches have all that the resolution of a target needs.
func (a *namespaceInformers) knows(key Key) bool {
	return a.synced() && (!key.Import || a.imports != nil && a.imports.synced())
}

// run watches until the context ends. It has the watcher signal what became dirty before all was known.
func (a *namespaceInformers) run(ctx context.Context, wg *sync.WaitGroup) {
	known := []cache.InformerSynced{a.synced}
	if a.imports != nil {
		known = append(known, a.importsSynced, a.imports.synced) // the second one later, if they are served later
	}
	for _, known := range known {
		wg.Go(func() {
			if cache.WaitForCacheSync(ctx.Done(), known) {
				a.watcher.markDirty()
			}
		})
	}
	for _, informer := range append(a.targetInformers(), a.slices) {
		wg.Go(func() { informer.RunWithContext(ctx) })
	}
}

// targetInformers returns the informers of what may be a target.
func (a *namespaceInformers) targetInformers() []*informer {
	if a.imports == nil {
		return []*informer{a.services}
	}
	return []*informer{a.services, a.imports}
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

// slicesFor returns the slices that a target needs, by name.
func (a *namespaceInformers) slicesFor(key Key, svc *corev1.Service) (all []*discoveryv1.EndpointSlice) {
	indexer := a.slices.GetIndexer()
	found, _ := indexer.ByIndex(indexByTarget, key.String()) // its only error: no such index
	if svc != nil {
		owned, _ := indexer.ByIndex(indexByTarget, ownerKey(svc.Namespace, svc.UID))
		found = append(found, owned...)
	}
	for _, obj := range found {
		all = append(all, obj.(*discoveryv1.EndpointSlice))
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

// onSliceChange marks the targets dirty that the slice affected before and affects now.
func (a *namespaceInformers) onSliceChange(before, after *discoveryv1.EndpointSlice) {
	var all []Key
	for _, slice := range []*discoveryv1.EndpointSlice{before, after} {
		if slice == nil {
			continue
		}
		keys, owners := a.watcher.cfg.affected(slice)
		all = append(all, keys...)
		for _, owner := range owners {
			for _, informer := range a.targetInformers() {
				found, _ := informer.GetIndexer().ByIndex(indexByOwnerKey, owner)
				for _, svc := range found {
					all = append(all, keyOf(svc.(*corev1.Service)))
				}
			}
		}
	}
	if len(all) > 0 {
		a.watcher.markDirty(all...)
	}
}

package targets

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// Names of the indexes: slices by the Services they affect, Services by UID.
const (
	indexByService = "concern"
	indexByUID     = "uid"
)

// namespaceInformers holds the two informers of one namespace, or of all.
type namespaceInformers struct {
	namespace string
	index     sliceIndex
	services  cache.SharedIndexInformer
	slices    cache.SharedIndexInformer
	// Handlers that have processed the complete first list: only then is the cache complete.
	handlers []cache.ResourceEventHandlerRegistration

	mu          sync.Mutex
	watchErrors map[string]string // the last error of each watch, by resource
}

func newNamespaceInformers(t *Targets, namespace string) (*namespaceInformers, error) {
	a := &namespaceInformers{namespace: namespace, index: sliceIndex{t.cfg.NamedTarget}, watchErrors: map[string]string{}}
	a.services = coreinformers.NewServiceInformer(t.cfg.Client, namespace, 0, cache.Indexers{indexByUID: func(obj any) ([]string, error) {
		if svc, ok := obj.(*corev1.Service); ok {
			return []string{uidKey(svc.Namespace, svc.UID)}, nil
		}
		return nil, nil
	}})
	// All slices: an owned slice whose labels someone modified must still be repaired, and the names of
	// other slices must not be taken.
	a.slices = discoveryinformers.NewEndpointSliceInformer(t.cfg.Client, namespace, 0, cache.Indexers{indexByService: func(obj any) ([]string, error) {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
			return a.index.indexKeys(slice), nil
		}
		return nil, nil
	}})
	return a, errors.Join(
		a.watch(t, "Services", a.services, t.trimService, a.onServiceChange),
		a.watch(t, "EndpointSlices", a.slices, t.trimSlice, a.onSliceChange),
	)
}

// watch configures an informer: which fields it keeps, and what it does with changes and errors.
func (a *namespaceInformers) watch(t *Targets, resource string, informer cache.SharedIndexInformer, trim cache.TransformFunc, handle func(t *Targets, before, after any)) error {
	if err := informer.SetTransform(trim); err != nil {
		return err
	}
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		t.cfg.Logger.Warn("watch interrupted, keeping last state",
			slog.String("resource", resource), slog.String("namespace", a.namespace), slog.Any("error", err))
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watchErrors[resource] = err.Error()
	})
	if err != nil {
		return err
	}
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(after any) { handle(t, nil, after) },
		UpdateFunc: func(before, after any) {
			if !equalVersions(before, after) {
				handle(t, before, after)
			}
		},
		DeleteFunc: func(before any) {
			if missed, ok := before.(cache.DeletedFinalStateUnknown); ok {
				before = missed.Obj
			}
			handle(t, before, nil)
		},
	})
	a.handlers = append(a.handlers, handler)
	return err
}

// equalVersions reports whether nothing changed: a relist repeats known objects.
func equalVersions(before, after any) bool {
	b, okB := before.(metav1.Object)
	a, okA := after.(metav1.Object)
	return okB && okA && a.GetResourceVersion() != "" && a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

func (a *namespaceInformers) synced() bool {
	return !slices.ContainsFunc(a.handlers, func(h cache.ResourceEventHandlerRegistration) bool { return !h.HasSynced() })
}

func (a *namespaceInformers) waitForSync(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), a.synced)
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

func (a *namespaceInformers) getService(key Key) *corev1.Service {
	obj, found, err := a.services.GetStore().GetByKey(key.String())
	if err != nil || !found {
		return nil
	}
	svc, _ := obj.(*corev1.Service)
	return svc
}

// slicesFor returns the slices that a Service needs, by name.
func (a *namespaceInformers) slicesFor(key Key, svc *corev1.Service) []*discoveryv1.EndpointSlice {
	values := []string{key.String()}
	if svc != nil {
		values = append(values, uidKey(svc.Namespace, svc.UID))
	}
	var all []*discoveryv1.EndpointSlice
	for _, value := range values {
		found, err := a.slices.GetIndexer().ByIndex(indexByService, value)
		if err != nil {
			continue // no such index: a bug that every test shows
		}
		for _, obj := range found {
			if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
				all = append(all, slice)
			}
		}
	}
	slices.SortFunc(all, func(a, b *discoveryv1.EndpointSlice) int { return keyOf(a).compare(keyOf(b)) })
	return slices.CompactFunc(all, func(a, b *discoveryv1.EndpointSlice) bool { return keyOf(a) == keyOf(b) })
}

func (a *namespaceInformers) onServiceChange(t *Targets, before, after any) {
	if svc, ok := after.(*corev1.Service); ok {
		t.serviceChanged(keyOf(svc), parseClusterIPs(&svc.Spec))
	} else if svc, ok := before.(*corev1.Service); ok {
		t.serviceChanged(keyOf(svc), nil)
	}
}

// onSliceChange marks the Services dirty that the slice affected before and affects now.
func (a *namespaceInformers) onSliceChange(t *Targets, before, after any) {
	var keys []Key
	for _, obj := range []any{before, after} {
		slice, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		for _, value := range a.index.indexKeys(slice) {
			if namespace, name, isKey := strings.Cut(value, "/"); isKey {
				keys = append(keys, Key{namespace, name})
				continue
			}
			owners, err := a.services.GetIndexer().ByIndex(indexByUID, value)
			for _, obj := range owners {
				if svc, ok := obj.(*corev1.Service); ok && err == nil {
					keys = append(keys, keyOf(svc))
				}
			}
		}
	}
	if len(keys) > 0 {
		t.markDirty(keys...)
	}
}

// Package targets watches the Services and EndpointSlices of the configured namespaces and resolves
// each Service that concerns this writer, by its label or by name. It guarantees that what it returns
// came from the API server, and states how recent it is; while the API server is away it keeps the last
// state. It does not write anything. It rejects Services that cannot work or may not use their source,
// each with a message that says what to do.
//
// The rules are pure functions: parseAnnotations, Resolve (everything else), and sliceIndex (which
// slices a Service needs). The informers around them only report what changed. A Service passes through
// the files in this order: informers, trim, index, targets (Get), resolve, optout, annotations, settings, ports,
// validate, probesonly.
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

	mu         sync.Mutex
	dirty      map[Key]struct{}      // not yet returned by TakeChanged
	returned   map[Key]struct{}      // by TakeChanged, and relevant then
	memories   map[Key]serviceMemory // of relevant Services
	clusterIPs clusterIPs
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
		dirty: map[Key]struct{}{}, returned: map[Key]struct{}{}, memories: map[Key]serviceMemory{}, clusterIPs: clusterIPs{byService: map[Key][]netip.Addr{}},
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
		relevant := t.Get(key).Relevant
		t.mu.Lock()
		defer t.mu.Unlock()
		_, wasRelevant := t.returned[key]
		if relevant {
			t.returned[key] = struct{}{}
		} else {
			delete(t.returned, key)
		}
		return !relevant && !wasRelevant
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
	resolution.Synced, resolution.ResourceVersion, resolution.ClusterIPs = true, version, t.clusterIPs.all()
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

// serviceChanged records the ClusterIPs of a Service, none if it is gone, and that it may have changed.
func (t *Targets) serviceChanged(key Key, clusterIPs []netip.Addr) {
	t.mu.Lock()
	t.clusterIPs.set(key, clusterIPs)
	t.mu.Unlock()
	t.markDirty(key)
}

package kube

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Changes is what a watch has received since the previous Take.
type Changes[T any] struct {
	Progress

	Objects map[string]T // all, by name; as namespace/name if they are in one. Only the next Take modifies it
	Names   []string     // of those that are new, changed or removed, sorted

	ChangedAt time.Time // when the first change arrived; zero: there is none
	Failure   string    // of a list or watch since LastContact; reported once
	Number    uint64    // of the changes so far; see Watch.Number
}

// Progress is how far a watch has come.
type Progress struct {
	LastContact     time.Time // of the last list, event or bookmark; zero: none yet
	ResourceVersion uint64    // reached at LastContact
}

// tracker is the store behind the reflector. A shared informer was rejected: its queue and
// goroutines sit between the watch and the reader, so that a resourceVersion which the watch has
// reached would not imply that the changes before it are visible. Here one lock covers both,
// in the order of the events.
type tracker[T any] struct {
	resource string
	extract  func(runtime.Object) T
	equal    func(a, b T) bool
	changed  chan<- struct{}

	mu         sync.Mutex
	synced     bool                        // a complete list was received
	objects    map[string]trackedObject[T] // by name
	taken      map[string]T                // their values as of the previous Take
	dirty      sets.Set[string]            // names that changed since the previous Take
	dirtySince time.Time                   // of the first of them
	number     uint64                      // of changes so far
	deleted    map[string]uint64           // by name: the resourceVersion of the deletion; nil outside of full verifications

	reached Progress
	failure string
}

// trackedObject is an object as the watch last delivered it.
type trackedObject[T any] struct {
	version

	value T
}

// version identifies one state of an object.
type version struct {
	uid types.UID
	rv  uint64
}

func versionOf(o metav1.Object) version {
	return version{o.GetUID(), parseResourceVersion(o.GetResourceVersion())}
}

// trimmedObject replaces an object while the reflector reads a list, so that the list costs
// little memory.
type trimmedObject[T any] struct {
	metav1.ObjectMeta

	value T
}

var (
	_ cache.TransformingStore      = (*tracker[int])(nil)
	_ cache.ReflectorBookmarkStore = (*tracker[int])(nil)
)

func newTracker[O runtime.Object, T any](kind Kind[O, T], changed chan<- struct{}) *tracker[T] {
	return &tracker[T]{
		resource: kind.Resource, equal: kind.Equal, changed: changed,
		extract: func(o runtime.Object) T {
			typed, _ := o.(O)
			return kind.Extract(typed)
		},
		objects: map[string]trackedObject[T]{}, taken: map[string]T{}, dirty: sets.Set[string]{},
	}
}

// Add stores an object that was added.
func (t *tracker[T]) Add(obj any) error { return t.put(obj) }

// Update stores an object that was modified.
func (t *tracker[T]) Update(obj any) error { return t.put(obj) }

func (t *tracker[T]) put(obj any) error {
	o, ok := t.trim(obj)
	if !ok || o.Name == "" {
		return fmt.Errorf("store object of %s: %T without a name", t.resource, obj)
	}
	tracepoint.Mark(tracepoint.WatchEvent)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.upsert(o)
	t.advance(max(t.reached.ResourceVersion, parseResourceVersion(o.ResourceVersion)))
	return nil
}

// Delete removes an object that was deleted.
func (t *tracker[T]) Delete(obj any) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("delete object of %s: %w", t.resource, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	rv := parseResourceVersion(o.GetResourceVersion())
	t.remove(nameOf(o), rv)
	t.advance(max(t.reached.ResourceVersion, rv))
	return nil
}

// Replace stores a complete list: at the start, and after the watch was lost.
func (t *tracker[T]) Replace(list []any, resourceVersion string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	listed := make(map[string]struct{}, len(list))
	for _, obj := range list {
		if o, ok := t.trim(obj); ok && o.Name != "" {
			listed[o.Name] = struct{}{}
			t.upsert(o)
		}
	}
	rv := parseResourceVersion(resourceVersion)
	for name := range t.objects {
		if _, ok := listed[name]; !ok {
			t.remove(name, rv)
		}
	}
	t.synced = true
	t.advance(rv) // possibly backward: an API server may have been restored from a backup
	return nil
}

// Bookmark records that the watch has reached a resourceVersion. All events before it have
// been stored by then.
func (t *tracker[T]) Bookmark(resourceVersion string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(max(t.reached.ResourceVersion, parseResourceVersion(resourceVersion)))
	return nil
}

// Resync does nothing: nothing is lost between the reflector and the tracker.
func (t *tracker[T]) Resync() error { return nil }

// Transformer trims objects while the reflector reads a list.
func (t *tracker[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if o, ok := t.trim(obj); ok {
			return o, nil
		}
		return obj, nil
	}
}

// trim reduces an object to its version and value. It returns trimmed objects unchanged.
func (t *tracker[T]) trim(obj any) (*trimmedObject[T], bool) {
	if o, ok := obj.(*trimmedObject[T]); ok {
		return o, true
	}
	o, ok := obj.(runtime.Object)
	if !ok {
		return nil, false
	}
	metadata, err := meta.Accessor(o)
	if err != nil {
		return nil, false
	}
	return &trimmedObject[T]{
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(metadata), UID: metadata.GetUID(), ResourceVersion: metadata.GetResourceVersion()},
		value:      t.extract(o),
	}, true
}

// nameOf returns the name of an object, after its namespace if it is in one.
func nameOf(o metav1.Object) string { return cache.MetaObjectToName(o).String() }

func (t *tracker[T]) upsert(o *trimmedObject[T]) {
	updated := trackedObject[T]{versionOf(o), o.value}
	old, ok := t.objects[o.Name]
	if ok && old.uid == updated.uid && t.equal(old.value, updated.value) {
		updated.value = old.value
	} else {
		t.markDirty(o.Name)
	}
	t.objects[o.Name] = updated
	delete(t.deleted, o.Name)
}

func (t *tracker[T]) remove(name string, rv uint64) {
	if _, ok := t.objects[name]; !ok {
		return
	}
	delete(t.objects, name)
	t.markDirty(name)
	if t.deleted != nil {
		t.deleted[name] = rv
	}
}

// markDirty includes an object in the next Take.
func (t *tracker[T]) markDirty(name string) {
	if len(t.dirty) == 0 {
		t.dirtySince = time.Now()
	}
	t.dirty.Insert(name)
	t.number++
}

// advance records contact with the API server and the resourceVersion reached.
func (t *tracker[T]) advance(rv uint64) {
	t.reached, t.failure = Progress{time.Now(), rv}, ""
	roster.Signal(t.changed)
}

// setFailure records why a list or watch failed.
func (t *tracker[T]) setFailure(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = reason
	roster.Signal(t.changed)
}

// takeChanges returns the changes since the previous call.
func (t *tracker[T]) takeChanges() Changes[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	changes := Changes[T]{Progress: t.reached, Objects: t.taken, Names: sets.List(t.dirty), Failure: t.failure, Number: t.number}
	if len(t.dirty) > 0 {
		changes.ChangedAt = t.dirtySince
	}
	for name := range t.dirty {
		if o, ok := t.objects[name]; ok {
			t.taken[name] = o.value
		} else {
			delete(t.taken, name)
		}
	}
	clear(t.dirty)
	t.failure = ""
	return changes
}

// parseResourceVersion returns 0 if the text is not a number.
func parseResourceVersion(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

package kubewatch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
)

// Changes is what a watch has told since it was asked last.
type Changes[T any] struct {
	Changed []Object[T] // new or changed, sorted by name
	Removed []string    // names, sorted; none of them is in Changed

	ChangedAt       time.Time // when the first of them came; zero: there is none
	LastContact     time.Time // when the watch last spoke, by an event or bookmark; zero: never yet
	ResourceVersion uint64    // what it has reached by then
	Failure         string    // what the list or watch failed with, if it has not spoken since; told once
}

// Object is what is kept of an object.
type Object[T any] struct {
	Name  string
	Value T
}

// tracker is what the watch has told, as the store of a reflector. A shared informer would
// put a queue and goroutines of its own between the watch and us; then "the watch has reached
// this resourceVersion" would not mean that we have seen what led there. Here both
// happen under one lock, in the order of the events.
type tracker[T any] struct {
	kind    Kind[T]
	changed chan<- struct{}

	mu         sync.Mutex
	synced     bool                        // a whole list was taken in
	objects    map[string]trackedObject[T] // by name
	dirty      map[string]struct{}         // names to tell of
	dirtySince time.Time                   // since when there is any
	deleted    map[string]uint64           // while a full look runs: names that were deleted, and at which resourceVersion
	verifying  int                         // full looks that run

	lastContact     time.Time
	resourceVersion uint64
	failure         string
}

// trackedObject is an object as the watch told it last.
type trackedObject[T any] struct {
	version

	value T
}

// version is what tells an object from itself at another time.
type version struct {
	uid string
	rv  uint64
}

// trimmedObject is an object with nothing but what is kept of it, while a list is gathered.
type trimmedObject[T any] struct {
	metav1.ObjectMeta

	value T
}

var (
	_ cache.TransformingStore      = (*tracker[int])(nil)
	_ cache.ReflectorBookmarkStore = (*tracker[int])(nil)
)

func newTracker[T any](kind Kind[T], changed chan<- struct{}) *tracker[T] {
	return &tracker[T]{
		kind: kind, changed: changed,
		objects: map[string]trackedObject[T]{}, dirty: map[string]struct{}{}, deleted: map[string]uint64{},
	}
}

// Add takes in an object that the watch tells.
func (t *tracker[T]) Add(obj any) error { return t.put(obj) }

// Update takes in an object that the watch tells.
func (t *tracker[T]) Update(obj any) error { return t.put(obj) }

func (t *tracker[T]) put(obj any) error {
	o, ok := t.trim(obj)
	if !ok || o.Name == "" {
		return fmt.Errorf("take in an object of %s: got a %T without a name", t.kind.Resource, obj)
	}
	tracepoint.Log(tracepoint.Reported)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.upsert(o)
	t.advance(max(t.resourceVersion, parseResourceVersion(o.ResourceVersion)))
	return nil
}

// Delete takes out an object that the watch tells as deleted.
func (t *tracker[T]) Delete(obj any) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("take out an object of %s: %w", t.kind.Resource, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	rv := parseResourceVersion(o.GetResourceVersion())
	t.remove(o.GetName(), rv)
	t.advance(max(t.resourceVersion, rv))
	return nil
}

// Replace takes in a whole list: at start, and after the watch was lost.
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
	t.advance(rv) // as it is: a store that was restored from a backup goes back
	return nil
}

// Bookmark takes in that the watch has reached a resourceVersion. All events before
// it have been taken in by then.
func (t *tracker[T]) Bookmark(resourceVersion string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(max(t.resourceVersion, parseResourceVersion(resourceVersion)))
	return nil
}

// Resync is of no use here: nothing is lost between watch and tracker.
func (t *tracker[T]) Resync() error { return nil }

// Transformer trims objects while a list is gathered.
func (t *tracker[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if o, ok := t.trim(obj); ok {
			return o, nil
		}
		return obj, nil
	}
}

// trim keeps of an object what is to be kept. Objects that are trimmed already stay so.
func (t *tracker[T]) trim(obj any) (*trimmedObject[T], bool) {
	if o, ok := obj.(*trimmedObject[T]); ok {
		return o, true
	}
	o, ok := obj.(runtime.Object)
	if !ok {
		return nil, false
	}
	of, err := meta.Accessor(o)
	if err != nil {
		return nil, false
	}
	return &trimmedObject[T]{
		ObjectMeta: metav1.ObjectMeta{Name: of.GetName(), UID: of.GetUID(), ResourceVersion: of.GetResourceVersion()},
		value:      t.kind.Extract(o),
	}, true
}

func (t *tracker[T]) upsert(o *trimmedObject[T]) {
	now := trackedObject[T]{version{string(o.UID), parseResourceVersion(o.ResourceVersion)}, o.value}
	before, ok := t.objects[o.Name]
	if ok && before.uid == now.uid && t.kind.Equal(before.value, now.value) {
		now.value = before.value
	} else {
		t.markDirty(o.Name)
	}
	t.objects[o.Name] = now
	delete(t.deleted, o.Name)
}

func (t *tracker[T]) remove(name string, rv uint64) {
	if _, ok := t.objects[name]; !ok {
		return
	}
	delete(t.objects, name)
	t.markDirty(name)
	if t.verifying > 0 {
		t.deleted[name] = rv
	}
}

// markDirty notes that an object is to be told of.
func (t *tracker[T]) markDirty(name string) {
	if len(t.dirty) == 0 {
		t.dirtySince = time.Now()
	}
	t.dirty[name] = struct{}{}
}

func (t *tracker[T]) advance(rv uint64) {
	t.lastContact, t.resourceVersion, t.failure = time.Now(), rv, ""
	t.signal()
}

// setFailure takes in what a list or watch failed with.
func (t *tracker[T]) setFailure(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = what
	t.signal()
}

func (t *tracker[T]) signal() {
	select {
	case t.changed <- struct{}{}:
	default: // one is waiting, and stands for this one too
	}
}

// takeChanges returns what was told since the last time.
func (t *tracker[T]) takeChanges() Changes[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	told := Changes[T]{LastContact: t.lastContact, ResourceVersion: t.resourceVersion, Failure: t.failure}
	if len(t.dirty) > 0 {
		told.ChangedAt = t.dirtySince
	}
	for name := range t.dirty {
		if k, ok := t.objects[name]; ok {
			told.Changed = append(told.Changed, Object[T]{name, k.value})
		} else {
			told.Removed = append(told.Removed, name)
		}
	}
	slices.SortFunc(told.Changed, func(a, b Object[T]) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(told.Removed)
	clear(t.dirty)
	t.failure = ""
	return told
}

// parseResourceVersion reads a resourceVersion; 0 when it is none.
func parseResourceVersion(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

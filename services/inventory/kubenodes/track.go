package kubenodes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// tracker is what the watch has told, as the store of a reflector. A shared informer would
// put a queue and goroutines of its own between the watch and us; then "the watch has reached
// this resourceVersion" would not mean that we have seen what led there. Here both
// happen under one lock, in the order of the events.
type tracker struct {
	rules   Rules
	changed chan struct{} // capacity 1

	mu      sync.Mutex
	synced  bool                // a whole list was taken in
	known   map[string]known    // by name
	dirty   map[string]struct{} // names to tell of
	gone    map[string]uint64   // while a full look runs: names that were deleted, and at which resourceVersion
	lookers int                 // full looks that run

	heardAt time.Time
	heard   uint64
	failure string
}

// known is a Node as the watch told it last.
type known struct {
	candidate roster.Candidate
	rv        uint64
}

var (
	_ cache.TransformingStore      = (*tracker)(nil)
	_ cache.ReflectorBookmarkStore = (*tracker)(nil)
)

func newTracker(rules Rules) *tracker {
	return &tracker{
		rules:   rules,
		changed: make(chan struct{}, 1),
		known:   map[string]known{},
		dirty:   map[string]struct{}{},
		gone:    map[string]uint64{},
	}
}

// Add takes in a Node that the watch tells.
func (t *tracker) Add(obj any) error { return t.put(obj) }

// Update takes in a Node that the watch tells.
func (t *tracker) Update(obj any) error { return t.put(obj) }

func (t *tracker) put(obj any) error {
	node, ok := obj.(*corev1.Node)
	if !ok || node.Name == "" {
		return fmt.Errorf("take in a node: got a %T without a name", obj)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.upsert(node)
	t.hear(max(t.heard, number(node.ResourceVersion)))
	return nil
}

// Delete takes out a Node that the watch tells as deleted.
func (t *tracker) Delete(obj any) error {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return fmt.Errorf("take out a node: got a %T", obj)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	rv := number(node.ResourceVersion)
	t.remove(node.Name, rv)
	t.hear(max(t.heard, rv))
	return nil
}

// Replace takes in a whole list: at start, and after the watch was lost.
func (t *tracker) Replace(list []any, resourceVersion string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	listed := make(map[string]struct{}, len(list))
	for _, obj := range list {
		if node, ok := obj.(*corev1.Node); ok && node.Name != "" {
			listed[node.Name] = struct{}{}
			t.upsert(node)
		}
	}
	rv := number(resourceVersion)
	for name := range t.known {
		if _, ok := listed[name]; !ok {
			t.remove(name, rv)
		}
	}
	t.synced = true
	t.hear(rv) // as it is: a store that was restored from a backup goes back
	return nil
}

// Bookmark takes in that the watch has reached a resourceVersion. All events before
// it have been taken in by then.
func (t *tracker) Bookmark(resourceVersion string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hear(max(t.heard, number(resourceVersion)))
	return nil
}

// Resync is of no use here: nothing is lost between watch and tracker.
func (t *tracker) Resync() error { return nil }

// Transformer trims Nodes while a list is gathered.
func (t *tracker) Transformer() cache.TransformFunc { return trim }

func (t *tracker) upsert(node *corev1.Node) {
	c := Judge(node, t.rules)
	before, ok := t.known[c.Name]
	if ok && alike(before.candidate, c) {
		c = before.candidate
	} else {
		t.dirty[c.Name] = struct{}{}
	}
	t.known[c.Name] = known{c, number(node.ResourceVersion)}
	delete(t.gone, c.Name)
}

func (t *tracker) remove(name string, rv uint64) {
	if _, ok := t.known[name]; !ok {
		return
	}
	delete(t.known, name)
	t.dirty[name] = struct{}{}
	if t.lookers > 0 {
		t.gone[name] = rv
	}
}

func (t *tracker) hear(rv uint64) {
	t.heardAt, t.heard, t.failure = time.Now(), rv, ""
	t.signal()
}

// failed takes in what a list or watch failed with.
func (t *tracker) failed(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = what
	t.signal()
}

func (t *tracker) signal() {
	select {
	case t.changed <- struct{}{}:
	default: // one is waiting, and stands for this one too
	}
}

// take returns what was told since the last time.
func (t *tracker) take() roster.News {
	t.mu.Lock()
	defer t.mu.Unlock()
	news := roster.News{HeardAt: t.heardAt, Mark: t.heard, Failure: t.failure}
	for name := range t.dirty {
		if k, ok := t.known[name]; ok {
			news.Changed = append(news.Changed, k.candidate)
		} else {
			news.Removed = append(news.Removed, name)
		}
	}
	slices.SortFunc(news.Changed, func(a, b roster.Candidate) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(news.Removed)
	clear(t.dirty)
	t.heardAt, t.failure = time.Time{}, ""
	return news
}

// number reads a resourceVersion; 0 when it is none.
func number(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

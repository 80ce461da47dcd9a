// Package watch follows objects of an API server and remembers when each state came. It
// promises that a wait ends with the very event that brought what was waited for, however
// late one began to wait; it refuses to poll.
package watch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// remembered is how many states are kept. A wait that begins in the past needs
// those since.
const remembered = 4096

// Object is what an API server holds.
type Object interface {
	runtime.Object
	metav1.Object
}

// Set is a set of objects of one kind as the API server's watch tells it.
type Set[T Object] struct {
	done chan struct{}

	mu      sync.Mutex
	objects map[string]T
	states  []state[T] // the latest last
	dropped int        // states that were forgotten
	changed chan struct{}
}

type state[T Object] struct {
	at      time.Time
	objects []T
}

// Follow follows what source lists until ctx ends. It returns when the set is as the API
// server has it. Example is any object of the kind.
func Follow[T Object](ctx context.Context, source cache.ListerWatcher, example T) (*Set[T], error) {
	s := &Set[T]{done: make(chan struct{}), objects: map[string]T{}, changed: make(chan struct{})}
	s.states = []state[T]{{at: time.Now()}}
	informer := cache.NewSharedIndexInformer(source, example, 0, nil)
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { s.put(object) },
		UpdateFunc: func(_, object any) { s.put(object) },
		DeleteFunc: s.remove,
	})
	if err != nil {
		return nil, fmt.Errorf("follow %T: %w", example, err)
	}
	go func() { // Wait waits for it
		defer close(s.done)
		informer.RunWithContext(ctx)
	}()
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return nil, fmt.Errorf("follow %T: %w", example, context.Cause(ctx))
	}
	return s, nil
}

// Wait returns when the context of Follow has ended and nothing is followed any more.
func (s *Set[T]) Wait() { <-s.done }

// Now returns the objects, sorted by namespace and name. They must not be changed.
func (s *Set[T]) Now() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[len(s.states)-1].objects
}

// Count returns how many events there have been.
func (s *Set[T]) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped + len(s.states) - 1
}

// Since waits until the set is as told, and returns how long after start it first was so:
// zero if it was so at start already.
func (s *Set[T]) Since(ctx context.Context, start time.Time, is func([]T) bool) (time.Duration, error) {
	seen := -1 // number of the last state looked at
	for {
		found, at, next := s.look(start, &seen, is)
		if found {
			return max(0, at.Sub(start)), nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return 0, fmt.Errorf("waited %s: %w", time.Since(start).Round(time.Millisecond), context.Cause(ctx))
		}
	}
}

// look asks about the states that come after seen, from the one in force at start on.
func (s *Set[T]) look(start time.Time, seen *int, is func([]T) bool) (found bool, at time.Time, next <-chan struct{}) {
	s.mu.Lock()
	states, dropped, next := s.states, s.dropped, s.changed
	s.mu.Unlock()
	for i, one := range states {
		number := dropped + i
		over := i+1 < len(states) && !states[i+1].at.After(start) // before start already
		if number <= *seen || over {
			continue
		}
		*seen = number
		if is(one.objects) {
			return true, one.at, next
		}
	}
	return false, time.Time{}, next
}

func (s *Set[T]) put(object any) {
	one, ok := object.(T)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key(one)] = one
	s.record()
}

func (s *Set[T]) remove(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	one, ok := object.(T)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key(one))
	s.record()
}

// record needs mu. States are immutable, so readers need not copy them.
func (s *Set[T]) record() {
	all := make([]T, 0, len(s.objects))
	for _, one := range s.objects {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	if len(s.states) == remembered {
		s.states = slices.Clone(s.states[remembered/2:])
		s.dropped += remembered / 2
	}
	s.states = append(s.states, state[T]{at: time.Now(), objects: all})
	close(s.changed)
	s.changed = make(chan struct{})
}

func key[T Object](object T) string { return object.GetNamespace() + "/" + object.GetName() }

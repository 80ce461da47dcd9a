package probe

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// Share is the endpoints of one source in one Service. The probes in flight are limited for each share, so
// that backends that do not respond delay only probes of their own share.
type Share struct{ Source, Target string }

// How many probes a share may have in flight depends on how much of the limit is free:
//
//	free      = limit - all probes in flight
//	available = min(free, sourceWeight*free - probes in flight of its source)
//	at most     shareWeight * (available - limit/reserveDivisor)
//
// The reserve is for shares without a probe in flight: their first probe only needs available > 0.
//
// So a share whose backends do not respond has at most 320 of 512 probes in flight; several such shares
// have fewer each, and those of one source together at most 384. The weights differ on purpose: with w, what is
// slow gets w/(w+1) of what the others leave, so two thirds for a share and three quarters for a source; a source
// with one silent share keeps some capacity for its others. There are no fixed quotas and no
// preemption, and a source that reports false addresses within a wide CIDR delays only its own endpoints.
const (
	shareWeight    = 2
	sourceWeight   = 3
	reserveDivisor = 16
)

// shareQueue orders the keys of one share by their next probe, and counts its probes in flight.
type shareQueue struct {
	share      Share
	due        indexedHeap[*keyRecord]
	inFlight   int
	startedAt  time.Time // when its last probe started
	lastStart  uint64    // the number of that among the probes of all shares
	readyPlace int       // in Schedule.readyQueues
	blocked    bool      // in Schedule.blockedQueues
}

// hasCapacity reports whether a share may have one more probe in flight.
func (s *Schedule) hasCapacity(q *shareQueue) bool {
	free := s.limit - s.inFlight
	available := min(free, sourceWeight*free-s.inFlightBySource[q.share.Source])
	if q.inFlight == 0 {
		return available > 0
	}
	return q.inFlight < shareWeight*(available-max(1, s.limit/reserveDivisor))
}

func (s *Schedule) removeFromQueue(r *keyRecord) {
	r.queue.due.remove(r)
	s.requeue(r.queue)
	s.dropUnusedQueue(r.queue)
}

// dropUnusedQueue deletes a queue without keys after its last probe has ended.
func (s *Schedule) dropUnusedQueue(q *shareQueue) {
	if len(q.due.items) == 0 && q.inFlight == 0 && s.queues[q.share] == q {
		delete(s.queues, q.share)
	}
}

// requeue restores the order of the ready queues after the first key of a queue has changed. A blocked
// queue stays blocked.
func (s *Schedule) requeue(q *shareQueue) {
	switch {
	case q.blocked:
	case len(q.due.items) == 0:
		s.readyQueues.remove(q)
	default:
		s.readyQueues.update(q)
	}
}

// turnBefore orders shares with a key that is due by when their last probe started, so that they take turns: thousands
// of new endpoints, which are all due at once, do not delay those of other shares. Others are ordered by their next probe.
func turnBefore(a, b *shareQueue) bool {
	first, second := a.due.items[0], b.due.items[0]
	turn := later(first.nextDue, a.startedAt).Compare(later(second.nextDue, b.startedAt))
	if turn = cmp.Or(turn, cmp.Compare(a.lastStart, b.lastStart)); turn != 0 {
		return turn < 0
	}
	return dueBefore(first, second)
}

func (s *Schedule) countStart(q *shareQueue, now time.Time) {
	s.started++
	q.startedAt, q.lastStart = now, s.started
	s.inFlight++
	s.inFlightBySource[q.share.Source]++
	q.inFlight++
}

// countEnd counts a probe that has ended, and unblocks the queues that have capacity again.
func (s *Schedule) countEnd(q *shareQueue) {
	s.inFlight--
	q.inFlight--
	source := q.share.Source
	if s.inFlightBySource[source]--; s.inFlightBySource[source] == 0 {
		delete(s.inFlightBySource, source)
	}
	s.dropUnusedQueue(q)
	s.blockedQueues = slices.DeleteFunc(s.blockedQueues, func(q *shareQueue) bool {
		if len(q.due.items) > 0 && !s.hasCapacity(q) {
			return false
		}
		q.blocked = false
		s.requeue(q)
		return true
	})
}

// indexedHeap is a heap whose items know their place in it, so that each can be moved and removed.
type indexedHeap[T any] struct {
	items  []T
	before func(a, b T) bool
	place  func(T) *int // index + 1; 0: the item is not in the heap
}

// update adds an item, or moves one whose order has changed.
func (h *indexedHeap[T]) update(item T) {
	if place := *h.place(item); place > 0 {
		heap.Fix(h, place-1)
		return
	}
	heap.Push(h, item)
}

// remove removes an item if it is in the heap.
func (h *indexedHeap[T]) remove(item T) {
	if place := *h.place(item); place > 0 {
		heap.Remove(h, place-1)
	}
}

// Len, Less, Swap, Push and Pop are for container/heap alone.
func (h *indexedHeap[T]) Len() int           { return len(h.items) }
func (h *indexedHeap[T]) Less(i, j int) bool { return h.before(h.items[i], h.items[j]) }

func (h *indexedHeap[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.place(h.items[i]), *h.place(h.items[j]) = i+1, j+1
}

func (h *indexedHeap[T]) Push(x any) {
	item := x.(T)
	h.items = append(h.items, item)
	*h.place(item) = len(h.items)
}

func (h *indexedHeap[T]) Pop() any {
	last := len(h.items) - 1
	item := h.items[last]
	clear(h.items[last:])
	h.items = h.items[:last]
	*h.place(item) = 0
	return item
}

package prober

import (
	"container/heap"
	"slices"
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
// have fewer each, and those of one source together at most 384. There are no fixed quotas and no
// preemption, and a source that reports false addresses within a wide CIDR delays only its own endpoints.
const (
	shareWeight    = 2
	sourceWeight   = 3
	reserveDivisor = 16
)

// shareQueue orders the keys of one share by their next probe, and counts its probes in flight.
type shareQueue struct {
	share      Share
	due        dueHeap
	inFlight   int
	readyIndex int // in Schedule.readyQueues; noReadyIndex if not in it
}

const noReadyIndex = -1

// hasCapacity reports whether a share may have one more probe in flight.
func (s *Schedule) hasCapacity(q *shareQueue) bool {
	free := s.limit - s.inFlight
	available := min(free, sourceWeight*free-s.inFlightBySource[q.share.Source])
	if q.inFlight == 0 {
		return available > 0
	}
	return q.inFlight < shareWeight*(available-max(1, s.limit/reserveDivisor))
}

// queueFor returns the queue of a share, creating it if necessary.
func (s *Schedule) queueFor(share Share) *shareQueue {
	q := s.queues[share]
	if q == nil {
		q = &shareQueue{share: share, readyIndex: noReadyIndex}
		s.queues[share] = q
	}
	return q
}

func (s *Schedule) addToQueue(q *shareQueue, r *keyRecord) {
	r.queue = q
	heap.Push(&q.due, r)
	s.fixQueueOrder(q)
}

func (s *Schedule) removeFromQueue(r *keyRecord) {
	q := r.queue
	heap.Remove(&q.due, r.queueIndex)
	s.fixQueueOrder(q)
	s.dropUnusedQueue(q)
}

// dropUnusedQueue deletes a queue without keys after its last probe has ended.
func (s *Schedule) dropUnusedQueue(q *shareQueue) {
	if len(q.due) == 0 && q.inFlight == 0 && s.queues[q.share] == q {
		delete(s.queues, q.share)
	}
}

// fixQueueOrder restores the order of the ready queues after the first key of a queue has changed. A
// blocked queue stays blocked.
func (s *Schedule) fixQueueOrder(q *shareQueue) {
	blocked := slices.Index(s.blockedQueues, q)
	switch {
	case len(q.due) == 0 && blocked >= 0:
		s.blockedQueues = slices.Delete(s.blockedQueues, blocked, blocked+1)
	case len(q.due) == 0 && q.readyIndex != noReadyIndex:
		heap.Remove(&s.readyQueues, q.readyIndex)
	case len(q.due) == 0, blocked >= 0:
	case q.readyIndex == noReadyIndex:
		heap.Push(&s.readyQueues, q)
	default:
		heap.Fix(&s.readyQueues, q.readyIndex)
	}
}

// blockFirstQueue moves the first ready queue to the blocked ones, until a probe ends.
func (s *Schedule) blockFirstQueue() {
	s.blockedQueues = append(s.blockedQueues, heap.Pop(&s.readyQueues).(*shareQueue)) //nolint:forcetypeassert // it has only queues
}

func (s *Schedule) countStart(q *shareQueue) {
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
		if !s.hasCapacity(q) {
			return false
		}
		heap.Push(&s.readyQueues, q)
		return true
	})
}

// queueHeap orders queues by their first key.
type queueHeap []*shareQueue //nolint:recvcheck // container/heap requires it

func (h queueHeap) Len() int           { return len(h) }
func (h queueHeap) Less(i, j int) bool { return h[i].due[0].dueBefore(h[j].due[0]) }

func (h queueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].readyIndex, h[j].readyIndex = i, j
}

func (h *queueHeap) Push(x any) {
	q := x.(*shareQueue)
	q.readyIndex = len(*h)
	*h = append(*h, q)
}

func (h *queueHeap) Pop() any {
	last := len(*h) - 1
	q := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	q.readyIndex = noReadyIndex
	return q
}

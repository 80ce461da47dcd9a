package prober

import (
	"container/heap"
	"slices"
)

// Share is the unit among which probes in flight are divided: the endpoints of one source in one Service.
type Share struct{ Source, Target string }

// A share takes a place only while it has fewer than shareWeight probes in flight for each place that
// its source could still take, and all shares of a source together fewer than sourceWeight for each
// free place. So one share whose backends do not respond takes 320 of 512 places, and several such
// shares take fewer each. One place in reserveDivisor is kept for shares without a probe in flight. There
// are no fixed quotas and no preemption, and a source that reports false addresses within a wide CIDR
// delays only its own endpoints.
const (
	shareWeight    = 2
	sourceWeight   = 3
	reserveDivisor = 16
)

// shareQueue has the records of one share, and counts its probes in flight.
type shareQueue struct {
	share      Share
	due        dueHeap
	inFlight   int
	readyIndex int // in Schedule.readyQueues; noReadyIndex if not in it
}

const noReadyIndex = -1

// hasCapacity reports whether a lane may have one more probe in flight.
func (s *Schedule) hasCapacity(q *shareQueue) bool {
	free := s.limit - s.inFlight
	available := min(free, sourceWeight*free-s.inFlightBySource[q.share.Source])
	if q.inFlight == 0 {
		return available > 0
	}
	return q.inFlight < shareWeight*(available-max(1, s.limit/reserveDivisor))
}

// queueFor returns the lane of a share, creating it if necessary.
func (s *Schedule) queueFor(share Share) *shareQueue {
	q := s.queues[share]
	if q == nil {
		q = &shareQueue{share: share, readyIndex: noReadyIndex}
		s.queues[share] = q
	}
	return q
}

// addToQueue adds a record to a lane.
func (s *Schedule) addToQueue(q *shareQueue, r *keyRecord) {
	r.queue = q
	heap.Push(&q.due, r)
	s.fixQueueOrder(q)
}

// removeFromQueue removes a record from its lane.
func (s *Schedule) removeFromQueue(r *keyRecord) {
	q := r.queue
	heap.Remove(&q.due, r.queueIndex)
	s.fixQueueOrder(q)
	s.dropUnusedQueue(q)
}

// dropUnusedQueue deletes a lane without records after its last probe has ended.
func (s *Schedule) dropUnusedQueue(q *shareQueue) {
	if len(q.due) == 0 && q.inFlight == 0 && s.queues[q.share] == q {
		delete(s.queues, q.share)
	}
}

// fixQueueOrder restores the heap order after the first record of a lane has changed. A blocked lane
// stays blocked.
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

// blockFirstQueue moves the first lane to the blocked ones until a probe ends.
func (s *Schedule) blockFirstQueue() {
	s.blockedQueues = append(s.blockedQueues, heap.Pop(&s.readyQueues).(*shareQueue)) //nolint:forcetypeassert // it has only lanes
}

// countStart counts a probe that starts.
func (s *Schedule) countStart(q *shareQueue) {
	s.inFlight++
	s.inFlightBySource[q.share.Source]++
	q.inFlight++
}

// countEnd counts a probe that has ended, and unblocks the lanes that have capacity again.
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

// queueHeap orders lanes by their first record.
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

package prober

import (
	"container/heap"
	"slices"
)

// Share is what a probe's place in flight is charged to: the endpoints of one source in one Service.
type Share struct{ Source, Target string }

// A share takes a place only while it has fewer than shareWeight probes in flight for each place that its source could still
// take, and all shares of a source together fewer than sourceWeight for each place that is free at all. So whoever waits for
// answers that never come takes 320 of 512 places alone, and the more of them there are, the less each. A few
// places (one in reserveShare) are kept for shares that have no probe in flight. Nothing is allotted, nobody is preempted,
// and a source whose members lie in a wide CIDR harms its own endpoints alone.
const (
	shareWeight  = 2
	sourceWeight = 3
	reserveShare = 16
)

// lane holds the records of one share, and counts its probes in flight.
type lane struct {
	share    Share
	due      dueHeap
	inFlight int
	index    int // in Schedule.ready; notReady when it is not there
}

const notReady = -1

// admits reports whether a lane may have one more probe in flight.
func (s *Schedule) admits(l *lane) bool {
	free := s.limit - s.inFlight
	room := min(free, sourceWeight*free-s.bySource[l.share.Source])
	if l.inFlight == 0 {
		return room > 0
	}
	return l.inFlight < shareWeight*(room-max(1, s.limit/reserveShare))
}

// lane returns that of a share, and makes it if there is none.
func (s *Schedule) lane(share Share) *lane {
	l := s.lanes[share]
	if l == nil {
		l = &lane{share: share, index: notReady}
		s.lanes[share] = l
	}
	return l
}

// enter puts a record into a lane.
func (s *Schedule) enter(l *lane, r *record) {
	r.lane = l
	heap.Push(&l.due, r)
	s.reorder(l)
}

// exit takes a record out of its lane.
func (s *Schedule) exit(r *record) {
	l := r.lane
	heap.Remove(&l.due, r.index)
	s.reorder(l)
	s.release(l)
}

// release forgets a lane that has no records, once its last probe has ended.
func (s *Schedule) release(l *lane) {
	if len(l.due) == 0 && l.inFlight == 0 && s.lanes[l.share] == l {
		delete(s.lanes, l.share)
	}
}

// reorder puts a lane where its first record belongs. One that is blocked stays so.
func (s *Schedule) reorder(l *lane) {
	blocked := slices.Index(s.blocked, l)
	switch {
	case len(l.due) == 0 && blocked >= 0:
		s.blocked = slices.Delete(s.blocked, blocked, blocked+1)
	case len(l.due) == 0 && l.index != notReady:
		heap.Remove(&s.ready, l.index)
	case len(l.due) == 0, blocked >= 0:
	case l.index == notReady:
		heap.Push(&s.ready, l)
	default:
		heap.Fix(&s.ready, l.index)
	}
}

// block sets the first lane aside until a probe has ended.
func (s *Schedule) block() {
	s.blocked = append(s.blocked, heap.Pop(&s.ready).(*lane)) //nolint:forcetypeassert // nothing else is put there
}

// charge counts a probe that starts.
func (s *Schedule) charge(l *lane) {
	s.inFlight++
	s.bySource[l.share.Source]++
	l.inFlight++
}

// discharge counts a probe that has ended, and lets those start again for which there is room now.
func (s *Schedule) discharge(l *lane) {
	s.inFlight--
	l.inFlight--
	source := l.share.Source
	if s.bySource[source]--; s.bySource[source] == 0 {
		delete(s.bySource, source)
	}
	s.release(l)
	s.blocked = slices.DeleteFunc(s.blocked, func(l *lane) bool {
		if !s.admits(l) {
			return false
		}
		heap.Push(&s.ready, l)
		return true
	})
}

// laneHeap is a heap of lanes, the one with the soonest probe first.
type laneHeap []*lane //nolint:recvcheck // as container/heap has it

func (h laneHeap) Len() int           { return len(h) }
func (h laneHeap) Less(i, j int) bool { return h[i].due[0].before(h[j].due[0]) }

func (h laneHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *laneHeap) Push(x any) {
	l := x.(*lane)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *laneHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.index = notReady
	return l
}

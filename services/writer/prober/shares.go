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
// shares take fewer each. One place in reserveShare is kept for shares without a probe in flight. There
// are no fixed quotas and no preemption, and a source that reports false addresses within a wide CIDR
// delays only its own endpoints.
const (
	shareWeight  = 2
	sourceWeight = 3
	reserveShare = 16
)

// lane has the records of one share, and counts its probes in flight.
type lane struct {
	share      Share
	due        dueHeap
	inFlight   int
	readyIndex int // in Schedule.readyLanes; notReady if not in it
}

const notReady = -1

// hasCapacity reports whether a lane may have one more probe in flight.
func (s *Schedule) hasCapacity(l *lane) bool {
	free := s.limit - s.inFlight
	room := min(free, sourceWeight*free-s.inFlightBySource[l.share.Source])
	if l.inFlight == 0 {
		return room > 0
	}
	return l.inFlight < shareWeight*(room-max(1, s.limit/reserveShare))
}

// laneFor returns the lane of a share, creating it if necessary.
func (s *Schedule) laneFor(share Share) *lane {
	l := s.lanes[share]
	if l == nil {
		l = &lane{share: share, readyIndex: notReady}
		s.lanes[share] = l
	}
	return l
}

// addToLane adds a record to a lane.
func (s *Schedule) addToLane(l *lane, r *record) {
	r.lane = l
	heap.Push(&l.due, r)
	s.fixLaneOrder(l)
}

// removeFromLane removes a record from its lane.
func (s *Schedule) removeFromLane(r *record) {
	l := r.lane
	heap.Remove(&l.due, r.laneIndex)
	s.fixLaneOrder(l)
	s.dropUnusedLane(l)
}

// dropUnusedLane deletes a lane without records after its last probe has ended.
func (s *Schedule) dropUnusedLane(l *lane) {
	if len(l.due) == 0 && l.inFlight == 0 && s.lanes[l.share] == l {
		delete(s.lanes, l.share)
	}
}

// fixLaneOrder restores the heap order after the first record of a lane has changed. A blocked lane
// stays blocked.
func (s *Schedule) fixLaneOrder(l *lane) {
	blocked := slices.Index(s.blockedLanes, l)
	switch {
	case len(l.due) == 0 && blocked >= 0:
		s.blockedLanes = slices.Delete(s.blockedLanes, blocked, blocked+1)
	case len(l.due) == 0 && l.readyIndex != notReady:
		heap.Remove(&s.readyLanes, l.readyIndex)
	case len(l.due) == 0, blocked >= 0:
	case l.readyIndex == notReady:
		heap.Push(&s.readyLanes, l)
	default:
		heap.Fix(&s.readyLanes, l.readyIndex)
	}
}

// blockFirstLane moves the first lane to the blocked ones until a probe ends.
func (s *Schedule) blockFirstLane() {
	s.blockedLanes = append(s.blockedLanes, heap.Pop(&s.readyLanes).(*lane)) //nolint:forcetypeassert // it has only lanes
}

// countStart counts a probe that starts.
func (s *Schedule) countStart(l *lane) {
	s.inFlight++
	s.inFlightBySource[l.share.Source]++
	l.inFlight++
}

// countEnd counts a probe that has ended, and unblocks the lanes that have capacity again.
func (s *Schedule) countEnd(l *lane) {
	s.inFlight--
	l.inFlight--
	source := l.share.Source
	if s.inFlightBySource[source]--; s.inFlightBySource[source] == 0 {
		delete(s.inFlightBySource, source)
	}
	s.dropUnusedLane(l)
	s.blockedLanes = slices.DeleteFunc(s.blockedLanes, func(l *lane) bool {
		if !s.hasCapacity(l) {
			return false
		}
		heap.Push(&s.readyLanes, l)
		return true
	})
}

// laneHeap orders lanes by their first record.
type laneHeap []*lane //nolint:recvcheck // container/heap requires it

func (h laneHeap) Len() int           { return len(h) }
func (h laneHeap) Less(i, j int) bool { return h[i].due[0].dueBefore(h[j].due[0]) }

func (h laneHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].readyIndex, h[j].readyIndex = i, j
}

func (h *laneHeap) Push(x any) {
	l := x.(*lane)
	l.readyIndex = len(*h)
	*h = append(*h, l)
}

func (h *laneHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.readyIndex = notReady
	return l
}

package prober

import (
	"container/heap"
	"time"
)

// expiryIntervals is for how many intervals a status stands without a probe that comes to a conclusion. A writer that is out of
// sockets would otherwise call every backend passing for ever, also those that have died since.
const expiryIntervals = 3

// expiry is what a record has to do with the end of its status.
type expiry struct {
	inFlight           int       // probes of it
	lastConclusiveAt   time.Time // when the last conclusive probe ended, or it was added
	checkExpiryAt      time.Time // not before then; kept only while it is in the heap
	expiryIndex        int       // in the heap; noExpiry when it is not there
	inconclusiveReason string    // why the last probe that was not conclusive was not
}

const noExpiry = -1

// expiryDeadline is when the status of a record ends unless a probe comes to a conclusion before. One that is under way may.
func (r *record) expiryDeadline() time.Time {
	at := r.lastConclusiveAt.Add(expiryIntervals * r.key.Spec.interval())
	if r.inFlight > 0 {
		at = at.Add(r.key.Spec.timeout())
	}
	return at
}

// noteConclusive notes that a probe came to a conclusion, or that a record begins, and reports whether the status had expired.
func (s *Schedule) noteConclusive(r *record, now time.Time) (expired bool) {
	begins := r.lastConclusiveAt.IsZero()
	r.lastConclusiveAt = now
	if begins || r.expiryIndex == noExpiry {
		r.checkExpiryAt = r.expiryDeadline()
		heap.Push(&s.expiryQueue, r)
	}
	expired, r.status.Expired = r.status.Expired, false
	return expired
}

// stopExpiry takes a record out of the heap.
func (s *Schedule) stopExpiry(r *record) {
	if r.expiryIndex != noExpiry {
		heap.Remove(&s.expiryQueue, r.expiryIndex)
	}
}

// Expire makes pending what no probe has come to a conclusion on for three intervals, and returns these keys. A probe that is
// under way may still come to one, so a timeout above the interval does not end a status.
func (s *Schedule) Expire(now time.Time) (keys []Key) {
	for len(s.expiryQueue) > 0 && !s.expiryQueue[0].checkExpiryAt.After(now) {
		r := s.expiryQueue[0]
		if s.expireRecord(r, now) {
			keys = append(keys, r.key)
			continue
		}
		r.checkExpiryAt = r.expiryDeadline()
		heap.Fix(&s.expiryQueue, 0)
	}
	return keys
}

// expireRecord makes a record pending if that is due, and reports whether it did.
func (s *Schedule) expireRecord(r *record, now time.Time) bool {
	if r.status.Expired || r.expiryDeadline().After(now) {
		return false
	}
	s.healthCounts[r.status.Health]--
	s.healthCounts[Pending]++
	r.status = Status{Expired: true, Detail: r.inconclusiveReason, LastPassedAt: r.status.LastPassedAt}
	r.contradicting, r.lastAgreeing = nil, r.lastSeq
	s.stopExpiry(r) // until a probe is conclusive again
	return true
}

// expiryHeap is a heap of records by the time at which their status is to be looked at.
type expiryHeap []*record //nolint:recvcheck // as container/heap has it

func (h expiryHeap) Len() int { return len(h) }

func (h expiryHeap) Less(i, j int) bool {
	if !h[i].checkExpiryAt.Equal(h[j].checkExpiryAt) {
		return h[i].checkExpiryAt.Before(h[j].checkExpiryAt)
	}
	return h[i].key.compare(h[j].key) < 0
}

func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].expiryIndex, h[j].expiryIndex = i, j
}

func (h *expiryHeap) Push(x any) {
	r := x.(*record)
	r.expiryIndex = len(*h)
	*h = append(*h, r)
}

func (h *expiryHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	r.expiryIndex = noExpiry
	return r
}

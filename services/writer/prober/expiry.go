package prober

import (
	"container/heap"
	"time"
)

// expiryIntervals is for how many intervals a status is valid without a conclusive probe. Otherwise a
// writer without free sockets would report every backend as passing forever, even those that failed since.
const expiryIntervals = 3

// expiry is the part of a keyRecord that decides when the status expires.
type expiry struct {
	inFlight           int       // probes of the key
	lastConclusiveAt   time.Time // when the last conclusive probe ended, or the key was added
	checkExpiryAt      time.Time // when to check next; the status does not expire before. Valid only while in expiryQueue
	expiryIndex        int       // in Schedule.expiryQueue; noExpiryIndex if not in it
	inconclusiveReason string    // of the last inconclusive probe
}

const noExpiryIndex = -1

// expiryDeadline is when the status expires without a conclusive probe. A probe in flight extends it
// by the timeout, because it may still be conclusive.
func (r *keyRecord) expiryDeadline() time.Time {
	at := r.lastConclusiveAt.Add(expiryIntervals * r.key.Spec.interval())
	if r.inFlight > 0 {
		at = at.Add(r.key.Spec.timeout())
	}
	return at
}

// resetExpiry restarts the time until the status expires, when a key is added and after each conclusive
// probe. It reports whether the status had expired.
func (s *Schedule) resetExpiry(r *keyRecord, now time.Time) (expired bool) {
	isNew := r.lastConclusiveAt.IsZero()
	r.lastConclusiveAt = now
	if isNew || r.expiryIndex == noExpiryIndex {
		r.checkExpiryAt = r.expiryDeadline()
		heap.Push(&s.expiryQueue, r)
	}
	expired, r.status.Expired = r.status.Expired, false
	return expired
}

// stopExpiry removes a key from the queue, so that its status does not expire.
func (s *Schedule) stopExpiry(r *keyRecord) {
	if r.expiryIndex != noExpiryIndex {
		heap.Remove(&s.expiryQueue, r.expiryIndex)
	}
}

// Expire sets the keys to pending that had no conclusive probe for three intervals, and returns them. It
// waits for probes in flight, so that a timeout longer than the interval does not expire a status.
func (s *Schedule) Expire(now time.Time) (keys []Key) {
	for len(s.expiryQueue) > 0 && !s.expiryQueue[0].checkExpiryAt.After(now) {
		r := s.expiryQueue[0]
		if s.expireKey(r, now) {
			keys = append(keys, r.key)
			continue
		}
		r.checkExpiryAt = r.expiryDeadline()
		heap.Fix(&s.expiryQueue, 0)
	}
	return keys
}

// expireKey sets a key to pending if its status has expired, and reports whether it did.
func (s *Schedule) expireKey(r *keyRecord, now time.Time) bool {
	if r.status.Expired || r.expiryDeadline().After(now) {
		return false
	}
	s.healthCounts[r.status.Health]--
	s.healthCounts[Pending]++
	r.status = Status{Expired: true, Detail: r.inconclusiveReason, LastPassedAt: r.status.LastPassedAt}
	r.contradicting, r.lastAgreeing = nil, r.lastSeq
	s.stopExpiry(r) // until the next conclusive probe
	return true
}

// expiryHeap orders records by checkExpiryAt.
type expiryHeap []*keyRecord //nolint:recvcheck // container/heap requires it

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
	r := x.(*keyRecord)
	r.expiryIndex = len(*h)
	*h = append(*h, r)
}

func (h *expiryHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	r.expiryIndex = noExpiryIndex
	return r
}

package prober

import (
	"container/heap"
	"time"
)

// expiresAfter is for how many intervals a status stands without a probe that comes to a conclusion. A writer that is out of
// sockets would otherwise call every backend passing for ever, also those that have died since.
const expiresAfter = 3

// expiry is what a record has to do with the end of its status.
type expiry struct {
	inFlight    int       // probes of it
	conclusive  time.Time // when the last conclusive probe ended, or it was added
	expires     time.Time // not before then; kept only while it is in the heap
	expiryIndex int       // in the heap; noExpiry when it is not there
	trouble     string    // why the last probe that was not conclusive was not
}

const noExpiry = -1

// deadline is when the status of a record ends unless a probe comes to a conclusion before. One that is under way may.
func (r *record) deadline() time.Time {
	at := r.conclusive.Add(expiresAfter * r.key.Spec.interval())
	if r.inFlight > 0 {
		at = at.Add(r.key.Spec.timeout())
	}
	return at
}

// concluded notes that a probe came to a conclusion, or that a record begins, and reports whether the status had expired.
func (s *Schedule) concluded(r *record, now time.Time) (expired bool) {
	begins := r.conclusive.IsZero()
	r.conclusive = now
	if begins || r.expiryIndex == noExpiry {
		r.expires = r.deadline()
		heap.Push(&s.expiring, r)
	}
	expired, r.word.Expired = r.word.Expired, false
	return expired
}

// neverExpires takes a record out of the heap.
func (s *Schedule) neverExpires(r *record) {
	if r.expiryIndex != noExpiry {
		heap.Remove(&s.expiring, r.expiryIndex)
	}
}

// Expire makes pending what no probe has come to a conclusion on for three intervals, and returns these keys. A probe that is
// under way may still come to one, so a timeout above the interval does not end a status.
func (s *Schedule) Expire(now time.Time) (keys []Key) {
	for len(s.expiring) > 0 && !s.expiring[0].expires.After(now) {
		r := s.expiring[0]
		if s.expire(r, now) {
			keys = append(keys, r.key)
			continue
		}
		r.expires = r.deadline()
		heap.Fix(&s.expiring, 0)
	}
	return keys
}

// expire makes a record pending if that is due, and reports whether it did.
func (s *Schedule) expire(r *record, now time.Time) bool {
	if r.word.Expired || r.deadline().After(now) {
		return false
	}
	s.counts[r.word.Health]--
	s.counts[Unjudged]++
	r.word = Word{Expired: true, Detail: r.trouble, Passed: r.word.Passed}
	r.contrary, r.agreed = nil, r.started
	s.neverExpires(r) // until a probe is conclusive again
	return true
}

// expiryHeap is a heap of records by the time at which their status is to be looked at.
type expiryHeap []*record //nolint:recvcheck // as container/heap has it

func (h expiryHeap) Len() int { return len(h) }

func (h expiryHeap) Less(i, j int) bool {
	if !h[i].expires.Equal(h[j].expires) {
		return h[i].expires.Before(h[j].expires)
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

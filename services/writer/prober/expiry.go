package prober

import (
	"cmp"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// expiryIntervals is for how many intervals a status is valid without a conclusive probe. Otherwise a
// writer without free sockets would report every backend as passing forever, even those that failed since.
const expiryIntervals = 3

// updateExpiry sets when the status expires without a conclusive probe. A probe in flight extends it by the
// timeout, because it may still be conclusive. An expired status does not expire again.
func (s *ProbeSchedule) updateExpiry(r *keyRecord) {
	r.expiresAt = r.lastConclusiveAt.Add(expiryIntervals * r.key.Spec.Interval)
	if r.inFlight > 0 {
		r.expiresAt = r.expiresAt.Add(r.key.Spec.Timeout)
	}
	if !r.status.Expired {
		s.expiring.update(r)
	}
}

// Expire sets the keys to pending that had no conclusive probe for three intervals, and returns them. It
// waits for probes in flight, so that a timeout longer than the interval does not expire a status.
func (s *ProbeSchedule) Expire(now time.Time) (keys []probe.Key) {
	for len(s.expiring.items) > 0 {
		r := s.expiring.items[0]
		if !s.expireKey(r, now) {
			break
		}
		keys = append(keys, r.key)
	}
	return keys
}

// expireKey sets a key to pending if its status has expired, and reports whether it did.
func (s *ProbeSchedule) expireKey(r *keyRecord, now time.Time) bool {
	if r.status.Expired || r.expiresAt.After(now) {
		return false
	}
	old := r.status
	r.conclusion = conclusion{
		status:       Status{Expired: true, Detail: r.inconclusiveReason, LastPassedAt: old.LastPassedAt},
		lastAgreeing: r.lastSeq,
	}
	s.statusChanged(r, old.Health)
	s.expiring.remove(r)
	return true
}

func expiresBefore(a, b *keyRecord) bool {
	return cmp.Or(a.expiresAt.Compare(b.expiresAt), cmp.Compare(a.number, b.number)) < 0
}

package probe

import (
	"cmp"
	"time"
)

// The times of probes.
//
// The first probe that a backend fails starts at most one interval (2 s) after the backend failed,
// since jitter only shortens the interval. The first failure starts two more probes, 200 ms and
// 400 ms later, which do not wait for each other:
//
//	connection refused: 2.0 s + 0               + 0.4 s (last probe starts) + 0               = 2.4 s
//	no response:        2.0 s + 1.0 s (timeout) + 0.4 s (last probe starts) + 1.0 s (timeout) = 4.4 s
//
// With a timeout longer than the interval, probes of one backend overlap: no probe waits for the one
// before. The formula without a response stays the same (2.0 s + 2 timeouts + 0.4 s), and the detection
// of a refused connection or a recovery takes no longer.
//
// These are the worst cases. So p99 stays below 2.5 s and 4.5 s as long as starting probes and
// handling results takes less than 100 ms in total.
const (
	reprobeGap  = 200 * time.Millisecond
	jitterRatio = 0.1 // maximum part of the interval by which a probe starts early
)

// Schedule decides when each key is probed, and derives its status from the results. It is pure: the
// caller passes times, random numbers and results. Every attempt that Start returns must be passed to
// Finish once.
type Schedule struct {
	limit            int // maximum probes in flight
	inFlight         int
	inFlightBySource map[string]int
	created, started uint64 // numbers of records that were created, and of probes
	records          map[Key]*keyRecord
	targets          map[string]*target
	changedTargets   map[string]struct{} // since TakeChanged
	queues           map[Share]*shareQueue
	readyQueues      indexedHeap[*shareQueue] // by their turn
	blockedQueues    []*shareQueue            // of shares without capacity, until a probe ends
	expiring         indexedHeap[*keyRecord]  // by expiresAt
	healthCounts     healthCounts
}

// healthCounts are numbers of keys by health.
type healthCounts [len(healthNames)]int

// NewSchedule returns a schedule with at most limit probes in flight.
func NewSchedule(limit int) *Schedule {
	return &Schedule{
		limit: limit, inFlightBySource: map[string]int{}, records: map[Key]*keyRecord{}, targets: map[string]*target{},
		changedTargets: map[string]struct{}{}, queues: map[Share]*shareQueue{},
		readyQueues: indexedHeap[*shareQueue]{before: turnBefore, place: func(q *shareQueue) *int { return &q.readyPlace }},
		expiring:    indexedHeap[*keyRecord]{before: expiresBefore, place: func(r *keyRecord) *int { return &r.expiryPlace }},
	}
}

// Attempt is one probe in flight.
type Attempt struct {
	Key       Key
	record    *keyRecord
	queue     *shareQueue // that counts the probe
	seq       uint64
	startedAt time.Time
}

// keyRecord is the state of a key.
type keyRecord struct {
	conclusion

	key     Key
	number  uint64    // in the order of creation, so that the order of probes depends on no map
	targets []*target // that request it

	queue         *shareQueue
	duePlace      int       // in the queue's heap
	nextDue       time.Time // when the next probe is due: the first of regularDue, controlDue and a re-probe
	regularDue    time.Time
	controlDue    time.Time // zero: there is no control probe
	lastStartedAt time.Time // when the last probe started
	lastSeq       uint64    // its number
	inFlight      int       // probes of the key

	lastConclusiveAt   time.Time // when the last conclusive probe ended, or the key was added
	expiresAt          time.Time // when the status expires unless a probe is conclusive
	expiryPlace        int       // in Schedule.expiring
	inconclusiveReason string    // of the last inconclusive probe
}

// Start returns a probe that is due and has capacity, for the caller to run; false if there is none. Call
// it until it returns false. random is uniform in [0, 1).
func (s *Schedule) Start(now time.Time, random float64) (Attempt, bool) {
	r := s.firstDue(now)
	if r == nil {
		return Attempt{}, false
	}
	r.lastSeq++
	r.inFlight++
	r.lastStartedAt = now
	s.countStart(r.queue, now)
	interval := r.key.Spec.Interval
	switch {
	case r.lastSeq == 1:
		// Keys that were added together would otherwise be probed together forever: the second probe
		// starts at a random time.
		r.regularDue = now.Add(time.Duration(float64(interval) * random))
	case !r.controlDue.IsZero() && now.Before(r.regularDue): // a control probe replaces no other
	default:
		r.regularDue = now.Add(interval - time.Duration(float64(interval)*jitterRatio*random))
	}
	r.controlDue = time.Time{}
	s.reschedule(r)
	s.updateExpiry(r)
	return Attempt{Key: r.key, record: r, queue: r.queue, seq: r.lastSeq, startedAt: now}, true
}

// firstDue returns the key that is due first and has capacity, or nil. It blocks the shares without
// capacity until a probe ends.
func (s *Schedule) firstDue(now time.Time) *keyRecord {
	for len(s.readyQueues.items) > 0 {
		q := s.readyQueues.items[0]
		r := q.due.items[0]
		switch {
		case r.nextDue.After(now):
			return nil
		case s.hasCapacity(q):
			return r
		}
		s.readyQueues.remove(q)
		q.blocked = true
		s.blockedQueues = append(s.blockedQueues, q)
	}
	return nil
}

// Wake returns when to call Start and Expire again; ok is false if a call of Finish or SetTarget must come first.
func (s *Schedule) Wake() (wake time.Time, ok bool) {
	if len(s.readyQueues.items) > 0 {
		wake, ok = s.readyQueues.items[0].due.items[0].nextDue, true
	}
	if len(s.expiring.items) > 0 && (!ok || s.expiring.items[0].expiresAt.Before(wake)) {
		wake, ok = s.expiring.items[0].expiresAt, true
	}
	return wake, ok
}

// Finish applies the result of an attempt, and reports whether the key's status changed.
func (s *Schedule) Finish(a Attempt, result Result, detail string, now time.Time) (changed bool) {
	s.countEnd(a.queue)
	r := a.record
	r.inFlight--
	switch {
	case s.records[a.Key] != r: // removed since, and perhaps added again
		return false
	case result == Inconclusive:
		r.inconclusiveReason = detail
		s.updateExpiry(r)
		return s.expireKey(r, now)
	}
	old, wasContradicted := r.status, len(r.contradicting) > 0
	r.add(a.seq, a.startedAt, now, result, detail)
	r.lastConclusiveAt = now
	s.updateExpiry(r)
	s.reschedule(r)
	if result == Fail && len(r.contradicting) > 0 && !wasContradicted {
		s.controlPassing(r, now)
	}
	changed = old.Expired || old.Health != r.status.Health
	if changed {
		s.statusChanged(r, old.Health)
	}
	if result == Pass && old.Health != Passing && r.status.Health == Passing {
		s.controlFailing(r, now)
	}
	return changed
}

// statusChanged counts the key's new health, and marks its targets as changed.
func (s *Schedule) statusChanged(r *keyRecord, old Health) {
	s.healthCounts[old]--
	s.healthCounts[r.status.Health]++
	for _, t := range r.targets {
		t.counts[old]--
		t.counts[r.status.Health]++
		s.changedTargets[t.name] = struct{}{}
	}
}

// reschedule decides when a key is due. While its status is contradicted, the next probe is moved
// forward until enough probes have started to change it.
func (s *Schedule) reschedule(r *keyRecord) {
	r.nextDue = r.regularDue
	if !r.controlDue.IsZero() && r.controlDue.Before(r.nextDue) {
		r.nextDue = r.controlDue
	}
	if since, needed := r.needsReprobe(r.lastSeq); needed {
		if due := later(since, r.lastStartedAt).Add(reprobeGap); due.Before(r.nextDue) {
			r.nextDue = due
		}
	}
	r.queue.due.update(r)
	s.requeue(r.queue)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Status returns the status of a key. A key that is not probed is pending.
func (s *Schedule) Status(key Key) (status Status) {
	if r, known := s.records[key.Canonical()]; known {
		status = r.status
	}
	status.Address, status.Port = key.Address, key.Port
	return status
}

// dueBefore orders keys by their next probe; those that are due together by their address, so that no Service is
// first with all of its keys.
func dueBefore(a, b *keyRecord) bool {
	return cmp.Or(a.nextDue.Compare(b.nextDue), a.key.Address.Compare(b.key.Address), cmp.Compare(a.number, b.number)) < 0
}

// expiryIntervals is for how many intervals a status is valid without a conclusive probe. Otherwise a
// writer without free sockets would report every backend as passing forever, even those that failed since.
const expiryIntervals = 3

// updateExpiry sets when the status expires without a conclusive probe. A probe in flight extends it by the
// timeout, because it may still be conclusive. An expired status does not expire again.
func (s *Schedule) updateExpiry(r *keyRecord) {
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
func (s *Schedule) Expire(now time.Time) (keys []Key) {
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
func (s *Schedule) expireKey(r *keyRecord, now time.Time) bool {
	if r.status.Expired || r.expiresAt.After(now) {
		return false
	}
	old := r.status
	r.conclusion = conclusion{
		status:       Status{Expired: true, Detail: r.inconclusiveReason, LastPassed: old.LastPassed},
		lastAgreeing: r.lastSeq,
	}
	s.statusChanged(r, old.Health)
	s.expiring.remove(r)
	return true
}

func expiresBefore(a, b *keyRecord) bool {
	return cmp.Or(a.expiresAt.Compare(b.expiresAt), cmp.Compare(a.number, b.number)) < 0
}

// A failure counts only if another endpoint of its target corroborates it: if it passes, and its run of
// passes overlaps with the run of failures (package verdict). Without control probes that may take until the
// next regular probe of another key. So the first failure that contradicts a status probes other passing keys
// of its targets, and a key that begins to pass probes the failing ones. A control probe is an extra one within the
// same limits, and starts at least reprobeGap after the last probe of its key.

// maxControls is how many keys a contradiction probes: of two, one may have failed for the same reason.
const maxControls = 2

// controlPassing probes passing keys after a failure of another key of their targets, first those that
// passed last: they are the least likely to have failed too. A key that is contradicted itself is probed
// again in any case.
func (s *Schedule) controlPassing(failed *keyRecord, now time.Time) {
	var controls [maxControls]*keyRecord // the youngest pass first
	for _, t := range failed.targets {
		if t.counts[Passing] == 0 { // thousands may fail: without this, each visits all others
			continue
		}
		for _, r := range t.records {
			if r == failed || r.status.Health != Passing || len(r.contradicting) > 0 {
				continue
			}
			for i, other := range controls {
				if other == r {
					break
				}
				if other == nil || r.status.RunLast.After(other.status.RunLast) {
					copy(controls[i+1:], controls[i:])
					controls[i] = r
					break
				}
			}
		}
	}
	for _, r := range controls {
		if r != nil {
			s.control(r, now)
		}
	}
}

// controlFailing probes the failing keys that no probe was started for since another key of their targets
// passes.
func (s *Schedule) controlFailing(passed *keyRecord, now time.Time) {
	for _, t := range passed.targets {
		if t.counts[Failing] == 0 {
			continue
		}
		for _, r := range t.records {
			if r.status.Health == Failing && !r.lastStartedAt.After(passed.status.RunStart) {
				s.control(r, now)
			}
		}
	}
}

// control moves the next probe of a key forward. One that is already due then serves as well.
func (s *Schedule) control(r *keyRecord, now time.Time) {
	if due := later(now, r.lastStartedAt.Add(reprobeGap)); due.Before(r.nextDue) {
		r.controlDue = due
		s.reschedule(r)
	}
}

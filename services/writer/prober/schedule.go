package prober

import (
	"container/heap"
	"slices"
	"time"
)

// The thresholds (rise and fall, as in HAProxy), and the times of probes.
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
	fall        = 3 // failures until a status is failing
	riseInitial = 1 // successes until a pending status is passing
	riseRecover = 2 // successes until a failing status is passing
	reprobeGap  = 200 * time.Millisecond
	jitterRatio = 0.1 // maximum part of the interval by which a probe starts early
)

// Result is the outcome of one probe.
type Result uint8

// The results. Inconclusive says nothing about the backend: the writer could not probe it, for example
// because it has no free socket or shuts down.
const (
	Inconclusive Result = iota
	Pass
	Fail
)

var resultNames = [...]string{Inconclusive: "inconclusive", Pass: "pass", Fail: "fail"}

func (r Result) String() string { return resultNames[r] }

// Schedule decides when each key is probed, and derives its status from the results. It is pure: the
// caller passes times, random numbers and results. Every attempt that Start returns must be passed to
// Finish once.
type Schedule struct {
	limit            int // maximum probes in flight
	inFlight         int
	inFlightBySource map[string]int // probes in flight
	records          map[Key]*keyRecord
	queues           map[Share]*shareQueue
	readyQueues      queueHeap
	blockedQueues    []*shareQueue // of shares without capacity, until a probe ends
	expiryQueue      expiryHeap
	healthCounts     [len(healthNames)]int // number of keys by health
}

// NewSchedule returns a schedule with at most limit probes in flight.
func NewSchedule(limit int) *Schedule {
	return &Schedule{limit: limit, inFlightBySource: map[string]int{}, records: map[Key]*keyRecord{}, queues: map[Share]*shareQueue{}}
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
	expiry

	key           Key
	status        Status
	nextDue       time.Time // when the next probe is due
	regularDue    time.Time // when it would be due if no probe contradicted the status
	lastStartedAt time.Time // when the last probe started
	queue         *shareQueue
	queueIndex    int // in its queue's heap

	// Probes are numbered in the order of their start. They may end in another order, and then the
	// one that started later counts.
	lastSeq       uint64       // the last probe that started
	lastAgreeing  uint64       // the last probe that agrees with the status
	contradicting []endedProbe // later probes that contradict it, in the order of their start; fewer than fall
}

// endedProbe is a probe whose result contradicts the status of its key.
type endedProbe struct {
	seq                uint64
	startedAt, endedAt time.Time
}

// Add adds a key. Its first probe is due immediately.
func (s *Schedule) Add(key Key, share Share, now time.Time) {
	if _, known := s.records[key]; known {
		return
	}
	r := &keyRecord{key: key, nextDue: now}
	s.records[key] = r
	s.healthCounts[Pending]++
	s.addToQueue(s.queueFor(share), r)
	s.resetExpiry(r, now)
}

// Assign counts a key's probes for another share, from the next probe on.
func (s *Schedule) Assign(key Key, share Share) {
	r, known := s.records[key]
	if !known || r.queue.share == share {
		return
	}
	s.removeFromQueue(r)
	s.addToQueue(s.queueFor(share), r)
}

// Remove removes a key. Results of its probes in flight are ignored.
func (s *Schedule) Remove(key Key) {
	r, known := s.records[key]
	if !known {
		return
	}
	delete(s.records, key)
	s.healthCounts[r.status.Health]--
	s.removeFromQueue(r)
	s.stopExpiry(r)
}

// Start returns a probe that is due and has capacity, for the caller to run; false if there is none. Call
// it until it returns false. random is uniform in [0, 1).
func (s *Schedule) Start(now time.Time, random float64) (Attempt, bool) {
	for len(s.readyQueues) > 0 && !s.readyQueues[0].due[0].nextDue.After(now) && !s.hasCapacity(s.readyQueues[0]) {
		s.blockFirstQueue()
	}
	if len(s.readyQueues) == 0 || s.readyQueues[0].due[0].nextDue.After(now) {
		return Attempt{}, false
	}
	r := s.readyQueues[0].due[0]
	r.lastSeq++
	r.inFlight++
	r.lastStartedAt = now
	s.countStart(r.queue)
	interval := r.key.Spec.interval()
	r.regularDue = now.Add(interval - time.Duration(float64(interval)*jitterRatio*random))
	if r.lastSeq == 1 {
		// Keys that were added together would otherwise be probed together forever: the second probe
		// starts at a random time.
		r.regularDue = now.Add(time.Duration(float64(interval) * random))
	}
	r.nextDue = r.regularDue
	s.reschedule(r)
	return Attempt{Key: r.key, record: r, queue: r.queue, seq: r.lastSeq, startedAt: now}, true
}

// Wake returns when to call Start and Expire again; ok is false if a call of Finish or Add must come first.
func (s *Schedule) Wake() (wake time.Time, ok bool) {
	if len(s.readyQueues) > 0 {
		wake, ok = s.readyQueues[0].due[0].nextDue, true
	}
	if len(s.expiryQueue) > 0 && (!ok || s.expiryQueue[0].checkExpiryAt.Before(wake)) {
		wake, ok = s.expiryQueue[0].checkExpiryAt, true
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
		return s.expireKey(r, now)
	}
	changed = s.resetExpiry(r, now)

	health := Failing
	if result == Pass {
		health, r.status.LastPassedAt = Passing, now
	}
	switch {
	case health == r.status.Health:
		r.lastAgreeing = max(r.lastAgreeing, a.seq)
		r.contradicting = startedAfter(r.contradicting, a.seq)
		if a.startedAt.After(r.status.RunLast) {
			r.status.RunLast = a.startedAt
		}
	case a.seq < r.lastAgreeing: // a later probe already agreed
	default:
		probe := endedProbe{seq: a.seq, startedAt: a.startedAt, endedAt: now}
		at := len(r.contradicting) - len(startedAfter(r.contradicting, a.seq))
		r.contradicting = slices.Insert(r.contradicting, at, probe)
		if len(r.contradicting) < r.threshold(health) {
			break
		}
		changed = true
		// All probes that contradicted the old status agree with the new one, including those that
		// started after this one. Only a pending status is contradicted by both kinds: when it becomes
		// passing, later failures continue to count.
		agreeing := r.contradicting
		if r.status.Health == Pending && health == Passing {
			agreeing = []endedProbe{probe}
		}
		last := agreeing[len(agreeing)-1]
		r.lastAgreeing = last.seq
		s.healthCounts[r.status.Health]--
		s.healthCounts[health]++
		r.status = Status{
			Health: health, Since: now, LastPassedAt: r.status.LastPassedAt,
			RunStart: agreeing[0].startedAt, RunLast: last.startedAt,
		}
		if health == Failing {
			firstFailed := firstEnded(agreeing)
			r.status.Detail, r.status.FirstFailedAt, r.status.RunStart = detail, firstFailed, firstFailed
		}
		r.contradicting = startedAfter(r.contradicting, r.lastAgreeing)
	}
	r.nextDue = r.regularDue
	s.reschedule(r)
	return changed
}

// threshold is how many probes must agree on a health before the status changes to it.
func (r *keyRecord) threshold(health Health) int {
	switch {
	case health == Failing:
		return fall
	case r.status.Health == Pending:
		return riseInitial
	default:
		return riseRecover
	}
}

// reschedule moves the next probe forward while the status is contradicted, until enough probes have
// started to change it.
func (s *Schedule) reschedule(r *keyRecord) {
	if len(r.contradicting) > 0 {
		other := Failing
		if r.status.Health == Failing {
			other = Passing
		}
		if lastNeeded := r.contradicting[0].seq + uint64(r.threshold(other)) - 1; r.lastSeq < lastNeeded {
			contradictedAt := firstEnded(r.contradicting)
			early := contradictedAt.Add(reprobeGap)
			if r.lastStartedAt.After(contradictedAt) {
				early = r.lastStartedAt.Add(reprobeGap)
			}
			if early.Before(r.nextDue) {
				r.nextDue = early
			}
		}
	}
	heap.Fix(&r.queue.due, r.queueIndex)
	s.fixQueueOrder(r.queue)
}

// startedAfter returns the probes with a number above seq.
func startedAfter(probes []endedProbe, seq uint64) []endedProbe {
	at := slices.IndexFunc(probes, func(p endedProbe) bool { return p.seq > seq })
	if at < 0 {
		return nil
	}
	return probes[at:]
}

// firstEnded returns when the first of these probes ended.
func firstEnded(probes []endedProbe) time.Time {
	return slices.MinFunc(probes, func(a, b endedProbe) int { return a.endedAt.Compare(b.endedAt) }).endedAt
}

// Status returns the status of a key. A key that is not probed is pending.
func (s *Schedule) Status(key Key) Status {
	if r, known := s.records[key]; known {
		return r.status
	}
	return Status{}
}

// dueBefore orders records by their next probe, then by key, so that the order of probes does not
// depend on the order of a map.
func (r *keyRecord) dueBefore(other *keyRecord) bool {
	if !r.nextDue.Equal(other.nextDue) {
		return r.nextDue.Before(other.nextDue)
	}
	return r.key.compare(other.key) < 0
}

// dueHeap orders records by dueBefore.
type dueHeap []*keyRecord //nolint:recvcheck // container/heap requires it

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].dueBefore(h[j]) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].queueIndex, h[j].queueIndex = i, j
}

func (h *dueHeap) Push(x any) {
	r := x.(*keyRecord)
	r.queueIndex = len(*h)
	*h = append(*h, r)
}

func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}

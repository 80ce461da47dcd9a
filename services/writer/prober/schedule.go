package prober

import (
	"container/heap"
	"slices"
	"time"
)

// Rise and fall, and the pace of the probes.
//
// A backend that dies is noticed by the next probe to start: at most an interval (2 s)
// later, since jitter only shortens it. The first failure then starts two more probes,
// 200 ms and 400 ms later, which do not wait for each other:
//
//	refuses: 2.0 s + 0 (fails at once) + 0.4 s (the last starts) + 0               = 2.4 s
//	silent:  2.0 s + 1.0 s (timeout)   + 0.4 s (the last starts) + 1.0 s (timeout) = 4.4 s
//
// A timeout above the interval has probes of one backend overlap: none waits for the one before it. The
// formula for a silent backend stays the same (2.0 s + 2 timeouts + 0.4 s), and neither a refusal nor a
// recovery takes longer.
//
// These are the worst cases, so p99 stays below 2.5 s and 4.5 s as long as starts and
// results are handled within 100 ms in all.
const (
	fall        = 3 // failures that turn a word into failing
	riseInitial = 1 // successes that judge an endpoint for the first time
	riseRecover = 2 // successes that redeem one that failed
	reprobeGap  = 200 * time.Millisecond
	jitterShare = 0.1 // of the interval, at most, by which a probe comes sooner
)

// Result is how one probe ended.
type Result uint8

// The outcomes. Void says nothing of the backend: we could not ask (no socket left, shutdown).
const (
	Inconclusive Result = iota
	Pass
	Fail
)

var resultNames = [...]string{Inconclusive: "inconclusive", Pass: "pass", Fail: "fail"}

func (o Result) String() string { return resultNames[o] }

// Schedule decides when each key is probed and what its results make of it. It is pure:
// it has no clock, no randomness and no socket of its own. Every attempt that Start
// hands out must come back by Finish, once.
type Schedule struct {
	limit            int // probes in flight at most
	inFlight         int
	inFlightBySource map[string]int // probes in flight
	records          map[Key]*record
	lanes            map[Share]*lane
	readyLanes       laneHeap
	blockedLanes     []*lane // those whose share is used up, until a probe ends
	expiryQueue      expiryHeap
	healthCounts     [len(healthNames)]int // records by health
}

// NewSchedule makes a schedule that never has more than limit probes in flight.
func NewSchedule(limit int) *Schedule {
	return &Schedule{limit: limit, inFlightBySource: map[string]int{}, records: map[Key]*record{}, lanes: map[Share]*lane{}}
}

// Attempt is one probe in flight.
type Attempt struct {
	Key    Key
	record *record
	lane   *lane // that it is charged to
	seq    uint64
}

// record is all that is known of a key.
type record struct {
	expiry

	key                 Key
	status              Status
	nextDue             time.Time // when the next probe is due
	regularDue          time.Time // when it would be due if nothing contradicted the word
	lastStartedAt       time.Time // when the last one started
	firstContradictedAt time.Time // when the word was first contradicted, if it is
	lane                *lane
	laneIndex           int // in the lane's heap

	// Probes are numbered as they start, since they may finish in another order: what
	// counts is what the younger one says.
	lastSeq       uint64   // the last probe to start
	lastAgreeing  uint64   // the last one known to agree with the word
	contradicting []uint64 // those since then that contradict it, ascending; fewer than fall
}

// Add begins to probe a key: at once, outside of the spread.
func (s *Schedule) Add(key Key, share Share, now time.Time) {
	if _, known := s.records[key]; known {
		return
	}
	r := &record{key: key, nextDue: now}
	s.records[key] = r
	s.healthCounts[Pending]++
	s.addToLane(s.laneFor(share), r)
	s.noteConclusive(r, now)
}

// Assign charges a key's probes to another share, from the next one on.
func (s *Schedule) Assign(key Key, share Share) {
	r, known := s.records[key]
	if !known || r.lane.share == share {
		return
	}
	s.removeFromLane(r)
	s.addToLane(s.laneFor(share), r)
}

// Remove forgets a key. What is in flight for it will mean nothing.
func (s *Schedule) Remove(key Key) {
	r, known := s.records[key]
	if !known {
		return
	}
	delete(s.records, key)
	s.healthCounts[r.status.Health]--
	s.removeFromLane(r)
	s.stopExpiry(r)
}

// Start returns one probe that is due, if there is any and room for it; random is from
// [0, 1). Call it until there is none.
func (s *Schedule) Start(now time.Time, random float64) (Attempt, bool) {
	for len(s.readyLanes) > 0 && !s.readyLanes[0].due[0].nextDue.After(now) && !s.hasCapacity(s.readyLanes[0]) {
		s.blockFirstLane()
	}
	if len(s.readyLanes) == 0 || s.readyLanes[0].due[0].nextDue.After(now) {
		return Attempt{}, false
	}
	r := s.readyLanes[0].due[0]
	r.lastSeq++
	r.inFlight++
	r.lastStartedAt = now
	s.countStart(r.lane)
	interval := r.key.Spec.interval()
	r.regularDue = now.Add(interval - time.Duration(float64(interval)*jitterShare*random))
	if r.lastSeq == 1 {
		// Keys that came together would be probed together for ever: the second probe
		// of each is where the spread begins.
		r.regularDue = now.Add(time.Duration(float64(interval) * random))
	}
	r.nextDue = r.regularDue
	s.reschedule(r)
	return Attempt{Key: r.key, record: r, lane: r.lane, seq: r.lastSeq}, true
}

// Wake returns when Start or Expire has something next; false: not before a Finish or an Add.
func (s *Schedule) Wake() (wake time.Time, ok bool) {
	if len(s.readyLanes) > 0 {
		wake, ok = s.readyLanes[0].due[0].nextDue, true
	}
	if len(s.expiryQueue) > 0 && (!ok || s.expiryQueue[0].checkExpiryAt.Before(wake)) {
		wake, ok = s.expiryQueue[0].checkExpiryAt, true
	}
	return wake, ok
}

// Finish takes the outcome of an attempt and reports whether the key's word changed.
func (s *Schedule) Finish(a Attempt, result Result, detail string, now time.Time) (changed bool) {
	s.countEnd(a.lane)
	r := a.record
	r.inFlight--
	switch {
	case s.records[a.Key] != r: // removed, and perhaps added again, meanwhile
		return false
	case result == Inconclusive:
		r.inconclusiveReason = detail
		return s.expireRecord(r, now)
	}
	changed = s.noteConclusive(r, now)

	health := Failing
	if result == Pass {
		health, r.status.LastPassedAt = Passing, now
	}
	switch {
	case health == r.status.Health:
		r.lastAgreeing = max(r.lastAgreeing, a.seq)
		r.contradicting = seqsAfter(r.contradicting, a.seq)
	case a.seq < r.lastAgreeing: // a younger probe has answered already, and agreed
	default:
		if len(r.contradicting) == 0 {
			r.firstContradictedAt = now
		}
		at, _ := slices.BinarySearch(r.contradicting, a.seq)
		r.contradicting = slices.Insert(r.contradicting, at, a.seq)
		if len(r.contradicting) < r.threshold(health) {
			break
		}
		changed = true
		// Whatever contradicted the former word agrees with the new one, also what started after this
		// probe. Only while nothing is judged both kinds are there: then younger failures go on to count.
		r.lastAgreeing = a.seq
		if r.status.Health != Pending || health == Failing {
			r.lastAgreeing = r.contradicting[len(r.contradicting)-1]
		}
		s.healthCounts[r.status.Health]--
		s.healthCounts[health]++
		r.status = Status{Health: health, Since: now, LastPassedAt: r.status.LastPassedAt}
		if health == Failing {
			r.status.Detail, r.status.FirstFailedAt = detail, r.firstContradictedAt
		}
		r.contradicting = seqsAfter(r.contradicting, r.lastAgreeing)
	}
	r.nextDue = r.regularDue
	s.reschedule(r)
	return changed
}

// threshold is how many probes must say so before the word becomes said.
func (r *record) threshold(health Health) int {
	switch {
	case health == Failing:
		return fall
	case r.status.Health == Pending:
		return riseInitial
	default:
		return riseRecover
	}
}

// reschedule puts the next probe early while the word is contradicted and fewer probes are on
// their way than it takes to change it.
func (s *Schedule) reschedule(r *record) {
	if len(r.contradicting) > 0 {
		other := Failing
		if r.status.Health == Failing {
			other = Passing
		}
		if enough := r.contradicting[0] + uint64(r.threshold(other)) - 1; r.lastSeq < enough {
			early := r.firstContradictedAt.Add(reprobeGap)
			if r.lastStartedAt.After(r.firstContradictedAt) {
				early = r.lastStartedAt.Add(reprobeGap)
			}
			if early.Before(r.nextDue) {
				r.nextDue = early
			}
		}
	}
	heap.Fix(&r.lane.due, r.laneIndex)
	s.fixLaneOrder(r.lane)
}

// seqsAfter returns the numbers above seq.
func seqsAfter(seqs []uint64, seq uint64) []uint64 {
	at, found := slices.BinarySearch(seqs, seq)
	if found {
		at++
	}
	return slices.Delete(seqs, 0, at)
}

// Status returns the word on a key; one that is not probed is not judged.
func (s *Schedule) Status(key Key) Status {
	if r, known := s.records[key]; known {
		return r.status
	}
	return Status{}
}

// dueBefore orders records, soonest first. Equal times go by key, so that the order of the probes never depends on that
// of a map.
func (r *record) dueBefore(other *record) bool {
	if !r.nextDue.Equal(other.nextDue) {
		return r.nextDue.Before(other.nextDue)
	}
	return r.key.compare(other.key) < 0
}

// dueHeap is a heap of records, soonest first.
type dueHeap []*record //nolint:recvcheck // as container/heap has it

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].dueBefore(h[j]) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].laneIndex, h[j].laneIndex = i, j
}

func (h *dueHeap) Push(x any) {
	r := x.(*record)
	r.laneIndex = len(*h)
	*h = append(*h, r)
}

func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}

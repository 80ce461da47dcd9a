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
	riseNew     = 1 // successes that judge an endpoint for the first time
	riseAgain   = 2 // successes that redeem one that failed
	reprobeGap  = 200 * time.Millisecond
	jitterShare = 0.1 // of the interval, at most, by which a probe comes sooner
)

// Outcome is how one probe ended.
type Outcome uint8

// The outcomes. Void says nothing of the backend: we could not ask (no socket left, shutdown).
const (
	Void Outcome = iota
	Pass
	Fail
)

var outcomes = [...]string{Void: "void", Pass: "pass", Fail: "fail"}

func (o Outcome) String() string { return outcomes[o] }

// Schedule decides when each key is probed and what its results make of it. It is pure:
// it has no clock, no randomness and no socket of its own. Every attempt that Start
// hands out must come back by Finish, once.
type Schedule struct {
	limit    int // probes in flight at most
	inFlight int
	bySource map[string]int // probes in flight
	records  map[Key]*record
	lanes    map[Share]*lane
	ready    laneHeap
	blocked  []*lane // those whose share is used up, until a probe ends
	expiring expiryHeap
	counts   [len(healths)]int // records by health
}

// NewSchedule makes a schedule that never has more than limit probes in flight.
func NewSchedule(limit int) *Schedule {
	return &Schedule{limit: limit, bySource: map[string]int{}, records: map[Key]*record{}, lanes: map[Share]*lane{}}
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

	key     Key
	word    Word
	next    time.Time // when the next probe is due
	regular time.Time // when it would be due if nothing contradicted the word
	last    time.Time // when the last one started
	doubted time.Time // when the word was first contradicted, if it is
	lane    *lane
	index   int // in the lane's heap

	// Probes are numbered as they start, since they may finish in another order: what
	// counts is what the younger one says.
	started  uint64   // the last probe to start
	agreed   uint64   // the last one known to agree with the word
	contrary []uint64 // those since then that contradict it, ascending; fewer than fall
}

// Add begins to probe a key: at once, outside of the spread.
func (s *Schedule) Add(key Key, share Share, now time.Time) {
	if _, known := s.records[key]; known {
		return
	}
	r := &record{key: key, next: now}
	s.records[key] = r
	s.counts[Unjudged]++
	s.enter(s.lane(share), r)
	s.concluded(r, now)
}

// Assign charges a key's probes to another share, from the next one on.
func (s *Schedule) Assign(key Key, share Share) {
	r, known := s.records[key]
	if !known || r.lane.share == share {
		return
	}
	s.exit(r)
	s.enter(s.lane(share), r)
}

// Remove forgets a key. What is in flight for it will mean nothing.
func (s *Schedule) Remove(key Key) {
	r, known := s.records[key]
	if !known {
		return
	}
	delete(s.records, key)
	s.counts[r.word.Health]--
	s.exit(r)
	s.neverExpires(r)
}

// Start returns one probe that is due, if there is any and room for it; random is from
// [0, 1). Call it until there is none.
func (s *Schedule) Start(now time.Time, random float64) (Attempt, bool) {
	for len(s.ready) > 0 && !s.ready[0].due[0].next.After(now) && !s.admits(s.ready[0]) {
		s.block()
	}
	if len(s.ready) == 0 || s.ready[0].due[0].next.After(now) {
		return Attempt{}, false
	}
	r := s.ready[0].due[0]
	r.started++
	r.inFlight++
	r.last = now
	s.charge(r.lane)
	interval := r.key.Spec.interval()
	r.regular = now.Add(interval - time.Duration(float64(interval)*jitterShare*random))
	if r.started == 1 {
		// Keys that came together would be probed together for ever: the second probe
		// of each is where the spread begins.
		r.regular = now.Add(time.Duration(float64(interval) * random))
	}
	r.next = r.regular
	s.pace(r)
	return Attempt{Key: r.key, record: r, lane: r.lane, seq: r.started}, true
}

// Wake returns when Start or Expire has something next; false: not before a Finish or an Add.
func (s *Schedule) Wake() (wake time.Time, some bool) {
	if len(s.ready) > 0 {
		wake, some = s.ready[0].due[0].next, true
	}
	if len(s.expiring) > 0 && (!some || s.expiring[0].expires.Before(wake)) {
		wake, some = s.expiring[0].expires, true
	}
	return wake, some
}

// Finish takes the outcome of an attempt and reports whether the key's word changed.
func (s *Schedule) Finish(a Attempt, outcome Outcome, detail string, now time.Time) (changed bool) {
	s.discharge(a.lane)
	r := a.record
	r.inFlight--
	switch {
	case s.records[a.Key] != r: // removed, and perhaps added again, meanwhile
		return false
	case outcome == Void:
		r.trouble = detail
		return s.expire(r, now)
	}
	changed = s.concluded(r, now)

	said := Failing
	if outcome == Pass {
		said, r.word.Passed = Passing, now
	}
	switch {
	case said == r.word.Health:
		r.agreed = max(r.agreed, a.seq)
		r.contrary = younger(r.contrary, a.seq)
	case a.seq < r.agreed: // a younger probe has answered already, and agreed
	default:
		if len(r.contrary) == 0 {
			r.doubted = now
		}
		at, _ := slices.BinarySearch(r.contrary, a.seq)
		r.contrary = slices.Insert(r.contrary, at, a.seq)
		if len(r.contrary) < r.needed(said) {
			break
		}
		changed = true
		// Whatever contradicted the former word agrees with the new one, also what started after this
		// probe. Only while nothing is judged both kinds are there: then younger failures go on to count.
		r.agreed = a.seq
		if r.word.Health != Unjudged || said == Failing {
			r.agreed = r.contrary[len(r.contrary)-1]
		}
		s.counts[r.word.Health]--
		s.counts[said]++
		r.word = Word{Health: said, Since: now, Passed: r.word.Passed}
		if said == Failing {
			r.word.Detail, r.word.Failed = detail, r.doubted
		}
		r.contrary = younger(r.contrary, r.agreed)
	}
	r.next = r.regular
	s.pace(r)
	return changed
}

// needed is how many probes must say so before the word becomes said.
func (r *record) needed(said Health) int {
	switch {
	case said == Failing:
		return fall
	case r.word.Health == Unjudged:
		return riseNew
	default:
		return riseAgain
	}
}

// pace puts the next probe early while the word is contradicted and fewer probes are on
// their way than it takes to change it.
func (s *Schedule) pace(r *record) {
	if len(r.contrary) > 0 {
		other := Failing
		if r.word.Health == Failing {
			other = Passing
		}
		if enough := r.contrary[0] + uint64(r.needed(other)) - 1; r.started < enough {
			early := r.doubted.Add(reprobeGap)
			if r.last.After(r.doubted) {
				early = r.last.Add(reprobeGap)
			}
			if early.Before(r.next) {
				r.next = early
			}
		}
	}
	heap.Fix(&r.lane.due, r.index)
	s.reorder(r.lane)
}

// younger returns the numbers above seq.
func younger(seqs []uint64, seq uint64) []uint64 {
	at, found := slices.BinarySearch(seqs, seq)
	if found {
		at++
	}
	return slices.Delete(seqs, 0, at)
}

// Word returns the word on a key; one that is not probed is not judged.
func (s *Schedule) Word(key Key) Word {
	if r, known := s.records[key]; known {
		return r.word
	}
	return Word{}
}

// before orders records, soonest first. Equal times go by key, so that the order of the probes never depends on that
// of a map.
func (r *record) before(other *record) bool {
	if !r.next.Equal(other.next) {
		return r.next.Before(other.next)
	}
	return r.key.compare(other.key) < 0
}

// dueHeap is a heap of records, soonest first.
type dueHeap []*record //nolint:recvcheck // as container/heap has it

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].before(h[j]) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *dueHeap) Push(x any) {
	r := x.(*record)
	r.index = len(*h)
	*h = append(*h, r)
}

func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}

package roster

import "time"

const (
	// maxSeries bounds a series of observations, whoever asks for it.
	maxSeries = 10
	// observationGap is the least time between two observations, which the contract promises.
	observationGap = 5 * time.Second
)

// observations is the count of complete observations, and the doubts that ask for more.
type observations struct {
	number uint64
	at     time.Time // when the last was complete

	left  int       // observations that the present series still has
	depth int       // of a series that starts by itself
	after time.Time // when the last doubt arose: a look that began before says nothing about it

	anomaly   AnomalyDetector
	restarted bool // an anomaly has made the observation that is under way begin once more

	word bool // the first word has been given
}

// observationDue reports whether an observation that is complete now counts as another one.
func (o *observations) observationDue(now time.Time) bool {
	return o.number == 0 || now.Sub(o.at) >= observationGap
}

// observe takes in a complete observation.
func (r *Roster) observe(now time.Time) {
	o := &r.obs
	o.number++
	o.at = now
	o.left = max(0, o.left-1)
	o.restarted = false
	o.anomaly.Observed()
}

// reckon draws the conclusions after anything that came in.
func (r *Roster) reckon(now time.Time) {
	o := &r.obs
	if o.number > 0 {
		if o.anomaly.Arose(r.states[Ready]) {
			// An observation that began before the anomaly says nothing about it. But one that was
			// made to begin once more goes on, or a node that flaps faster than the cloud is listed
			// would let none complete.
			r.requestSeries(now, o.depth, !o.restarted)
			o.restarted = true
		}
		o.word = o.word || r.wordDue()
	}
	r.judge(now)
}

// startOver forgets looks that are older than a doubt.
func (r *Roster) startOver(now time.Time) {
	r.obs.after = now
	r.looks.first, r.looks.last = time.Time{}, time.Time{}
}

// wordDue reports whether every eligible READY node has an address, or two whole listings
// agreed that it has none.
func (r *Roster) wordDue() bool {
	if r.cfg.Resolver != ByCloud {
		return true
	}
	for _, m := range r.unresolved {
		if m.State == Ready && !m.misses.agreed {
			return false
		}
	}
	return true
}

// told reports whether the list may be told as complete. It is withdrawn while there are eligible
// nodes and none has an address: that is blindness, not emptiness.
func (r *Roster) told() bool {
	return r.obs.word && (r.eligible == 0 || r.published > 0)
}

// Doubt takes in that a subscriber or one of its views wants a series of complete
// observations (1 to 10). Series are shared: the larger of what remains and what is asked holds.
// It returns how many observations that adds.
func (r *Roster) Doubt(now time.Time, observations int) (added int) {
	before := r.obs.left
	// A series that runs is joined, or frequent askers would let no observation complete.
	r.requestSeries(now, within(observations), false)
	return r.obs.left - before
}

// requestSeries begins a series, or joins the one that runs; restart has it forget what the
// observation under way has seen so far.
func (r *Roster) requestSeries(now time.Time, observations int, restart bool) {
	if restart || r.obs.left == 0 {
		r.startOver(now)
	} else if r.looks.inFlight || r.lists.inFlight || !r.looks.first.IsZero() {
		observations++ // the observation that is being made began before the request
	}
	r.obs.left = max(r.obs.left, observations)
}

// SetDoubtDepth says how many observations a series has that the roster starts by
// itself (1 to 10): the largest number that a connected subscriber wants.
func (r *Roster) SetDoubtDepth(n int) { r.obs.depth = within(n) }

func within(n int) int { return min(max(n, 1), maxSeries) }

// inSeries reports whether observations are wanted in close succession: at start and in doubt.
func (r *Roster) inSeries() bool { return r.obs.number == 0 || r.obs.left > 0 }

// Ask returns what to begin now, and when to ask again. What it asks for counts as under
// way until it is answered by Looked or Listed, so each question must be answered once.
func (r *Roster) Ask(now time.Time) Ask {
	r.judge(now)
	ask := Ask{Wake: r.nextTurn(now)}
	if !r.looks.inFlight {
		if look, at := r.nextLook(now); !at.After(now) {
			ask.Look, r.looks.inFlight, r.looks.began, r.looks.suspect = look, true, now, false
		} else {
			ask.Wake = earlier(ask.Wake, at)
		}
	}
	if !r.lists.inFlight {
		if at, ok := r.nextListing(); ok && !at.After(now) {
			ask.List, r.lists.inFlight, r.lists.began = true, true, now
		} else if ok {
			ask.Wake = earlier(ask.Wake, at)
		}
	}
	return ask
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

package roster

import "time"

// maxSeries bounds a series of observations, whoever asks for it.
const maxSeries = 10

// observations is the count of complete observations, and the doubts that ask for more.
type observations struct {
	number uint64
	at     time.Time // when the last was complete

	left  int       // observations that the present series still has
	depth int       // of a series that starts by itself
	after time.Time // when the last doubt arose: a look that began before says nothing about it

	doubts doubts
	base   int                 // nodes at the last observation,
	lost   map[string]struct{} // those of them that left since,
	joined map[string]struct{} // and those that came since

	word bool // the first word has been given
}

// doubts are what makes the list doubtful. Each starts a series when it arises.
type doubts struct{ empty, noneReady, halved bool }

// arises reports whether there is a doubt that was not there before.
func (d doubts) arises(before doubts) bool {
	return d.empty && !before.empty || d.noneReady && !before.noneReady || d.halved && !before.halved
}

func (o *observations) join(name string) {
	if _, ok := o.lost[name]; ok {
		delete(o.lost, name)
		return
	}
	o.joined[name] = struct{}{}
}

func (o *observations) leave(name string) {
	if _, ok := o.joined[name]; ok {
		delete(o.joined, name)
		return
	}
	o.lost[name] = struct{}{}
}

// observe takes in a complete observation.
func (r *Roster) observe(now time.Time) {
	o := &r.obs
	o.number++
	o.at = now
	o.left = max(0, o.left-1)
	o.base = r.published
	clear(o.lost)
	clear(o.joined)
}

// reckon draws the conclusions after anything that came in.
func (r *Roster) reckon(now time.Time) {
	o := &r.obs
	if o.number > 0 {
		d := doubts{
			empty:     r.published == 0,
			noneReady: r.states[Ready] == 0,
			halved:    2*len(o.lost) > o.base,
		}
		if d.arises(o.doubts) {
			o.left = max(o.left, o.depth)
			r.startOver(now)
		}
		o.doubts = d
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
func (r *Roster) Doubt(now time.Time, observations int) {
	want := within(observations)
	if r.obs.left == 0 { // one that runs is joined, or frequent askers would never let it count
		r.startOver(now)
	} else if r.looks.inFlight || r.lists.inFlight || !r.looks.first.IsZero() {
		want++ // the observation that is being made began before the question
	}
	r.obs.left = max(r.obs.left, want)
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

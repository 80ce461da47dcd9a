// Package verdict decides what is to be written for one Service, from what its sources
// say, what the probes say and what the slices hold. It promises to be a function of
// its arguments (no clock, no client, no randomness, no order of a map), and the same
// answer again once it has been written. It refuses to let silence, doubt or a
// mistake of ours take an endpoint away.
package verdict

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Memory is what one decision leaves to the next. Losing it (a restart, a takeover) only
// makes the guards more patient.
type Memory struct {
	sources []observed
	windows []window
	words   []word    // by address
	passed  time.Time // when a probe of this target last passed
	blind   time.Time // since when none does, see Decision.BlindSince
	resync  resynced
}

// word is what a trusted source last said of an address of its own, and what became of it.
type word struct {
	address netip.Addr
	source  string
	state   State
	since   time.Time  // when the source first said so
	out     bool       // it was held, and is out but not listed: no label in a slice says whose it is
	had     Conditions // before a failing probe put it out
	booked  string     // the source whose window of the shrink guard has let it go, while it is still held as ready
	ours    bool       // it leaves because our own settings changed
	freed   bool       // a resync has let it go, while it is still held
}

// Decide makes one decision. It neither keeps nor changes its arguments. The order of the
// steps is that of the rules: a step sees what the earlier ones left standing.
func Decide(mem Memory, in Input, now time.Time) (Memory, Decision) {
	c := open(mem, in, now)
	c.fence()  // what may be written at all
	c.gate()   // sources that were not heard yet change nothing
	c.resync() // whether a person asked for one
	c.panic()  // when all probes fail at once, they are void
	c.empty()  // a source that says "nothing" must say it for a while
	c.trust()  // sources that cannot be believed at present change nothing
	c.own()    // one address, one source
	c.table()  // the two witnesses
	if !c.forbidden {
		c.floor()  // something stays ready
		c.free()   // what a resync lets go
		c.shrink() // not too many leave at once
		c.resort() // in a panic, what nobody calls dead is better than nothing
	}
	return c.close()
}

// court is a decision under way.
type court struct {
	in   Input
	now  time.Time
	past Memory

	sources  []witness // as in.Sources
	subjects []subject // by address
	claims   []*Member // what each source says of each subject: subject*len(sources)+source

	memory    Memory
	decision  Decision
	forbidden bool // the fence would take all: nothing is written
	works     bool // a probe passes of what is held, or could be listed
	void      bool // the probes' failures are void
	resyncs   bool // shrink, floor and an unconfirmed emptiness hold nothing that is absent
	spares    int  // endpoints that are in use because of it
	floored   int  // endpoints that are ready since nothing else would be

	said     said // the last reason, see reason
	saidText string
}

// subject is one address that is held or told.
type subject struct {
	address netip.Addr
	held    *Held  // nil: not held
	probe   Probe  // what is said of it
	health  Health // the probe's, or off
	label   int    // the source that it is held for, or was; nobody: neither, or a source that is none of ours
	refused int    // a source whose fence does not let it in; nobody: none
	cause   string // what the fence has against it
	past    *word  // what is remembered of it; nil: nothing
	owner   int    // the source whose word counts; nobody: none's
	state   State  // what a trusted source last said of it, and since when
	since   time.Time
	keeps   bool // no word of a source made it what it is: it is as it was
	spared  bool // a failure that is void has put it out: it gets back what it had
	booked  bool // see word: by a window of its label's
	ours    bool // see word
	freed   bool // see word
}

// lastPassed is when a probe of it last passed, as far as that is known.
func (s *subject) lastPassed() time.Time {
	if s.health == Passing && s.probe.Since.After(s.probe.Passed) {
		return s.probe.Since
	}
	return s.probe.Passed
}

// firstFailed is when the failures began that make it failing.
func (s *subject) firstFailed() time.Time {
	if s.probe.Failed.IsZero() {
		return s.probe.Since
	}
	return s.probe.Failed
}

// nobody stands where the index of a source could.
const nobody = -1

// witness is one source and how far it is believed in this decision.
type witness struct {
	*Source

	rule     Rule   // that keeps its word from counting; empty: it is believed
	why      string // it is not believed
	observed observed
	trusted  bool       // in itself, before the other guards
	doubt    string     // why it is not
	emptied  bool       // it has nothing for this target, and that is confirmed
	refused  int        // addresses that its fence refuses
	example  netip.Addr // the first of them, and why
	cause    string
	holds    int  // endpoints that are held back because it is not believed
	kept     int  // endpoints that the shrink guard holds back
	first    bool // it does so in a leader's first window
	wanted   bool // a newer observation would release some of them

	report *report // nil: nobody has asked for the last trusted one

	reselected bool // our own settings choose other members of it than before
}

// report is what a source last reported while it could be trusted.
type report struct {
	members []Member // sorted by address
	serves  bool     // something of it could serve, by the rule of isEmpty
}

func (w *witness) believed() bool { return w.rule == "" }

// open joins by address what is held and what the sources tell.
func open(mem Memory, in Input, now time.Time) *court {
	if in.Limits.MaxStaleness <= 0 {
		in.Limits.MaxStaleness = DefaultMaxStaleness
	}
	if in.Limits.EmptyThreshold <= 0 {
		in.Limits.EmptyThreshold = DefaultEmptyThreshold
	}
	in.Sources = sorted(in.Sources, func(a, b Source) int { return cmp.Compare(a.Name, b.Name) })
	c := courts.Get().(*court) //nolint:forcetypeassert // nothing else is put there
	c.in, c.now, c.past, c.sources = in, now, mem, make([]witness, len(in.Sources))
	held := sorted(in.Held, func(a, b Held) int { return a.Address.Compare(b.Address) })
	told := make([][]Member, len(in.Sources))
	size := len(held)
	for i := range in.Sources {
		c.sources[i].Source = &in.Sources[i]
		c.sources[i].reselected = slices.ContainsFunc(mem.windows, func(w window) bool {
			return w.source == in.Sources[i].Name && w.selector != in.Sources[i].Selector
		})
		if in.Sources[i].Heard {
			told[i] = sorted(in.Sources[i].Members, func(a, b Member) int { return a.Address.Compare(b.Address) })
		}
		size = max(size, len(told[i]))
	}
	c.subjects = slices.Grow(c.subjects[:0], size)
	c.claims = slices.Grow(c.claims[:0], size*len(told))
	for {
		address, some := lowest(held, told)
		if !some {
			return c
		}
		var listed *Held
		for ; len(held) > 0 && held[0].Address == address; held = held[1:] {
			if listed == nil || prefer(held[0], *listed) {
				listed = &held[0]
			}
		}
		for len(mem.words) > 0 && mem.words[0].address.Less(address) {
			mem.words = mem.words[1:]
		}
		var past *word
		if len(mem.words) > 0 && mem.words[0].address == address {
			past = &mem.words[0]
		}
		for i := range told {
			var claim *Member
			for ; len(told[i]) > 0 && told[i][0].Address == address; told[i] = told[i][1:] {
				claim = &told[i][0]
			}
			c.claims = append(c.claims, claim)
		}
		c.subjects = append(c.subjects, c.subject(address, listed, past))
	}
}

// subject is what is known of an address before anybody has spoken.
func (c *court) subject(address netip.Addr, held *Held, past *word) subject {
	s := subject{address: address, held: held, past: past, label: nobody, refused: nobody, owner: nobody, health: off}
	if c.in.Limits.Probing {
		s.probe = c.in.Probes[address]
		s.health = s.probe.Health
	}
	switch {
	case held != nil:
		s.label = c.source(labelled(held))
		s.freed = past != nil && past.freed
		s.booked = past != nil && past.booked == labelled(held) && held.Conditions.Ready
	case past != nil && past.out:
		s.label = c.source(past.source)
	}
	return s
}

// sorted returns items in order. They should come so; a caller's slip must not end in
// slices that are wrong.
func sorted[T any](items []T, order func(a, b T) int) []T {
	if !slices.IsSortedFunc(items, order) {
		items = slices.Clone(items)
		slices.SortStableFunc(items, order)
	}
	return items
}

// lowest returns the first address at the heads of these sorted lists.
func lowest(held []Held, told [][]Member) (address netip.Addr, some bool) {
	if len(held) > 0 {
		address, some = held[0].Address, true
	}
	for _, members := range told {
		if len(members) > 0 && (!some || members[0].Address.Less(address)) {
			address, some = members[0].Address, true
		}
	}
	return address, some
}

// prefer says which of two endpoints of one address counts (one is written before
// the other is removed when it moves between slices): the one that serves more.
func prefer(a, b Held) bool {
	rank := func(h Held) int {
		switch {
		case h.Conditions.Ready:
			return 2
		case h.Conditions.Serving:
			return 1
		default:
			return 0
		}
	}
	return cmp.Or(cmp.Compare(rank(b), rank(a)), cmp.Compare(labelled(&a), labelled(&b))) < 0
}

func labelled(h *Held) string {
	if h.Source == "" {
		return DefaultSource
	}
	return h.Source
}

// source finds a source by its name.
func (c *court) source(name string) int {
	for i := range c.sources {
		if c.sources[i].Name == name {
			return i
		}
	}
	return nobody
}

// claimed returns what a source says of a subject; nil: nothing.
func (c *court) claimed(subject, source int) *Member {
	return c.claims[subject*len(c.sources)+source]
}

// close tells the guards that acted and keeps what the next decision needs.
func (c *court) close() (Memory, Decision) {
	d := &c.decision
	c.remember()
	d.Write = !c.forbidden
	if c.forbidden {
		c.repeat()
		c.memory.windows = c.past.windows
	} else {
		d.Guards = c.guards()
	}
	for i := range c.sources {
		w := &c.sources[i]
		if (w.rule == RuleEmpty && w.holds > 0 || w.wanted) && !c.forbidden {
			d.NeedObservations = append(d.NeedObservations, w.Name)
		}
		if w.trusted {
			c.wake(w.MembershipAt.Add(c.in.Limits.MaxStaleness + 1))
		}
		if w.rule == RuleEmpty && w.observed.count > 0 {
			c.wake(w.observed.at.Add(emptyGap))
		}
		c.memory.sources = append(c.memory.sources, w.observed)
	}
	memory, decision := c.memory, *d
	c.rise()
	return memory, decision
}

// courts are those that do not sit. Of one decision on a large target to the next, what is made
// only to be thrown away would be most of what is made.
var courts = sync.Pool{New: func() any { return &court{} }}

// rise lets go of the decision, but for the room that it took.
func (c *court) rise() {
	clear(c.subjects)
	clear(c.claims)
	*c = court{subjects: c.subjects[:0], claims: c.claims[:0]}
	courts.Put(c)
}

// guards are those that act, in the order of the rules.
func (c *court) guards() (all []Guard) {
	add := func(g Guard, acts bool) {
		if acts {
			all = append(all, g)
		}
	}
	for _, rule := range []Rule{RuleFence, RuleGate, RulePanic, RuleEmpty, RuleTrust, RuleFloor, RuleShrink} {
		switch rule {
		case RulePanic:
			add(c.panics())
		case RuleFloor:
			add(c.floors())
		case RuleShrink:
			for i := range c.sources {
				add(c.shrinks(i))
			}
		default:
			if c.in.Rejected && rule != RuleFence {
				continue // the rejection says it already
			}
			for i := range c.sources {
				add(c.sources[i].guard(rule))
			}
		}
	}
	return all
}

// remember keeps a word on each subject of which the next decision must know something.
func (c *court) remember() {
	same, before := 0, c.past.words // so many are as they were, and as long as all are nothing is made
	for i := range c.subjects {
		s, e := &c.subjects[i], &c.decision.Endpoints[i]
		w := word{address: s.address, source: e.Source, state: s.state, since: s.since, ours: s.ours, freed: s.freed}
		if s.booked {
			w.booked = labelled(s.held)
		}
		w.out = e.Verdict != Gone && !e.Listed && (s.held != nil || (s.past != nil && s.past.out))
		wasOut := s.held == nil || isOut(s.held.Conditions)
		switch {
		case s.health != Failing || e.Verdict == Gone:
		case wasOut && s.past != nil: // what it gets back is remembered until that is written
			w.had = s.past.had
		case !wasOut && (!c.void || !isOut(e.Conditions)): // in a panic too: a write under way may yet take it
			w.had = s.held.Conditions
		}
		if e.Verdict == Gone && s.health == Passing {
			c.memory.passed = c.now // it passed to the end: what it has put out stays out when it is gone
		}
		if w.state == Unknown && !w.out && !w.freed && w.had == (Conditions{}) {
			continue
		}
		if c.memory.words == nil && same < len(before) && before[same] == w {
			same++
			continue
		}
		if c.memory.words == nil {
			c.memory.words = append(make([]word, 0, len(c.subjects)), before[:same]...)
		}
		c.memory.words = append(c.memory.words, w)
	}
	if c.memory.words == nil {
		c.memory.words = before[:same]
	}
}

// wake asks to be asked again at that time.
func (c *court) wake(at time.Time) {
	if at.After(c.now) && (c.decision.Wake.IsZero() || at.Before(c.decision.Wake)) {
		c.decision.Wake = at
	}
}

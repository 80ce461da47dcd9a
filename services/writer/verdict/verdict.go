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
	"time"
)

// Memory is what one decision leaves to the next. Losing it (a restart, a takeover) only
// makes the guards more patient.
type Memory struct {
	sources []observed
	words   []word // by address
}

// word is what a trusted source last said of an address of its own.
type word struct {
	address netip.Addr
	source  string
	state   State
	out     bool // it was held, and is out but not listed: no label in a slice says whose it is
}

// Decide makes one decision. It neither keeps nor changes its arguments. The order of the
// steps is that of the rules: a step sees what the earlier ones left standing.
func Decide(mem Memory, in Input, now time.Time) (Memory, Decision) {
	c := open(mem, in, now)
	c.fence() // what may be written at all
	c.gate()  // sources that were not heard yet change nothing
	// The place of panic: when all probes fail at once, they are void.
	c.empty() // a source that says "nothing" must say it for a while
	c.trust() // sources that cannot be believed at present change nothing
	c.own()   // one address, one source
	c.table() // the two witnesses
	// The place of floor: something stays ready. Then of shrink: not too many leave at once.
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

	said     said // the last reason, see reason
	saidText string
}

// subject is one address that is held or told.
type subject struct {
	address netip.Addr
	held    *Held  // nil: not held
	label   int    // the source that it is held for, or was; nobody: neither, or a source that is none of ours
	refused int    // a source whose fence does not let it in; nobody: none
	cause   string // what the fence has against it
	past    *word  // what is remembered of it; nil: nothing
	owner   int    // the source whose word counts; nobody: none's
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
	refused  int        // addresses that its fence refuses
	example  netip.Addr // the first of them, and why
	cause    string
	holds    int // endpoints that are held back because it is not believed
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
	c := &court{in: in, now: now, past: mem, sources: make([]witness, len(in.Sources))}
	held := sorted(in.Held, func(a, b Held) int { return a.Address.Compare(b.Address) })
	told := make([][]Member, len(in.Sources))
	size := len(held)
	for i := range in.Sources {
		c.sources[i].Source = &in.Sources[i]
		if in.Sources[i].Heard {
			told[i] = sorted(in.Sources[i].Members, func(a, b Member) int { return a.Address.Compare(b.Address) })
		}
		size = max(size, len(told[i]))
	}
	c.subjects = make([]subject, 0, size)
	c.claims = make([]*Member, 0, size*len(told))
	for {
		address, some := lowest(held, told)
		if !some {
			return c
		}
		s := subject{address: address, label: nobody, refused: nobody, owner: nobody}
		for ; len(held) > 0 && held[0].Address == address; held = held[1:] {
			if s.held == nil || prefer(held[0], *s.held) {
				s.held = &held[0]
			}
		}
		if s.held != nil {
			s.label = c.source(labelled(s.held))
		}
		for i := range told {
			var claim *Member
			for ; len(told[i]) > 0 && told[i][0].Address == address; told[i] = told[i][1:] {
				claim = &told[i][0]
			}
			c.claims = append(c.claims, claim)
		}
		c.subjects = append(c.subjects, s)
	}
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
	d.Write = !c.forbidden
	if c.forbidden {
		c.repeat()
	} else {
		for _, rule := range []Rule{RuleFence, RuleGate, RuleEmpty, RuleTrust} {
			for i := range c.sources {
				if g, acts := c.sources[i].guard(rule); acts {
					d.Guards = append(d.Guards, g)
				}
			}
		}
	}
	for i := range c.sources {
		w := &c.sources[i]
		if w.rule == RuleEmpty && w.holds > 0 && !c.forbidden {
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
	return c.memory, *d
}

// wake asks to be asked again at that time.
func (c *court) wake(at time.Time) {
	if at.After(c.now) && (c.decision.Wake.IsZero() || at.Before(c.decision.Wake)) {
		c.decision.Wake = at
	}
}

// Package verdict decides which endpoints one Service should list, from the reports of its sources, the status
// of its probes and the endpoints that its slices list now.
//
// It guarantees that a decision is a function of its arguments (no clock, no client, no randomness, no order of
// a map), that deciding again after the write changes nothing, and that silence, uncertainty or a mistake in our
// own settings take no endpoint away. It leaves probing, conversions and writing to others.
//
// To add a guard, give it a Rule and a place in guardOrder (decision.go), and call it in Decide. An input guard runs
// before applyTable and replaces a value that the table reads: a member, a source's report, a probe status. An
// output guard runs after it and replaces results. It returns a Guard for what it holds and passes it to note;
// what it must know next time goes into Memory. Add a script to testdata/histories, and give lab/mutants a way
// to break it.
package verdict

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Decide makes one decision. It neither keeps nor changes its arguments.
func Decide(memory Memory, input Input, now time.Time) (Memory, Decision) {
	e := newEvaluation(memory, input, now)
	defer e.releaseRows()
	e.evaluateTrust()
	e.dropDisallowedAddresses()
	e.summarizeProbes()
	if e.allCurrentDropped() {
		return e.repeatCurrent()
	}
	e.beginResync()

	// Input guards replace what the table reads.
	e.note(e.allowlistGuards()...)
	e.ignoreFailures()  // panic
	e.suppressSources() // initial sync, empty, trust
	e.assignOwners()

	e.applyTable()
	e.note(e.suppressionGuards()...)

	// Output guards replace what it returns.
	e.keepPendingDrains()         // panic
	e.note(e.keepLastEndpoints()) // floor
	e.endResync()
	e.note(e.limitDepartures()...) // shrink
	e.useLastResort()              // panic
	e.note(e.panicGuard())
	return e.finish()
}

// evaluation is a decision in progress.
type evaluation struct {
	input    Input
	now      time.Time
	previous Memory

	sources []sourceState // by name
	rows    []row         // by address

	memory   Memory
	decision Decision
	resyncs  bool // this decision makes a resync: absence counts, whatever shrink, floor and empty say
}

// row is one address that is current or reported. A guard that disagrees with a value replaces it here.
type row struct {
	address       netip.Addr
	current       *CurrentEndpoint // nil: not in the slices
	currentSource int              // the source that it is or was listed for; noSource: none of this target's
	members       []*Member        // by source: what it reports, unless its allowlist denies the address
	deniedBy      int              // a source whose allowlist denies it; noSource: none
	denyReason    string
	probe         Probe
	previous      addressMemory

	owner    int         // the source whose report counts; noSource: none
	reported State       // what the owner reports
	report   State       // as the table reads it
	status   ProbeStatus // of the probe, as the table reads it
	restored Conditions  // what panic gives back; zero: nothing

	result Endpoint
	memory addressMemory // for the next decision
}

// noSource stands where the index of a source could.
const noSource = -1

// conditions are the current ones; those of an endpoint that is not listed are all false.
func (r *row) conditions() Conditions {
	if r.current == nil {
		return notReady
	}
	return r.current.Conditions
}

func (r *row) fails() bool { return r.status == Failing || r.status == ignored }

// sourceState is one source and what this decision makes of it.
type sourceState struct {
	*Source

	distrust        string // why it is not trusted in itself; empty: it is
	suppressedBy    Rule   // the guard that keeps its report from counting; empty: it counts
	suppressReason  string
	suppressed      int  // endpoints that are kept for that
	confirmedEmpty  bool // it has nothing for this target
	selectorChanged bool // our own settings choose other members of it than before

	needsObservation bool // a newer observation would release something

	denied        int // addresses that its allowlist denies
	deniedExample netip.Addr
	deniedReason  string

	lastReports      map[netip.Addr]State // of Trusted; nil: not needed yet
	lastReportUsable bool                 // something of it could serve

	memory sourceMemory // for the next decision
}

func (s *sourceState) trusted() bool { return s.distrust == "" }

func newEvaluation(memory Memory, input Input, now time.Time) *evaluation {
	input.Limits.MaxStaleness = cmp.Or(max(0, input.Limits.MaxStaleness), DefaultMaxStaleness)
	input.Limits.EmptyThreshold = cmp.Or(max(0, input.Limits.EmptyThreshold), DefaultEmptyThreshold)
	input.Sources = slices.SortedStableFunc(slices.Values(input.Sources), func(a, b Source) int { return cmp.Compare(a.Name, b.Name) })
	e := &evaluation{input: input, now: now, previous: memory, sources: make([]sourceState, len(input.Sources))}
	for i := range input.Sources {
		s := &e.sources[i]
		s.Source = &input.Sources[i]
		s.memory = sourceMemory{name: s.Name, selector: s.Selector, emptyEpoch: s.Epoch, emptyLast: s.Observation}
		if m := memory.sourceNamed(s.Name); m != nil {
			s.selectorChanged = m.selector != s.Selector
			if m.emptyEpoch == s.Epoch {
				s.memory.emptyLast, s.memory.emptyCount, s.memory.emptyAt = m.emptyLast, m.emptyCount, m.emptyAt
			}
			if !m.window.opened.Before(input.LeadingSince) {
				s.memory.window = m.window
			}
		}
	}
	e.joinByAddress()
	return e
}

// joinByAddress makes one row of what is known of each address.
func (e *evaluation) joinByAddress() {
	addresses := make([]netip.Addr, 0, 2*len(e.input.Current))
	for i := range e.input.Current {
		addresses = append(addresses, e.input.Current[i].Address)
	}
	for i := range e.sources {
		if s := &e.sources[i]; s.EverSynced {
			for j := range s.Members {
				addresses = append(addresses, s.Members[j].Address)
			}
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	addresses = slices.Compact(addresses)
	e.rows = takeRows(len(addresses))
	members := make([]*Member, len(addresses)*len(e.sources))
	for i, a := range addresses {
		first := i * len(e.sources)
		e.rows[i] = row{
			address: a, members: members[first : first+len(e.sources)],
			currentSource: noSource, deniedBy: noSource, owner: noSource, status: notProbed,
		}
	}
	rowOf := func(a netip.Addr) *row {
		at, _ := slices.BinarySearchFunc(addresses, a, netip.Addr.Compare)
		return &e.rows[at]
	}
	for i := range e.input.Current {
		c := &e.input.Current[i]
		if r := rowOf(c.Address); r.current == nil || comparePreference(c, r.current) < 0 {
			r.current = c
		}
	}
	for i := range e.sources {
		if s := &e.sources[i]; s.EverSynced {
			for j := range s.Members {
				rowOf(s.Members[j].Address).members[i] = &s.Members[j]
			}
		}
	}
	for i := range e.rows {
		e.recall(&e.rows[i])
	}
}

// rowBuffers are rows of earlier decisions. On a target of 5,000 endpoints they are most of what a decision allocates,
// and one change took 11 times the CPU of one on 100 endpoints without them.
var rowBuffers = sync.Pool{New: func() any { return new([]row) }}

func takeRows(n int) []row {
	buffer := rowBuffers.Get().(*[]row)
	return slices.Grow((*buffer)[:0], n)[:n]
}

// releaseRows ends the evaluation. Nothing that Decide returns refers to a row.
func (e *evaluation) releaseRows() {
	rows := e.rows
	clear(rows)
	rowBuffers.Put(&rows) // not &e.rows, which would keep the evaluation
}

// recall adds what the probe and the last decision know of an address.
func (e *evaluation) recall(r *row) {
	if e.input.Limits.Probing {
		r.probe = e.input.Probes[r.address]
		r.status = r.probe.Status
	}
	if m := e.previous.address(r.address); m != nil {
		r.previous = *m
	}
	switch {
	case r.current != nil:
		r.currentSource = e.sourceNamed(r.current.sourceName())
		r.memory.resyncTakes = r.previous.resyncTakes
		if r.current.Conditions.Ready && r.previous.grantedBy == r.current.sourceName() {
			r.memory.grantedBy = r.previous.grantedBy
		}
	case r.previous.unlisted:
		r.currentSource = e.sourceNamed(r.previous.source)
	}
}

// comparePreference orders two endpoints of one address (one is written before the other is removed when it moves
// between slices): the one that serves more comes first.
func comparePreference(a, b *CurrentEndpoint) int {
	rank := func(c Conditions) int {
		switch {
		case c.Ready:
			return 0
		case c.Serving:
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(a.Conditions), rank(b.Conditions)), cmp.Compare(a.sourceName(), b.sourceName()))
}

func (e *evaluation) sourceNamed(name string) int {
	return slices.IndexFunc(e.sources, func(s sourceState) bool { return s.Name == name })
}

// Package verdict decides which endpoints one Service should list, from the reports of its sources, the status
// of its probes and the endpoints that its slices list now.
//
// It guarantees that a decision is a function of its arguments (no clock, no client, no randomness, no order of
// a map), that deciding again after the write changes nothing, and that silence, uncertainty, a broken
// prober or a mistake in our own settings take no endpoint away. It leaves probing, conversions and writing to others.
//
// To add a guard, give it a Rule and a place in GuardOrder (decision.go), and call it in Decide. An input guard runs
// before applyTable and replaces a value that the table reads: a member, a source's report, a probe status. It
// suppresses the report of a source by setting suppressedBy, unless another guard has; applyTable then counts what
// that holds, and suppressionGuards describes it. An output guard runs after applyTable and replaces results. Apart
// from suppression, a guard returns a Guard for what it holds, and Decide passes it to note. What changes by time
// alone needs wakeAt; what the guard must know next time goes into Memory.
//
// Its settings are part of Limits. Its rule needs a section of docs/design/decision-rules.md, a reason in
// package report and package events, and a line in docs/use/guards.md and docs/start/glossary.md. Add a
// script to testdata/histories, and give lab/mutants a way to break it.
package verdict

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// Decide makes one decision. It neither keeps nor changes its arguments.
func Decide(memory Memory, input Input, now time.Time) (Memory, Decision) {
	e := newEvaluation(memory, input, now)
	e.note(e.dropDisallowedAddresses()...)
	e.summarizeProbes()
	if e.allCurrentDropped() {
		return e.repeatCurrent()
	}

	// Input guards replace what the table reads.
	for i, family := range e.families() {
		e.panics[i] = e.ignoreFailures(family) // panic
	}
	e.suppressSources() // initial sync, empty, trust
	e.assignOwners()

	e.applyTable()
	expired := e.expireSources() // our own settings drop what the table lists
	e.note(expired...)
	e.note(e.holdBackTiers()...) // failover
	e.note(e.suppressionGuards()...)

	// Output guards replace what it returns.
	e.note(e.keepLastOfEachFamily()) // floor
	if len(expired) == 0 {
		e.note(e.expireSources()...) // floor may have found what replaces them
	}
	e.note(e.limitDepartures()...) // shrink
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

	panics [2]bool // by family: endpoints fail, and none passes

	memory   Memory
	decision Decision

	lastReason reason
	lastText   string // of lastReason
}

// row is one address that is current or reported. A guard that disagrees with a value replaces it here.
type row struct {
	address       netip.Addr
	current       *CurrentEndpoint // nil: not in the slices
	currentSource int              // the source that it is or was listed for; noSource: none of this target's
	members       []*Member        // by source: what it reports, unless its allowlist denies the address
	deniedBy      int              // a source whose allowlist denies it; noSource: none
	denied        string           // why
	probes        []probe.Status   // at all ports
	probe         *probe.Status    // at ports; noProbe: none
	previous      *addressMemory   // noMemory: none

	owner    int          // the source whose report counts; noSource: none
	reported State        // what the owner reports
	report   State        // as the table reads it
	status   probe.Health // of the probe, as the table reads it
	ports    Ports        // that it has or gets
	newPorts *Ports       // that its owner reports, if they are not those that it is listed with; nil: none
	moves    bool         // it gets newPorts
	left     probe.Health // if it moves: of the probe at the ports that it is listed with
	dropped  bool         // our own settings take it out of the slices: its source has expired, or its tier is not needed

	result *Endpoint     // in the decision
	memory addressMemory // for the next one
}

// They stand where nothing is known of an address.
var (
	noProbe  probe.Status
	noMemory addressMemory
)

// noSource stands where the index of a source could.
const noSource = -1

// conditions are the current ones; those of an endpoint that is not listed are all false.
func (r *row) conditions() Conditions {
	if r.current == nil {
		return notReady
	}
	return r.current.Conditions
}

func (r *row) fails() bool { return r.status == probe.Failing || r.status == uncorroborated }

// sourceState is one source and what this decision makes of it.
type sourceState struct {
	*Source

	distrust        string // why it is not trusted in itself; empty: it is
	suppressedBy    Rule   // the guard that keeps its report from counting; empty: it counts
	suppressReason  string
	confirmedEmpty  bool // it has nothing for this target
	selectorChanged bool // our own settings choose other members of it than before

	enoughBefore time.Time // enoughSince of the last decision

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
		lost := s.lostReason(&input, now)
		s.distrust = cmp.Or(lost, s.Unusable)
		s.memory = sourceMemory{name: s.Name, selector: s.Selector, emptyEpoch: s.Epoch, emptyLast: s.Observation}
		if at := slices.IndexFunc(memory.sources, func(m sourceMemory) bool { return m.name == s.Name }); at >= 0 {
			m := &memory.sources[at]
			s.selectorChanged = m.selector != s.Selector
			if m.emptyEpoch == s.Epoch {
				s.memory.emptyLast, s.memory.emptyCount, s.memory.emptyAt = m.emptyLast, m.emptyCount, m.emptyAt
			}
			if !m.window.opened.Before(input.LeadingSince) {
				s.memory.window = m.window
			}
			s.memory.lostSince, s.enoughBefore = m.lostSince, m.enoughSince
		}
		switch {
		case lost == "", s.Unusable != "":
			s.memory.lostSince = time.Time{}
		case s.memory.lostSince.IsZero():
			s.memory.lostSince = now
		}
	}
	e.joinByAddress()
	for i := range e.sources {
		w := &e.sources[i].memory.window
		w.begun = w.begun || e.hasLeft(e.sources[i].Name)
	}
	return e
}

// joinByAddress makes one row of what is known of each address, from lists that are sorted by it.
func (e *evaluation) joinByAddress() {
	current := sortByAddress(e.input.Current, func(c *CurrentEndpoint) netip.Addr { return c.Address })
	members, size := make([][]Member, len(e.sources)), len(current)
	for i := range e.sources {
		if s := &e.sources[i]; s.EverSynced {
			members[i] = sortByAddress(s.Members, func(m *Member) netip.Addr { return m.Address })
			size = max(size, len(members[i]))
		}
	}
	var probes []probe.Status
	if e.input.Limits.Probing {
		probes = e.input.Probes
	}
	memories := e.previous.addresses

	e.rows = make([]row, 0, size)
	var room []*Member // for the members of rows
	for a, more := lowestAddress(current, members); more; a, more = lowestAddress(current, members) {
		e.rows = append(e.rows, row{
			address:       a,
			probe:         &noProbe,
			previous:      &noMemory,
			currentSource: noSource,
			deniedBy:      noSource,
			owner:         noSource,
			status:        notProbed,
		})
		r := &e.rows[len(e.rows)-1]
		for ; len(current) > 0 && current[0].Address == a; current = current[1:] {
			if c := &current[0]; r.current == nil || comparePreference(c, r.current) < 0 {
				r.current = c
			}
		}
		if len(room) < len(members) {
			room = make([]*Member, size*len(members))
		}
		r.members, room = room[:len(members)], room[len(members):]
		for i := range members {
			for ; len(members[i]) > 0 && members[i][0].Address == a; members[i] = members[i][1:] {
				r.members[i] = &members[i][0]
			}
		}
		probes = skipTo(a, probes, func(p *probe.Status) netip.Addr { return p.Address })
		n := 0
		for n < len(probes) && probes[n].Address == a {
			n++
		}
		r.probes, probes = probes[:n], probes[n:]
		if memories = skipTo(
			a,
			memories,
			func(m *addressMemory) netip.Addr { return m.address },
		); len(memories) > 0 &&
			memories[0].address == a {
			r.previous = &memories[0]
		}
	}

	e.decision.Endpoints = make([]Endpoint, len(e.rows))
	for i := range e.rows {
		e.rows[i].result = &e.decision.Endpoints[i]
		e.recall(&e.rows[i])
	}
}

// sortByAddress returns the list sorted by address. Usually it is.
func sortByAddress[T any](list []T, address func(*T) netip.Addr) []T {
	for i := 1; i < len(list); i++ {
		if address(&list[i]).Less(address(&list[i-1])) {
			return slices.SortedStableFunc(slices.Values(list), func(a, b T) int { return address(&a).Compare(address(&b)) })
		}
	}
	return list
}

// skipTo returns the rest of a sorted list that begins at an address, or behind it.
func skipTo[T any](a netip.Addr, list []T, address func(*T) netip.Addr) []T {
	for len(list) > 0 && address(&list[0]).Less(a) {
		list = list[1:]
	}
	return list
}

// lowestAddress returns the first address of the sorted lists; false: they are empty.
func lowestAddress(current []CurrentEndpoint, members [][]Member) (lowest netip.Addr, found bool) {
	if len(current) > 0 {
		lowest, found = current[0].Address, true
	}
	for _, list := range members {
		if len(list) > 0 && (!found || list[0].Address.Less(lowest)) {
			lowest, found = list[0].Address, true
		}
	}
	return lowest, found
}

// recall adds what follows from the probe and the last decision.
func (e *evaluation) recall(r *row) {
	switch {
	case r.current != nil:
		r.currentSource, r.ports = e.sourceNamed(r.current.sourceName()), r.current.Ports
		if r.current.Conditions.Ready && r.previous.grantedBy == r.current.sourceName() && r.previous.grantedAt == r.ports {
			r.memory.grantedBy, r.memory.grantedAt = r.previous.grantedBy, r.ports
		}
	case r.previous.unlisted:
		r.currentSource = e.sourceNamed(r.previous.source)
	}
	if at := slices.IndexFunc(r.members, func(m *Member) bool { return m != nil && m.Unusable == "" }); r.current == nil && at >= 0 {
		r.ports = r.members[at].Ports
	}
	r.probe, r.status = e.probeAt(r, r.ports)
}

// probeAt returns the probe of an address at some ports, and its status.
func (e *evaluation) probeAt(r *row, ports Ports) (*probe.Status, probe.Health) {
	for i := range r.probes {
		if p := &r.probes[i]; p.Port == ports.Probe {
			return p, p.Health
		}
	}
	if e.input.Limits.Probing {
		return &noProbe, probe.Pending
	}
	return &noProbe, notProbed
}

// passing returns a probe of the address that passes, at whatever ports; nil: there is none.
func (r *row) passing() *probe.Status {
	at := slices.IndexFunc(r.probes, func(p probe.Status) bool { return p.Health == probe.Passing })
	if at < 0 {
		return nil
	}
	return &r.probes[at]
}

// families returns the rows of each address family that there is: a consumer uses one of them. Without probes there is one
// for all, because what makes floor let the last endpoint go, a source that is confirmed empty, is not known by family.
func (e *evaluation) families() [][]row {
	at := slices.IndexFunc(e.rows, func(r row) bool { return r.address.Is6() })
	if at <= 0 || !e.input.Limits.Probing {
		return [][]row{e.rows}
	}
	return [][]row{e.rows[:at], e.rows[at:]}
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

// Package verdict decides which endpoints one Service should list, from the reports of its sources, the status
// of its probes and the endpoints that its slices list now.
//
// It guarantees that a decision is a function of its arguments (no clock, no client, no randomness, no order of
// a map), that deciding again after the write changes nothing, and that silence, uncertainty, a broken
// prober or a mistake in our own settings take no endpoint away. It leaves probing, conversions and writing to others.
//
// To add a guard, give it a Rule and a place in GuardOrder (decision.go), and a message (texts.go). Write it as a function
// of the evaluation that returns the rows whose value it replaces, and call it in Decide, which replaces them: an input
// guard before applyTable, with a value that the table reads, and an output guard after it, with (*row).overrule or hold.
// One that keeps a source's report from counting is a case of suppression (sources.go). A guard calls note for what it
// holds, and wakeAt for what changes by time alone; what it must know next time goes into Memory.
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
//
// A guard is a function that returns the rows whose value it replaces. They are replaced here, and nowhere else.
func Decide(memory Memory, input Input, now time.Time) (Memory, Decision) {
	e := newEvaluation(memory, input, now)
	for i := range e.sources {
		replace(e.deniedAddresses(i), func(r *row) { r.deny(i, e.denyReason(r, i)) }) // allowlist
	}
	e.summarizeProbes()
	if e.isEveryCurrentDenied() {
		return e.repeatCurrent()
	}

	// Input guards replace what the table reads.
	families := e.families()
	for i := range families {
		replace(e.ignoredFailures(&families[i]), func(r *row) { r.status = uncorroborated }) // panic
	}
	for i := range e.sources {
		s := &e.sources[i]
		s.suppressedBy, s.suppressedFor = e.suppression(i) // initial sync, empty, trust
	}

	e.assignOwners()
	e.applyTable()

	// Our own settings drop what the table lists.
	expired := e.expiredEndpoints()
	replace(expired, (*row).expire)
	for tier := 1; tier <= e.lastTier(); tier++ {
		replace(e.standbyEndpoints(tier), (*row).standBy) // failover
	}
	e.noteSuppressions()

	// Output guards replace what it returns.
	kept, lastResort := e.lastEndpoints(families) // floor
	replace(kept, (*row).keepReady)
	replace(lastResort, func(r *row) { r.overrule(Hold, ready, RulePanic) })
	if len(expired) == 0 { // floor may have found what replaces them
		replace(e.expiredEndpoints(), (*row).expire)
	}
	for i := range e.sources {
		replace(e.excessDepartures(i), func(r *row) { r.hold(RuleShrink) }) // shrink
	}
	e.notePanic()
	return e.finish()
}

// replace changes the rows that a guard returned.
func replace(rows []*row, change func(*row)) {
	for _, r := range rows {
		change(r)
	}
}

// filter returns the rows for which a condition holds.
func filter(rows []*row, holds func(*row) bool) (found []*row) {
	for _, r := range rows {
		if holds(r) {
			found = append(found, r)
		}
	}
	return found
}

// evaluation is a decision in progress.
type evaluation struct {
	input    Input
	now      time.Time
	previous Memory

	sources []sourceState // by name
	rows    []*row        // by address

	memory   Memory
	decision Decision
}

// row is one address that is current or reported.
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

// answers reports whether its probe passes, or there is none.
func (r *row) answers() bool { return r.status == probe.Passing || r.status == notProbed }

// isReady reports whether the decision has it ready.
func (r *row) isReady() bool { return r.result.Listed && r.result.Conditions.Ready }

// passing returns a probe of the address that passes, at whatever ports; nil: there is none.
func (r *row) passing() *probe.Status {
	at := slices.IndexFunc(r.probes, func(p probe.Status) bool { return p.Health == probe.Passing })
	if at < 0 {
		return nil
	}
	return &r.probes[at]
}

// isReported reports whether a source for which a condition holds reports the address.
func (r *row) isReported(by func(source int, m *Member) bool) bool {
	for j, m := range r.members {
		if m != nil && by(j, m) {
			return true
		}
	}
	return false
}

// overrule replaces the result.
func (r *row) overrule(v Verdict, conditions Conditions, by Rule) {
	out := r.result
	out.Verdict, out.Conditions, out.Rule, out.Listed = v, conditions, by, v != Remove && v != StandBy
}

// hold replaces the result by what is current.
func (r *row) hold(by Rule) {
	r.overrule(Hold, r.current.Conditions, by)
	out := r.result
	out.Source, out.Zone, out.Hostname, out.Ports = r.current.sourceName(), r.current.Zone, r.current.Hostname, r.current.Ports
	if r.moves {
		out.Others = []Ports{r.ports}
	}
}

// sourceState is one source and what this decision makes of it.
type sourceState struct {
	*Source

	distrust         string   // why it is not trusted in itself; empty: it is
	suppressedBy     *message // of the guard that keeps its report from counting; nil: it counts
	suppressedFor    string   // why
	confirmedEmpty   bool     // it has nothing for this target
	lastReportUsable bool     // something of Trusted could serve

	previous sourceMemory // of the last decision
	memory   sourceMemory // for the next one
}

// family is the rows of one address family: a consumer uses one of them.
type family struct {
	rows   []*row
	panics bool // endpoints fail, and none passes
}

// families returns those that there are. Without probes it is one for all, because what makes floor let the last
// endpoint go, a source that is confirmed empty, is not known by family.
func (e *evaluation) families() []family {
	at := slices.IndexFunc(e.rows, func(r *row) bool { return r.address.Is6() })
	if at <= 0 || !e.input.Limits.Probing {
		return []family{{rows: e.rows}}
	}
	return []family{{rows: e.rows[:at]}, {rows: e.rows[at:]}}
}

func newEvaluation(memory Memory, input Input, now time.Time) *evaluation {
	input.Limits.MaxStaleness = cmp.Or(max(0, input.Limits.MaxStaleness), DefaultMaxStaleness)
	input.Limits.EmptyThreshold = cmp.Or(max(0, input.Limits.EmptyThreshold), DefaultEmptyThreshold)
	input.Sources = slices.SortedStableFunc(slices.Values(input.Sources), func(a, b Source) int { return cmp.Compare(a.Name, b.Name) })
	e := &evaluation{input: input, now: now, previous: memory, sources: make([]sourceState, len(input.Sources))}
	for i := range input.Sources {
		e.sources[i] = e.newSourceState(&input.Sources[i])
	}
	e.joinByAddress()
	for i := range e.sources {
		w := &e.sources[i].memory.window
		w.begun = w.begun || e.hasLeft(e.sources[i].Name)
	}
	return e
}

func (e *evaluation) newSourceState(source *Source) sourceState {
	source.Members, source.Trusted = sortByAddress(source.Members, (*Member).at), sortByAddress(source.Trusted, (*Member).at)
	s := sourceState{Source: source, previous: sourceMemory{selector: source.Selector}}
	if at := slices.IndexFunc(e.previous.sources, func(m sourceMemory) bool { return m.name == source.Name }); at >= 0 {
		s.previous = e.previous.sources[at]
	}
	s.memory = sourceMemory{name: source.Name, selector: source.Selector, empty: s.previous.empty}
	if s.previous.name == "" || s.previous.empty.epoch != source.Epoch {
		s.memory.empty = emptyCount{epoch: source.Epoch, observation: source.Observation}
	}
	if !s.previous.window.opened.Before(e.input.LeadingSince) {
		s.memory.window = s.previous.window
	}
	lost := source.lostReason(&e.input, e.now)
	if lost != "" && source.Unusable == "" {
		s.memory.lostSince = cmp.Or(s.previous.lostSince, e.now)
	}
	s.distrust = cmp.Or(lost, source.Unusable)
	return s
}

// joinByAddress makes one row of what is known of each address, from lists that are sorted by it.
func (e *evaluation) joinByAddress() {
	current, memories := sortByAddress(e.input.Current, (*CurrentEndpoint).at), e.previous.addresses
	members, size := make([][]Member, len(e.sources)), len(current)
	for i := range e.sources {
		if s := &e.sources[i]; s.EverSynced {
			members[i] = s.Members
			size = max(size, len(s.Members))
		}
	}
	var probes []probe.Status
	if e.input.Limits.Probing {
		probes = e.input.Probes
	}
	rows := make([]row, 0, size)
	var room []*Member // for the members of rows
	for a, found := lowestAddress(current, members); found; a, found = lowestAddress(current, members) {
		rows = append(rows, row{address: a, currentSource: noSource, deniedBy: noSource, owner: noSource, previous: &noMemory})
		r := &rows[len(rows)-1]
		r.current, current = takeFirst(a, current, (*CurrentEndpoint).at)
		if len(room) < len(members) {
			room = make([]*Member, size*len(members))
		}
		r.members, room = room[:len(members)], room[len(members):]
		for i := range members {
			r.members[i], members[i] = takeFirst(a, members[i], (*Member).at)
		}
		r.probes, probes = takeAddress(a, probes, func(p *probe.Status) netip.Addr { return p.Address })
		var known *addressMemory
		if known, memories = takeFirst(a, memories, (*addressMemory).at); known != nil {
			r.previous = known
		}
	}
	e.rows, e.decision.Endpoints = make([]*row, len(rows)), make([]Endpoint, len(rows))
	for i := range rows {
		e.rows[i], rows[i].result = &rows[i], &e.decision.Endpoints[i]
		e.recall(e.rows[i])
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

// takeAddress returns the items of a sorted list that have an address, and those behind it.
func takeAddress[T any](a netip.Addr, list []T, address func(*T) netip.Addr) (taken, rest []T) {
	for len(list) > 0 && address(&list[0]).Less(a) {
		list = list[1:]
	}
	n := 0
	for n < len(list) && address(&list[n]) == a {
		n++
	}
	return list[:n], list[n:]
}

// takeFirst returns the first of them instead; nil: there is none.
func takeFirst[T any](a netip.Addr, list []T, address func(*T) netip.Addr) (first *T, rest []T) {
	taken, rest := takeAddress(a, list, address)
	if len(taken) == 0 {
		return nil, rest
	}
	return &taken[0], rest
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
	r.result.Address = r.address
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
	if !e.input.Limits.Probing {
		return &noProbe, notProbed
	}
	if at := slices.IndexFunc(r.probes, func(p probe.Status) bool { return p.Port == ports.Probe }); at >= 0 {
		return &r.probes[at], r.probes[at].Health
	}
	return &noProbe, probe.Pending
}

func (e *evaluation) sourceNamed(name string) int {
	return slices.IndexFunc(e.sources, func(s sourceState) bool { return s.Name == name })
}

// Package roster joins what Kubernetes and the cloud say into one judged list of
// nodes. It promises that neither an error nor an odd answer ever shrinks the list,
// and that each address belongs to one node. It refuses to do anything: no client,
// no clock, no goroutine; events and time come in, changes and questions go out.
//
// Read it in the order of the flow: match.go (which machine is this node), address.go
// (which of its addresses count), claim.go (which node bears an address), look.go,
// listing.go and observe.go (how fresh is all this), status.go (what it is worth).
package roster

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Resolver is how a node's addresses are found.
type Resolver uint8

// The resolvers: by the cloud's NIC data, by the Node's own InternalIP, or by the address
// that is in the source's record.
const (
	ByCloud Resolver = iota + 1
	ByNodeAddress
	ByRecord
)

// Config is what a roster is judged by. All fields but the durations are mandatory.
type Config struct {
	Resolver Resolver
	CIDRs    []netip.Prefix // addresses outside of them do not count

	Poll time.Duration // between two listings of the cloud at rest; 0: 60s
	Pace time.Duration // between two observations in doubt; 0: 5s
	Rest time.Duration // between two looks at the source at rest; 0: 60s
}

// Roster is the list and what is known of its worth. It is not safe for concurrent
// use: one goroutine owns it.
type Roster struct {
	cfg Config

	members map[string]*member                // every node that the source has, eligible or not
	owners  map[netip.Addr]*member            // who bears an address: one address, one node
	waiting map[netip.Addr]map[string]*member // who would bear it if its owner let go
	dirty   map[string]*Node                  // names that changed since the last Take, as they were then

	eligible   int                // members that are not excluded
	unresolved map[string]*member // the eligible ones without any address
	odd        map[string]*member // the eligible ones whose machine's data cannot be read
	invalid    map[string]*member // the eligible ones whose last data from the source cannot be used
	states     [NotReady + 1]int
	omitted    [InvalidRecord + 1]int
	published  int

	cloud cloud // the last whole listing, indexed
	lists listings
	looks looks
	obs   observations

	flaw  string // what is wrong with a part of the source's word
	ports []Port

	membership, addresses Part
}

// member is a node of the source and what the roster made of it.
type member struct {
	Candidate

	everValid bool      // the source's data could be used once
	firstSeen time.Time // of this UID
	since     time.Time // in its state

	server string // the machine that it matched last
	odd    bool   // the machine's data could not be read
	want   pair   // what the last whole answer gives it
	held   pair   // what it bears
	waits  pair   // what it waits for

	heirOf [2]string // whom it has what it bears from, by family; empty: from nobody
	lost   [2]lost   // what it bore before another took it over, by family

	why    omission
	misses misses

	node *Node    // as published; nil: left out,
	left omission // and why
}

// lost is an address that a whole answer gave to another node.
type lost struct {
	address netip.Addr
	to      string
}

// omission is why a member is left out.
type omission struct {
	reason   Reason
	advice   string
	excluded bool // by Kubernetes' own word: not eligible at all
}

// New returns an empty roster.
func New(cfg Config) *Roster {
	cfg.Poll = cmp.Or(cfg.Poll, time.Minute)
	cfg.Pace = cmp.Or(cfg.Pace, 5*time.Second)
	cfg.Rest = cmp.Or(cfg.Rest, time.Minute)
	return &Roster{
		cfg:        cfg,
		members:    map[string]*member{},
		owners:     map[netip.Addr]*member{},
		waiting:    map[netip.Addr]map[string]*member{},
		dirty:      map[string]*Node{},
		unresolved: map[string]*member{},
		odd:        map[string]*member{},
		invalid:    map[string]*member{},
		obs:        observations{depth: 1},
	}
}

// Hear takes in what the source has told. An answer to a look comes after the news that
// the source had when the look ended.
func (r *Roster) Hear(now time.Time, n News) {
	for _, c := range n.Changed {
		r.Upsert(now, c)
	}
	for _, name := range n.Removed {
		r.Remove(now, name)
	}
	r.flaw, r.ports = plain(n.PartialError), publishablePorts(n.Ports)
	if !n.LastContact.IsZero() {
		r.heard(now, n.LastContact, n.Verified)
	}
	if n.Failure != "" {
		r.failed(n.Failure)
	}
	r.reckon(now)
}

// Upsert takes in a node as the source tells it, new or changed. A new UID under a
// known name is another node: nothing of the old one is kept. The candidate's
// slices and maps must not be changed afterwards.
func (r *Roster) Upsert(now time.Time, c Candidate) {
	m := r.members[c.Name]
	if c.Invalid == "" && c.Excluded == 0 {
		c.Invalid = contractProblem(c)
	}
	if c.Invalid != "" {
		c = spoiled(m, c)
	}
	if m != nil && m.UID != c.UID {
		r.drop(m)
		m = nil
	}
	if m == nil {
		m = &member{firstSeen: now, misses: misses{next: now}}
		r.members[c.Name] = m
	}
	if m.State != c.State {
		m.since = now
	}
	if m.ProviderID != c.ProviderID || m.SystemUUID != c.SystemUUID || m.Excluded != 0 {
		m.misses = misses{next: now} // worth a fresh try
	}
	if m.Excluded != 0 && c.Excluded == 0 {
		m.firstSeen = now
	}
	m.Candidate = c
	m.everValid = m.everValid || c.Invalid == ""
	r.resolve(m)
	r.settle(append([]*member{m}, r.waiters(m.held)...))
	r.plead(m)
	r.reckon(now)
}

// spoiled is what is left of a candidate whose record cannot be used: what was known of it.
func spoiled(m *member, c Candidate) Candidate {
	known := Candidate{Name: c.Name, State: NotReady}
	if m != nil {
		known = m.Candidate
	}
	known.Invalid, known.Steps = c.Invalid, c.Steps
	return known
}

// Remove takes out a node that the source tells as gone.
func (r *Roster) Remove(now time.Time, name string) {
	if m := r.members[name]; m != nil {
		r.drop(m)
		r.reckon(now)
	}
}

// drop forgets a member; its addresses go to whoever waits for them.
func (r *Roster) drop(m *member) {
	freed := m.held
	for _, a := range m.held.list() {
		delete(r.owners, a)
	}
	m.held, m.want = pair{}, pair{}
	r.wait(m, pair{})
	r.show(m, nil, omission{})
	r.count(m, -1)
	delete(r.members, m.Name)
	delete(r.unresolved, m.Name)
	delete(r.odd, m.Name)
	delete(r.invalid, m.Name)
	r.settle(r.waiters(freed))
}

// show publishes what became of a member, and keeps the counts.
func (r *Roster) show(m *member, node *Node, left omission) {
	before := m.node
	if before == node && m.left == left {
		return
	}
	if _, ok := r.dirty[m.Name]; !ok && before != node {
		r.dirty[m.Name] = before
	}
	r.count(m, -1)
	m.node, m.left = node, left
	r.count(m, +1)
	switch {
	case before == nil && node != nil:
		m.misses = misses{}
		r.obs.anomaly.Add(m.Name)
	case before != nil && node == nil:
		r.obs.anomaly.Remove(m.Name)
	}
	delete(r.unresolved, m.Name)
	if node == nil && m.Excluded == 0 {
		r.unresolved[m.Name] = m
	}
}

// count adds what is shown of a member to the counts, or takes it out of them.
func (r *Roster) count(m *member, by int) {
	switch {
	case m.node != nil:
		r.published += by
		r.eligible += by
		r.states[min(m.node.State, NotReady)] += by
	case m.left.reason != 0:
		r.omitted[min(m.left.reason, InvalidRecord)] += by
		if !m.left.excluded {
			r.eligible += by
		}
	}
}

// Take returns what changed since the last Take, sorted by name, each name once.
// Before the first word (Status.Publishable), and while it is withdrawn, there is nothing to
// take: what changed meanwhile comes with the Take after it.
func (r *Roster) Take() []Change {
	if len(r.dirty) == 0 || !r.told() {
		return nil
	}
	changes := make([]Change, 0, len(r.dirty))
	for _, name := range slices.Sorted(maps.Keys(r.dirty)) {
		before := r.dirty[name]
		var node *Node
		if m := r.members[name]; m != nil {
			node = m.node
		}
		if node == before || same(node, before) {
			continue
		}
		changes = append(changes, Change{Name: name, Node: node})
	}
	clear(r.dirty)
	return changes
}

// Nodes returns the whole roster, sorted by name. Its cost is that of the fleet.
func (r *Roster) Nodes() []*Node {
	var nodes []*Node
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		if n := r.members[name].node; n != nil {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// Omitted returns the Nodes that are left out, sorted by name. Its cost is that of the fleet.
func (r *Roster) Omitted() []Omission {
	var omitted []Omission
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		if m := r.members[name]; m.node == nil {
			omitted = append(omitted, Omission{
				Name: name, Reason: m.left.reason, Advice: m.left.advice, ProviderID: m.ProviderID,
			})
		}
	}
	return omitted
}

// Counts are numbers of nodes: in the roster by state, left out by reason.
type Counts struct {
	States  map[State]int
	Omitted map[Reason]int
}

// Counts returns how many nodes there are in each state, and how many are left out for
// each reason; every state and reason is there. Cheap.
func (r *Roster) Counts() Counts {
	c := Counts{States: map[State]int{}, Omitted: map[Reason]int{}}
	for s := Ready; s <= NotReady; s++ {
		c.States[s] = r.states[s]
	}
	for w := ControlPlane; w <= InvalidRecord; w++ {
		c.Omitted[w] = r.omitted[w]
	}
	return c
}

// same reports whether two published nodes tell the same, their time in a state included.
func same(a, b *Node) bool {
	return a != nil && b != nil && a.Since.Equal(b.Since) && a.Equal(*b)
}

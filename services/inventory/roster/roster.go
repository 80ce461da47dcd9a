// Package roster decides which nodes of a source are published, and at which addresses. It guarantees that
// neither an error nor invalid data ever removes a node, that a weaker identity of a node never overrides a
// stronger one, that each address belongs to one node, whatever the order of what was reported, and that an
// observation counts only if everything in it was requested after the last anomaly arose. It has no client, clock or
// goroutine: updates and the time come in, changes and requests go out. Package sourcetest tests sources.
//
// An update enters each stage once: Apply resolves what changed, claims the addresses, publishes the nodes that
// this affects, and reports the new counts to the observer, which decides what to request next. An observation is
// complete when the source was verified and, if addresses come from the cloud, a complete listing was started after
// that.
package roster

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Config is the configuration of a roster. Method and CIDRs are mandatory.
type Config struct {
	Method Method
	CIDRs  []netip.Prefix // addresses outside them are ignored

	ExportLabels []string // keys of the labels that are published of a node

	ListInterval    time.Duration // between listings without an anomaly; zero: 60s
	ConfirmInterval time.Duration // between observations that confirm an anomaly; zero: 5s
	VerifyInterval  time.Duration // between verifications without an anomaly; zero: 60s
}

// Roster has all nodes of the source. It is not safe for concurrent use.
type Roster struct {
	*observer

	resolver resolver
	assigner *assigner

	exportLabels []string

	members   map[string]*member  // every node of the source, eligible or not
	dirty     map[string]struct{} // names of nodes that may have changed since the last changes
	published map[string]*Node    // as of the last changes
}

// member is a node of the source and what was decided about it.
type member struct {
	Member
	holding

	everValid bool      // its data could be used once
	firstSeen time.Time // of this UID, as an eligible node

	resolved resolution
	serverID string // of the server that was found last
	misses   misses
	counted  kind
}

// Input is everything that arrives at once.
type Input struct {
	Source Update // what Take of the source returns; it replaces the source's errors
	// The result of a request, or nil. It is about the nodes that the source had when the request ended,
	// so it is applied after the source's update.
	Verification *VerificationResult
	Listing      *ListingResult
}

// New returns an empty roster.
func New(cfg Config) *Roster {
	return &Roster{
		resolver:     resolver{method: cfg.Method, cidrs: cfg.CIDRs, left: map[string]time.Time{}},
		assigner:     newAssigner(),
		observer:     newObserver(cfg),
		exportLabels: cfg.ExportLabels,
		members:      map[string]*member{}, dirty: map[string]struct{}{}, published: map[string]*Node{},
	}
}

// Apply applies an input and returns the nodes that changed since the last changes, sorted by name.
// While the roster is not publishable there are no changes: they come with the first input after that.
// Slices and maps of the input must not be modified afterwards.
func (r *Roster) Apply(now time.Time, input Input) []Change {
	r.applySource(now, input.Source)
	if input.Verification != nil {
		r.verificationDone(now, *input.Verification)
	}
	if input.Listing != nil {
		r.applyListing(now, *input.Listing)
	}
	return r.takeChanges(now)
}

func (r *Roster) applySource(now time.Time, update Update) {
	for i := range update.Changed {
		r.updateMember(now, r.keepLastValid(update.Changed[i]))
	}
	for _, name := range update.Removed {
		r.remove(now, name)
	}
	r.assigner.settle(r.decide)
	for _, n := range update.Changed {
		if m := r.members[n.Name]; m != nil {
			r.requestListingFor(m)
		}
	}
	if len(update.Changed)+len(update.Removed) > 0 {
		r.reevaluate(now)
	}
	r.updateSource(now, update)
}

// keepLastValid replaces a node whose data cannot be used by what is known of it.
func (r *Roster) keepLastValid(n Node) Node {
	if n.Invalid == "" && n.Excluded == 0 {
		n.Invalid = n.ContractProblem()
	}
	if n.Invalid == "" {
		n.Labels = r.exportedLabels(n.Labels)
		return n
	}
	known := Node{Name: n.Name, State: NotReady}
	if m := r.members[n.Name]; m != nil {
		known = *m.Node
	}
	known.Invalid, known.StateReason = n.Invalid, n.StateReason
	return known
}

// exportedLabels returns those labels that EXPORT_LABELS names.
func (r *Roster) exportedLabels(all map[string]string) map[string]string {
	var exported map[string]string
	for _, key := range r.exportLabels {
		if value, ok := all[key]; ok {
			if exported == nil {
				exported = make(map[string]string, len(r.exportLabels))
			}
			exported[key] = value
		}
	}
	return exported
}

// updateMember stores what the source reports about a node, and resolves it.
func (r *Roster) updateMember(now time.Time, n Node) {
	m := r.members[n.Name]
	if m != nil && m.UID != n.UID { // another node of this name gets nothing of the old one
		r.remove(now, n.Name)
		m = nil
	}
	if m == nil {
		m = &member{Member: Member{Node: &Node{}}, firstSeen: now, misses: misses{Next: now}}
		r.members[n.Name] = m
	}
	n.Addresses, n.Since = m.Addresses, m.Since
	if m.State != n.State {
		n.Since = now
	}
	if m.ProviderID != n.ProviderID || m.SystemUUID != n.SystemUUID || m.Excluded != 0 {
		m.misses = misses{Next: now} // another listing may find it
	}
	if m.Excluded != 0 && n.Excluded == 0 {
		m.firstSeen = now
	}
	m.Node = &n
	m.everValid = m.everValid || n.Invalid == ""
	r.resolveMember(m)
}

// resolveMember resolves a member by the last complete listing and claims what that gives it.
func (r *Roster) resolveMember(m *member) {
	m.resolved = resolution{}
	if m.Excluded == 0 && m.everValid {
		m.resolved = r.resolver.resolve(m.Node, m.firstSeen)
	}
	m.serverID = cmp.Or(m.resolved.serverID, m.serverID)
	r.assigner.claim(m, m.resolved.addresses)
}

// applyListing resolves all members by a complete listing before any of them gets an address: whether
// an owner gives way depends on what this listing gives it.
func (r *Roster) applyListing(now time.Time, result ListingResult) {
	r.listingDone(now, result)
	if result.Err != nil {
		return
	}
	r.resolver.setListing(result.Listing, result.StartedAt)
	for _, m := range r.members {
		r.resolveMember(m)
	}
	r.assigner.settle(r.decide)
	for _, m := range r.members {
		if m.isUnresolved() && !result.StartedAt.Before(m.firstSeen) && !m.resolved.isUnreadable { // invalid data confirms nothing
			r.addMiss(&m.misses, result.StartedAt)
			r.recount(m, m.kind())
		}
		r.requestListingFor(m)
	}
	r.reevaluate(now)
	r.completeListing(now, result.StartedAt)
}

// remove removes a node. Its addresses go to the nodes that claim them.
func (r *Roster) remove(now time.Time, name string) {
	m := r.members[name]
	if m == nil {
		return
	}
	r.recount(m, kind{})
	r.assigner.release(m)
	r.resolver.leave(m.serverID, now)
	if m.IsPublished() {
		r.anomalies.remove(name)
	}
	delete(r.members, name)
	r.dirty[name] = struct{}{}
}

// isUnresolved reports whether the member is eligible and has no address.
func (m *member) isUnresolved() bool { return m.Excluded == 0 && !m.IsPublished() }

// requestListingFor requests a listing if an eligible node has no address.
func (r *Roster) requestListingFor(m *member) {
	if m.isUnresolved() {
		r.requestListing(m.misses.Next)
	}
}

// decide publishes or omits a member by what was resolved and assigned.
func (r *Roster) decide(m *member) {
	n := *m.Node
	n.Addresses, n.ServerID, n.Omission = m.assigned.list(), m.serverID, m.resolved.omission
	contested, owner := r.assigner.contested(m)
	switch {
	case m.Excluded != 0:
		n.Omission = Omission{m.Excluded, m.ExcludedBy}
	case !n.IsPublished() && owner != m:
		n.Omission = Omission{SharedAddress, fmt.Sprintf("node %s has its address %s", owner.Name, contested)}
	case m.Invalid != "":
		n.Omission = Omission{InvalidRecord, m.Invalid}
	}
	switch was := m.IsPublished(); {
	case !was && n.IsPublished():
		m.misses = misses{}
		r.anomalies.add(m.Name)
	case was && !n.IsPublished():
		r.anomalies.remove(m.Name)
	}
	m.Node = &n
	r.recount(m, m.kind())
	r.dirty[m.Name] = struct{}{}
}

// Counts are the numbers of published nodes by state and of omitted nodes by reason. Every state and
// reason has an entry.
type Counts struct {
	States  map[NodeState]int
	Omitted map[OmissionReason]int

	eligible    int // not excluded
	published   int
	unconfirmed int // eligible and READY, without an address, and not yet confirmed to have none
	invalid     int // whose last data from the source cannot be used
	unreadable  int // whose server has invalid data in the cloud
}

// Counts returns the counts. Its cost does not depend on the number of nodes.
func (r *Roster) Counts() Counts {
	c := r.counts
	c.States, c.Omitted = maps.Clone(c.States), maps.Clone(c.Omitted)
	return c
}

// kind is what a member is counted as. The zero value counts as nothing.
type kind struct {
	isEligible, isUnconfirmed, isInvalid, isUnreadable bool

	state   NodeState      // zero: it is omitted
	omitted OmissionReason // zero: it is published
}

func (m *member) kind() kind {
	k := kind{isEligible: m.Excluded == 0, isUnreadable: m.resolved.isUnreadable}
	k.isInvalid = k.isEligible && m.Invalid != ""
	k.isUnconfirmed = m.isUnresolved() && m.State == Ready && !m.misses.Confirmed
	if m.IsPublished() {
		k.state = m.State
	} else {
		k.omitted = m.Omission.Reason
	}
	return k
}

// recount counts a member as another kind than before.
func (r *Roster) recount(m *member, k kind) {
	r.counts.add(m.counted, -1)
	r.counts.add(k, +1)
	m.counted = k
}

func (c *Counts) add(k kind, by int) {
	if k.state != 0 {
		c.States[k.state] += by
		c.published += by
	} else if k.omitted != 0 {
		c.Omitted[k.omitted] += by
	}
	addIf := func(is bool, number *int) {
		if is {
			*number += by
		}
	}
	addIf(k.isEligible, &c.eligible)
	addIf(k.isUnconfirmed, &c.unconfirmed)
	addIf(k.isInvalid, &c.invalid)
	addIf(k.isUnreadable, &c.unreadable)
}

func newCounts() Counts {
	c := Counts{States: map[NodeState]int{}, Omitted: map[OmissionReason]int{}}
	for s := Ready; s <= NotReady; s++ {
		c.States[s] = 0
	}
	for reason := ControlPlane; reason <= InvalidRecord; reason++ {
		c.Omitted[reason] = 0
	}
	return c
}

// Add adds the numbers of another roster.
func (c *Counts) Add(o Counts) {
	if c.States == nil {
		*c = newCounts()
	}
	for state, n := range o.States {
		c.States[state] += n
	}
	for reason, n := range o.Omitted {
		c.Omitted[reason] += n
	}
}

// Change is the new state of one node; Node is nil if it is no longer published.
type Change struct {
	Name string
	Node *Node
}

// takeChanges returns the nodes that changed since the last call, each once.
func (r *Roster) takeChanges(now time.Time) []Change {
	if len(r.dirty) == 0 || !r.isPublishable() {
		return nil
	}
	var changes []Change
	for _, name := range slices.Sorted(maps.Keys(r.dirty)) {
		var node *Node
		m, old := r.members[name], r.published[name]
		if m != nil && m.IsPublished() {
			node = m.Node
		}
		if node == nil && old == nil || node != nil && old != nil && node.looksLike(old) {
			continue
		}
		if m != nil {
			m.Previous, m.ChangedAt = old, now
		}
		if node != nil {
			r.published[name] = node
		} else {
			delete(r.published, name)
		}
		changes = append(changes, Change{Name: name, Node: node})
	}
	clear(r.dirty)
	return changes
}

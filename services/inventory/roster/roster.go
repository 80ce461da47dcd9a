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
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Config is the configuration of a roster. Method and CIDRs are mandatory; zero intervals stand for the
// defaults of the observer.
type Config struct {
	Method Method
	CIDRs  []netip.Prefix // addresses outside them are ignored

	ExportLabels []string // keys of the labels that are published of a node

	ListInterval, ConfirmInterval, VerifyInterval time.Duration
}

// Roster has all nodes of the source. It is not safe for concurrent use.
type Roster struct {
	resolver Resolver
	assigner *assigner
	observer *observer

	exportLabels []string

	members map[string]*member // every node of the source, eligible or not
	pending map[string]*Node   // nodes that changed since the last changes, as they were then

	unresolved map[string]*member // the eligible ones without an address
	unreadable map[string]*member // the eligible ones whose server has invalid data
	invalid    map[string]*member // the eligible ones whose last data from the source cannot be used

	eligible, published int
	states              [NotReady + 1]int
	omitted             [InvalidRecord + 1]int
}

// member is a node of the source and what was decided about it.
type member struct {
	Member

	everValid  bool      // its data could be used once
	firstSeen  time.Time // of this UID
	stateSince time.Time

	resolved resolution
	serverID string // of the server that was found last
	misses   misses

	eligible bool // as counted
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
		resolver: Resolver{Method: cfg.Method, CIDRs: cfg.CIDRs},
		assigner: newAssigner(),
		observer: newObserver(observerConfig{
			UsesCloud: cfg.Method == ByCloud, ListInterval: cfg.ListInterval,
			ConfirmInterval: cfg.ConfirmInterval, VerifyInterval: cfg.VerifyInterval,
		}),
		exportLabels: cfg.ExportLabels,
		members:      map[string]*member{}, pending: map[string]*Node{},
		unresolved: map[string]*member{}, unreadable: map[string]*member{}, invalid: map[string]*member{},
	}
}

// Apply applies an update and returns the nodes that changed since the last changes, sorted by name.
// While the roster is not publishable there are no changes: they come with the first update after that.
// Slices and maps of the update must not be modified afterwards.
func (r *Roster) Apply(now time.Time, update Input) []Change {
	r.applySource(now, update.Source)
	if update.Verification != nil {
		r.observer.VerificationDone(now, *update.Verification)
	}
	if update.Listing != nil {
		r.applyListing(now, *update.Listing)
	}
	return r.takeChanges(now)
}

func (r *Roster) applySource(now time.Time, update Update) {
	changes := memberChanges{}
	var claims []claim
	for i := range update.Changed {
		c := r.keepLastValid(update.Changed[i])
		if m := r.members[c.Name]; m != nil && m.UID != c.UID { // another node of this name gets nothing of the old one
			r.claim(claims, changes)
			claims = nil
			r.remove(now, c.Name, changes)
		}
		claims = append(claims, r.updateMember(now, c))
	}
	r.claim(claims, changes)
	for _, c := range update.Changed {
		r.requestListing(r.members[c.Name])
	}
	for _, name := range update.Removed {
		r.remove(now, name, changes)
	}
	if len(update.Changed)+len(update.Removed) > 0 {
		r.observer.SetCounts(now, r.counts(), changes)
	}
	r.observer.UpdateSource(now, update)
}

// keepLastValid replaces a candidate whose data cannot be used by what is known of the node.
func (r *Roster) keepLastValid(c Node) Node {
	if c.Invalid == "" && c.Excluded == 0 {
		c.Invalid = c.ContractProblem()
	}
	if c.Invalid == "" {
		return c
	}
	known := Node{Name: c.Name, State: NotReady}
	if m := r.members[c.Name]; m != nil {
		known = *m.Node
	}
	known.Invalid, known.StateReason = c.Invalid, c.StateReason
	return known
}

// updateMember stores a candidate, resolves it and returns its claim.
func (r *Roster) updateMember(now time.Time, c Node) claim {
	m := r.members[c.Name]
	if m == nil {
		m = &member{Member: Member{Node: &Node{}}, firstSeen: now, misses: misses{Next: now}}
		r.members[c.Name] = m
	}
	if m.State != c.State {
		m.stateSince = now
	}
	if m.ProviderID != c.ProviderID || m.SystemUUID != c.SystemUUID || m.Excluded != 0 {
		m.misses = misses{Next: now} // another listing may find it
	}
	if m.Excluded != 0 && c.Excluded == 0 {
		m.firstSeen = now
	}
	m.Node = &c
	m.everValid = m.everValid || c.Invalid == ""
	return r.resolveMember(m)
}

// resolveMember resolves a member by the last complete listing and returns its claim.
func (r *Roster) resolveMember(m *member) claim {
	m.resolved = resolution{}
	if m.Excluded == 0 && m.everValid {
		m.resolved = r.resolver.Resolve(m.Node, m.firstSeen)
	}
	m.serverID = cmp.Or(m.resolved.ServerID, m.serverID)
	isInvalid := m.Invalid != "" && m.Excluded == 0
	if isInvalid {
		m.resolved.Omission = Omission{Reason: InvalidRecord, Message: m.Invalid}
	}
	setMember(r.unreadable, m, m.resolved.Unreadable)
	setMember(r.invalid, m, isInvalid)
	return claim{Node: m.Name, State: m.State, Addresses: m.resolved.Addresses, Excluded: m.Excluded != 0}
}

// applyListing resolves all members by a complete listing before any of them claims an address: whether
// an owner gives way depends on what this listing gives it.
func (r *Roster) applyListing(now time.Time, result ListingResult) {
	r.observer.ListingDone(now, result)
	if result.Err != nil {
		return
	}
	r.resolver.SetListing(result.Listing, result.StartedAt)
	claims := make([]claim, 0, len(r.members))
	for _, m := range r.members {
		claims = append(claims, r.resolveMember(m))
	}
	changes := memberChanges{}
	r.claim(claims, changes)
	for _, m := range r.unresolved {
		if !result.StartedAt.Before(m.firstSeen) && !m.resolved.Unreadable { // invalid data confirms nothing
			r.observer.AddMiss(&m.misses, result.StartedAt)
		}
		r.requestListing(m)
	}
	r.observer.SetCounts(now, r.counts(), changes)
	r.observer.CompleteListing(now, result.StartedAt)
}

// claim applies claims and publishes the members that they affect.
func (r *Roster) claim(claims []claim, changes memberChanges) {
	if len(claims) > 0 {
		r.publishAll(r.assigner.Claim(claims), changes)
	}
}

// remove removes a node. Its addresses go to the nodes that contend for them.
func (r *Roster) remove(now time.Time, name string, changes memberChanges) {
	m := r.members[name]
	if m == nil {
		return
	}
	r.setPublished(m, nil, Omission{}, changes)
	r.resolver.Leave(m.serverID, now)
	delete(r.members, name)
	for _, set := range []map[string]*member{r.unresolved, r.unreadable, r.invalid} {
		delete(set, name)
	}
	r.publishAll(r.assigner.Release(name), changes)
}

// requestListing requests a listing if an eligible node has no address.
func (r *Roster) requestListing(m *member) {
	if m.Published == nil && m.Excluded == 0 {
		r.observer.RequestListing(m.misses.Next)
	}
}

func (r *Roster) counts() observerCounts {
	c := observerCounts{
		Eligible: r.eligible, Published: r.published, Ready: r.states[Ready],
		Invalid: len(r.invalid), Unreadable: len(r.unreadable),
	}
	for _, m := range r.unresolved {
		if m.State == Ready && !m.misses.Confirmed {
			c.Unresolved++
		}
	}
	return c
}

// NextActions returns the requests to send now, each of which must be answered once, and when to call it again.
func (r *Roster) NextActions(now time.Time) Actions { return r.observer.NextActions(now) }

// Status returns the status at this time.
func (r *Roster) Status(now time.Time) Status { return r.observer.Status(now) }

// setMember adds a member to a set or removes it.
func setMember(set map[string]*member, m *member, in bool) {
	if in {
		set[m.Name] = m
	} else {
		delete(set, m.Name)
	}
}

// takeChanges returns the nodes that changed since the last call, each once.
func (r *Roster) takeChanges(now time.Time) []Change {
	if len(r.pending) == 0 || !r.observer.Publishable() {
		return nil
	}
	changes := make([]Change, 0, len(r.pending))
	for _, name := range slices.Sorted(maps.Keys(r.pending)) {
		var node *Node
		m, old := r.members[name], r.pending[name]
		if m != nil {
			node = m.Published
		}
		if equalNodes(node, old) {
			continue
		}
		if m != nil {
			m.Previous, m.ChangedAt = old, now
		}
		changes = append(changes, Change{Name: name, Node: node})
	}
	clear(r.pending)
	return changes
}

// Package deltaset keeps a set of entries, its digest and its most recent changes, so that a
// reader can catch up from any earlier position. It guarantees that one Delta takes a reader from
// any position to the current set, and that an idle reader costs nothing. It does not know its
// readers or what its entries mean, and it has no queue, no client and no clock. Both components
// serve their streams from it, by the rules in slicefeed.inventory.v1.
package deltaset

import (
	"cmp"
	"maps"
	"slices"
)

// Window is the largest number of changes that a reader may lag behind and still resume by its cursor (rule R6).
const Window = 4096

// Entry is a member of a set. Entries are immutable.
type Entry interface {
	// Identity returns the entry's group, its key and the fingerprint of its content. No two groups
	// share a key.
	Identity() (group, key string, fingerprint Digest)
}

// Position identifies a state of a set, or of the part that a filter selects: a cursor and the
// digest at it.
type Position struct {
	Epoch    string
	Revision uint64
	Digest   Digest
}

// Delta takes a reader to the current set.
type Delta[E Entry] struct {
	At    Position // the position that it leads to
	Count int      // entries in the set at that position

	Reset   bool     // Upserts is the complete set
	Upserts []E      // sorted by group and key; shared between readers, so read only
	Removed []string // keys, sorted
}

// Empty reports whether the delta has no changes.
func (d Delta[E]) Empty() bool { return !d.Reset && d.Size() == 0 }

// Size is the number of upserts and removals.
func (d Delta[E]) Size() int { return len(d.Removed) + len(d.Upserts) }

// Filter reports whether a reader sees a group; nil selects every group.
type Filter func(group string) bool

// Set holds entries and their recent changes. It is not safe for concurrent use.
//
// Entries are grouped, so that a reader of a few groups costs no more than those groups. A Set keeps
// nothing per filter: it derives the digest of an earlier position by undoing the recent changes.
type Set[E Entry] struct {
	epoch    string
	groups   map[string]*group[E]
	revision uint64
	least    int
	window   int
	size     int      // number of entries
	peak     int      // the largest size so far
	recent   []change // the last changes, up to twice as many as keep says
}

type group[E Entry] struct {
	entries map[string]E
	digest  Digest
	sorted  []E // entries by key, built on demand; nil: out of date
}

// change records enough to find the entry's current state, to know whether a reader from before the
// change has the entry, and to restore the digest from before it.
type change struct {
	group, key string
	existed    bool   // the entry was in the set before the change
	xor        Digest // difference between the digests before and after
}

// New returns an empty set. The epoch must be unique, because a cursor does not distinguish two sets
// of one epoch. The set keeps as many changes as it had entries, but at least and at most these: to a reader that lags
// by more, the whole set costs no more than its changes.
func New[E Entry](epoch string, least, window int) *Set[E] {
	return &Set[E]{epoch: epoch, groups: map[string]*group[E]{}, least: least, window: window}
}

// Get returns the entry of a key in a group.
func (s *Set[E]) Get(groupName, key string) (entry E, ok bool) {
	if g := s.groups[groupName]; g != nil {
		entry, ok = g.entries[key]
	}
	return entry, ok
}

// Put adds an entry or replaces the one with its key, and reports whether the fingerprint changed.
func (s *Set[E]) Put(e E) bool {
	groupName, key, fingerprint := e.Identity()
	g := s.groups[groupName]
	if g == nil {
		g = &group[E]{entries: map[string]E{}}
		s.groups[groupName] = g
	}
	prev, existed := g.entries[key]
	g.entries[key] = e
	g.sorted = nil
	xor := fingerprint
	if existed {
		_, _, old := prev.Identity()
		if old == fingerprint {
			return false // only unpublished content differs
		}
		xor.XOR(old)
	} else {
		s.size++
		s.peak = max(s.peak, s.size)
	}
	s.recordChange(g, change{group: groupName, key: key, existed: existed, xor: xor})
	return true
}

// Remove deletes an entry and reports whether it existed.
func (s *Set[E]) Remove(groupName, key string) bool {
	g := s.groups[groupName]
	if g == nil {
		return false
	}
	prev, existed := g.entries[key]
	if !existed {
		return false
	}
	delete(g.entries, key)
	g.sorted = nil
	s.size--
	_, _, old := prev.Identity()
	s.recordChange(g, change{group: groupName, key: key, existed: true, xor: old})
	if len(g.entries) == 0 {
		delete(s.groups, groupName)
	}
	return true
}

// Replace makes these the entries of a group.
func (s *Set[E]) Replace(groupName string, entries []E) {
	stays := map[string]bool{}
	for _, e := range entries {
		_, key, _ := e.Identity()
		stays[key] = true
		s.Put(e)
	}
	if g := s.groups[groupName]; g != nil {
		for _, key := range slices.Sorted(maps.Keys(g.entries)) {
			if !stays[key] {
				s.Remove(groupName, key)
			}
		}
	}
}

func (s *Set[E]) recordChange(g *group[E], c change) {
	g.digest.XOR(c.xor)
	s.revision++
	s.recent = append(s.recent, c)
	if keep := s.keep(); len(s.recent) >= 2*keep {
		s.recent = slices.Clone(s.recent[len(s.recent)-keep:])
	}
}

// keep is how many of the last changes a reader may lag behind.
func (s *Set[E]) keep() int { return min(max(s.peak, s.least), s.window) }

// Epoch returns the epoch that New was given.
func (s *Set[E]) Epoch() string { return s.epoch }

// Revision is the number of changes so far.
func (s *Set[E]) Revision() uint64 { return s.revision }

// Since returns the delta from a position to the current set, within a filter; a nil position means
// that the reader has nothing. It depends on the position alone, so a slow reader skips
// intermediate states (rule R10).
func (s *Set[E]) Since(from *Position, filter Filter) Delta[E] {
	d := Delta[E]{At: Position{Epoch: s.epoch, Revision: s.revision}}
	for name, g := range s.groups {
		if filter == nil || filter(name) {
			d.At.Digest.XOR(g.digest)
			d.Count += len(g.entries)
		}
	}
	if from != nil && from.Digest == d.At.Digest { // rule R5
		return d
	}
	if changes := s.changesSince(from, d.At.Digest, filter); changes != nil { // rule R6
		d.Upserts, d.Removed = s.newestStates(changes, filter)
		return d
	}
	d.Reset, d.Upserts = true, s.sortedEntries(filter) // rule R7
	return d
}

// changesSince returns the changes since a position; nil: it is none of this set, or they are not kept. The digest is
// the current one.
func (s *Set[E]) changesSince(from *Position, digest Digest, filter Filter) []change {
	if from == nil || from.Epoch != s.epoch || from.Revision >= s.revision {
		return nil
	}
	lag := s.revision - from.Revision
	if lag > uint64(min(len(s.recent), s.keep())) {
		return nil
	}
	changes := s.recent[len(s.recent)-int(lag):]
	for _, c := range changes {
		if filter == nil || filter(c.group) {
			digest.XOR(c.xor)
		}
	}
	if digest != from.Digest {
		return nil
	}
	return changes
}

func (s *Set[E]) newestStates(changes []change, filter Filter) (upserts []E, removed []string) {
	seen := map[string]struct{}{}
	for _, c := range changes {
		if filter != nil && !filter(c.group) {
			continue
		}
		if _, ok := seen[c.key]; ok {
			continue
		}
		seen[c.key] = struct{}{}
		if e, ok := s.Get(c.group, c.key); ok {
			upserts = append(upserts, e)
		} else if c.existed { // the reader never saw an entry that was added and removed since
			removed = append(removed, c.key)
		}
	}
	slices.SortFunc(upserts, compareEntries)
	slices.Sort(removed)
	return upserts, removed
}

// sortedEntries returns the selected entries. Each group is sorted once per change, not once per reader.
func (s *Set[E]) sortedEntries(filter Filter) []E {
	var lists [][]E
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[name]
		if filter != nil && !filter(name) {
			continue
		}
		if g.sorted == nil {
			g.sorted = slices.AppendSeq(make([]E, 0, len(g.entries)), maps.Values(g.entries))
			slices.SortFunc(g.sorted, compareEntries)
		}
		lists = append(lists, g.sorted)
	}
	if len(lists) == 1 {
		return lists[0]
	}
	return slices.Concat(lists...)
}

func compareEntries[E Entry](a, b E) int {
	groupA, keyA, _ := a.Identity()
	groupB, keyB, _ := b.Identity()
	return cmp.Or(cmp.Compare(groupA, groupB), cmp.Compare(keyA, keyB))
}

// Package ledger keeps what readers are told: a set that checks itself by a digest, and what
// changed in it of late. It promises that any reader, from wherever it comes, is led to the
// present set in one answer, and that no reader costs it anything between two questions. It
// refuses to know its readers, what its entries mean and what they are worth: no queue, no
// client, no clock. Both halves tell from it, by the rules of slicefeed.inventory.v1.
package ledger

import (
	"cmp"
	"maps"
	"slices"
)

// Window is how many changes back a reader can resume by its cursor (rule R6).
const Window = 4096

// Entry is a member of a set. Entries are immutable.
type Entry interface {
	// Identity says which group of the set the entry is in, what it is known by there, and what
	// it says, as a fingerprint. Keys of different groups differ.
	Identity() (group, key string, fingerprint Digest)
}

// Position is a state of a set, or of a selection of it: a cursor and the digest there.
type Position struct {
	Epoch    string
	Revision uint64
	Digest   Digest
}

// Answer is what leads a reader to the present set.
type Answer[E Entry] struct {
	At    Position // where it leads to
	Count int      // entries in the set there

	Reset   bool     // what follows is the whole set
	Upserts []E      // sorted by group and key; shared between readers, not to be altered
	Removed []string // keys, sorted
}

// Empty reports whether the set did not change.
func (a Answer[E]) Empty() bool { return !a.Reset && a.Size() == 0 }

// Size is how many entries the answer tells of.
func (a Answer[E]) Size() int { return len(a.Removed) + len(a.Upserts) }

// Selection says which groups a reader is told of; nil: all of them.
type Selection func(group string) bool

// Set is the set and its changes of late. It is not safe for concurrent use.
//
// Its entries are in groups, so that a reader who is told of a few of them costs what those cost.
// Nothing is kept of a selection: its digest of before is worked out backwards from the changes.
type Set[E Entry] struct {
	epoch    string
	groups   map[string]*group[E]
	revision uint64
	recent   []change // the window; that which led to revision r is at r modulo its length
}

type group[E Entry] struct {
	entries map[string]E
	digest  Digest
	sorted  []E // the entries by key, made when asked for; nil: not made since the last change
}

// change is what is kept of one: enough to find the newest state of the entry, whether
// a reader from before knows it, and what digest its set had.
type change struct {
	group, key string
	had        bool   // the set had an entry of this key before
	by         Digest // what the digest was altered by
}

// New returns the empty set. The epoch has to be new: two sets of one epoch would number
// different changes alike. The window is how many changes are kept, usually Window.
func New[E Entry](epoch string, window int) *Set[E] {
	return &Set[E]{epoch: epoch, groups: map[string]*group[E]{}, recent: make([]change, window)}
}

// Get returns an entry.
func (s *Set[E]) Get(in, key string) (entry E, ok bool) {
	if g := s.groups[in]; g != nil {
		entry, ok = g.entries[key]
	}
	return entry, ok
}

// Put takes an entry in, or replaces the one of its key. It is a change, and true, unless the
// fingerprint is as before.
func (s *Set[E]) Put(e E) bool {
	in, key, fingerprint := e.Identity()
	g := s.groups[in]
	if g == nil {
		g = &group[E]{entries: map[string]E{}}
		s.groups[in] = g
	}
	old, had := g.entries[key]
	g.entries[key] = e
	g.sorted = nil
	by := fingerprint
	if had {
		_, _, was := old.Identity()
		if was == fingerprint {
			return false // only what is not told is different
		}
		by.Toggle(was)
	}
	s.record(g, change{group: in, key: key, had: had, by: by})
	return true
}

// Remove takes an entry away, and reports whether there was one.
func (s *Set[E]) Remove(from, key string) bool {
	g := s.groups[from]
	if g == nil {
		return false
	}
	old, had := g.entries[key]
	if !had {
		return false
	}
	delete(g.entries, key)
	g.sorted = nil
	_, _, was := old.Identity()
	s.record(g, change{group: from, key: key, had: true, by: was})
	if len(g.entries) == 0 {
		delete(s.groups, from)
	}
	return true
}

func (s *Set[E]) record(g *group[E], c change) {
	g.digest.Toggle(c.by)
	s.revision++
	*s.change(s.revision) = c
}

func (s *Set[E]) change(revision uint64) *change { return &s.recent[revision%uint64(len(s.recent))] }

// Revision is the number of changes that there were.
func (s *Set[E]) Revision() uint64 { return s.revision }

// Since returns what leads a reader of a selection from a position to the present set; nil: from
// nothing. It depends on the position alone: readers are not known, so a slow one skips
// states and costs nothing meanwhile (rule R10).
func (s *Set[E]) Since(from *Position, selects Selection) Answer[E] {
	a := Answer[E]{At: Position{Epoch: s.epoch, Revision: s.revision}}
	for name, g := range s.groups {
		if selects == nil || selects(name) {
			a.At.Digest.Toggle(g.digest)
			a.Count += len(g.entries)
		}
	}
	switch {
	case from != nil && from.Digest == a.At.Digest: // rule R5
	case from != nil && s.remembers(*from, a.At.Digest, selects): // rule R6
		a.Upserts, a.Removed = s.changesSince(from.Revision, selects)
	default: // rule R7
		a.Reset, a.Upserts = true, s.list(selects)
	}
	return a
}

// remembers reports whether a reader's set is one that there was, not too long ago.
func (s *Set[E]) remembers(p Position, digest Digest, selects Selection) bool {
	if p.Epoch != s.epoch || p.Revision >= s.revision || s.revision-p.Revision > uint64(len(s.recent)) {
		return false
	}
	for r := p.Revision + 1; r <= s.revision; r++ {
		if c := s.change(r); selects == nil || selects(c.group) {
			digest.Toggle(c.by)
		}
	}
	return digest == p.Digest
}

func (s *Set[E]) changesSince(revision uint64, selects Selection) (upserts []E, removed []string) {
	seen := map[string]struct{}{}
	for r := revision + 1; r <= s.revision; r++ {
		c := s.change(r)
		if selects != nil && !selects(c.group) {
			continue
		}
		if _, ok := seen[c.key]; ok {
			continue
		}
		seen[c.key] = struct{}{}
		if e, ok := s.Get(c.group, c.key); ok {
			upserts = append(upserts, e)
		} else if c.had { // one that came and went meanwhile is unknown to the reader
			removed = append(removed, c.key)
		}
	}
	slices.SortFunc(upserts, order)
	slices.Sort(removed)
	return upserts, removed
}

// list returns the entries selected. Each group is sorted once per change, however many ask.
func (s *Set[E]) list(selects Selection) []E {
	var lists [][]E
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[name]
		if selects != nil && !selects(name) {
			continue
		}
		if g.sorted == nil {
			g.sorted = slices.AppendSeq(make([]E, 0, len(g.entries)), maps.Values(g.entries))
			slices.SortFunc(g.sorted, order)
		}
		lists = append(lists, g.sorted)
	}
	if len(lists) == 1 {
		return lists[0]
	}
	return slices.Concat(lists...)
}

func order[E Entry](a, b E) int {
	groupA, keyA, _ := a.Identity()
	groupB, keyB, _ := b.Identity()
	return cmp.Or(cmp.Compare(groupA, groupB), cmp.Compare(keyA, keyB))
}

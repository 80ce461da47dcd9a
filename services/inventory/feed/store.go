package feed

import (
	"cmp"
	"slices"
	"sync"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Store is the set of one view. It may be used by any number of goroutines.
type Store struct {
	epoch string
	view  View

	mu       sync.Mutex
	entries  map[string]*Entry
	digest   Digest
	revision uint64
	recent   []change // the window; that which led to revision r is at r modulo its length
	status   roster.Status
	doubt    doubt
	sorted   []*Entry // the entries by name, made when asked for; nil: not made since the last change
	changed  chan struct{}
}

// change is what is kept of one: enough to find the newest state of the node, whether
// a reader from before knows it, and whether that reader's set was the one that we had.
type change struct {
	name   string
	had    bool   // the set had a node of this name before
	before Digest // of the set
}

// NewStore returns the empty set of a view. The epoch has to be new: two stores of one
// epoch would number different changes alike.
func NewStore(epoch string, view View) *Store { return newStore(epoch, view, Window) }

func newStore(epoch string, view View, window int) *Store {
	s := &Store{
		epoch: epoch, view: view,
		entries: map[string]*Entry{}, recent: make([]change, window), changed: make(chan struct{}),
	}
	s.doubt.observed()
	return s
}

// View returns the view that the store is of.
func (s *Store) View() View { return s.view }

// Apply takes in changes of the roster, at a cost that does not depend on the set's size.
// It reports whether the view changed, and whether it was left in doubt by that: then
// further complete observations are wanted. Call it before SetStatus with what was known at
// the same moment: an observation must never be told with a set from before it.
func (s *Store) Apply(changes []roster.Change) (changed, doubt bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.revision
	for _, c := range changes {
		if c.Node == nil || !s.view.selects(c.Node) {
			s.remove(c.Name)
		} else {
			s.put(c.Node)
		}
	}
	if s.revision == was {
		return false, false
	}
	s.broadcast()
	return true, s.doubt.standing()
}

func (s *Store) put(n *roster.Node) {
	e := &Entry{Node: n, Labels: s.view.pick(n)}
	e.Fingerprint = fingerprint(n, e.Labels)
	old := s.entries[n.Name]
	s.entries[n.Name] = e
	s.sorted = nil
	if old != nil && old.Fingerprint == e.Fingerprint {
		return // only what the view does not tell is different
	}
	s.record(n.Name, old != nil)
	if old == nil {
		s.doubt.came(n.Name)
	} else {
		s.digest.toggle(old.Fingerprint)
		s.ready(old, -1)
	}
	s.digest.toggle(e.Fingerprint)
	s.ready(e, +1)
}

func (s *Store) remove(name string) {
	old := s.entries[name]
	if old == nil {
		return
	}
	s.record(name, true)
	delete(s.entries, name)
	s.sorted = nil
	s.digest.toggle(old.Fingerprint)
	s.ready(old, -1)
	s.doubt.went(name)
}

func (s *Store) ready(e *Entry, by int) {
	if e.Node.State == roster.Ready {
		s.doubt.ready += by
	}
}

// record counts a change that is about to be made.
func (s *Store) record(name string, had bool) {
	s.revision++
	*s.change(s.revision) = change{name: name, had: had, before: s.digest}
}

func (s *Store) change(revision uint64) *change { return &s.recent[revision%uint64(len(s.recent))] }

// SetStatus takes in what the roster is worth. It reports doubt when the first word is
// given and the view is in doubt from the start.
func (s *Store) SetStatus(status roster.Status) (doubt bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.status
	s.status = status
	if status.Observation != old.Observation {
		s.doubt.observed()
	}
	if !SameWord(old, status) {
		s.broadcast()
	}
	return status.Told && !old.Told && s.doubt.standing()
}

func (s *Store) at() Position {
	return Position{Epoch: s.epoch, Revision: s.revision, Digest: s.digest}
}

// Changed returns a channel that is closed at the next change of the set or of the word
// that the status gives. Take it before Since, so that nothing falls in between.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Store) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Since returns what leads a reader from a position to the present set; nil: from nothing.
// It depends on the position alone: readers are not known, so a slow one skips states and
// costs nothing meanwhile (rule R10).
func (s *Store) Since(from *Position) Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Update{Status: s.status}
	if !s.status.Told {
		return u
	}
	u.Synced = true
	u.At = s.at()
	u.Count = len(s.entries)
	switch {
	case from != nil && from.Digest == s.digest: // rule R5
	case from != nil && s.remembers(*from): // rule R6
		u.Upserts, u.Removed = s.changesSince(from.Revision)
	default: // rule R7
		u.Reset, u.Upserts = true, s.list()
	}
	return u
}

// remembers reports whether a reader's set is one that this store had, not too long ago.
func (s *Store) remembers(p Position) bool {
	if p.Epoch != s.epoch || p.Revision >= s.revision || s.revision-p.Revision > uint64(len(s.recent)) {
		return false
	}
	return s.change(p.Revision+1).before == p.Digest
}

func (s *Store) changesSince(revision uint64) (upserts []*Entry, removed []string) {
	seen := make(map[string]struct{}, s.revision-revision)
	for r := revision + 1; r <= s.revision; r++ {
		c := s.change(r)
		if _, ok := seen[c.name]; ok {
			continue
		}
		seen[c.name] = struct{}{}
		if e := s.entries[c.name]; e != nil {
			upserts = append(upserts, e)
		} else if c.had { // one that came and went meanwhile is unknown to the reader
			removed = append(removed, c.name)
		}
	}
	slices.SortFunc(upserts, byName)
	slices.Sort(removed)
	return upserts, removed
}

// All returns the whole set as it is, also before the first word, then with Synced false.
func (s *Store) All() Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Update{
		At:    s.at(),
		Count: len(s.entries), Status: s.status, Synced: s.status.Told, Reset: true, Upserts: s.list(),
	}
}

// Revision returns the number of changes that there were.
func (s *Store) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// list returns the entries by name. It is made once per change, however many ask.
func (s *Store) list() []*Entry {
	if s.sorted == nil {
		s.sorted = make([]*Entry, 0, len(s.entries))
		for _, e := range s.entries {
			s.sorted = append(s.sorted, e)
		}
		slices.SortFunc(s.sorted, byName)
	}
	return s.sorted
}

func byName(a, b *Entry) int { return cmp.Compare(a.Node.Name, b.Node.Name) }

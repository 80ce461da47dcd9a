package feed

import (
	"sync"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// Store is the set of one view. It is safe for concurrent use.
type Store struct {
	view View

	mu            sync.Mutex
	set           *deltaset.Set[*Entry]
	status        source.Status
	statusVersion uint64 // see Update
	changed       chan struct{}

	// The last delta, so that only the first of many readers at the same position computes it.
	cacheValid  bool // false after a change of the set
	cachedFrom  Position
	cachedDelta deltaset.Delta[*Entry]
}

// NewStore returns the empty set of a view. No other store may have this epoch, because a cursor does
// not distinguish two stores of one epoch.
func NewStore(epoch string, view View) *Store {
	return NewStoreWithWindow(epoch, view, deltaset.Window)
}

// NewStoreWithWindow is NewStore with a window other than that of the contract: the number of changes
// that a reader may lag behind and still resume by its cursor.
func NewStoreWithWindow(epoch string, view View, window int) *Store {
	return &Store{view: view, set: deltaset.New[*Entry](epoch, window), changed: make(chan struct{})}
}

// View returns the view of the store.
func (s *Store) View() View { return s.view }

// Apply applies changes of the roster, and reports whether the view changed. Its cost does not depend on the size of
// the set. Call it before SetStatus with the status of the same moment: the number of an observation must never be
// published with an older set.
func (s *Store) Apply(changes []roster.Change) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.set.Revision()
	s.cacheValid, s.cachedDelta = false, deltaset.Delta[*Entry]{}
	for _, c := range changes {
		if c.Node == nil || !s.view.selects(c.Node) {
			s.set.Remove("", c.Name)
			continue
		}
		e := &Entry{Node: c.Node, Labels: s.view.exportedLabels(c.Node)}
		e.Fingerprint = fingerprint(c.Node, e.Labels)
		s.set.Put(e)
	}
	if s.set.Revision() == before {
		return false
	}
	s.wakeReaders()
	return true
}

// SetStatus sets the status of the roster.
func (s *Store) SetStatus(status source.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.status
	s.status = status
	s.statusVersion++
	if !SameStatus(old, status) {
		s.wakeReaders()
	}
}

// Changed returns a channel that is closed at the next change of the set or of the status, except for
// ages. Call it before Since, so that no change in between is missed.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Store) wakeReaders() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Since returns the update from a position to the current set; nil is the position of a reader without a
// set. The update depends on nothing else, so a slow reader skips the states in between and costs nothing
// until it reads (rule R10).
func (s *Store) Since(from *Position) Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Update{Status: s.status, StatusVersion: s.statusVersion, Synced: s.status.Publishable}
	switch {
	case !u.Synced: // the update has only a status
	case from == nil:
		u.Delta = s.set.Since(nil, nil)
	default:
		if !s.cacheValid || s.cachedFrom != *from {
			s.cacheValid, s.cachedFrom, s.cachedDelta = true, *from, s.set.Since(from, nil)
		}
		u.Delta = s.cachedDelta
	}
	return u
}

// Snapshot returns the complete set, even before the first publication, with Synced false.
func (s *Store) Snapshot() Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Update{Delta: s.set.Since(nil, nil), Status: s.status, StatusVersion: s.statusVersion, Synced: s.status.Publishable}
}

// Epoch identifies the store in cursors.
func (s *Store) Epoch() string { return s.set.Epoch() }

// Revision returns the number of changes of the set so far.
func (s *Store) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.Revision()
}

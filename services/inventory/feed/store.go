package feed

import (
	"sync"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Store is the set of one view. It may be used by any number of goroutines.
type Store struct {
	view View

	mu            sync.Mutex
	set           *deltaset.Set[*Entry]
	status        roster.Status
	statusVersion uint64 // see Update
	anomaly       roster.AnomalyDetector
	readyCount    int // nodes that are READY
	changed       chan struct{}

	// The last answer: of readers who are in step, the first alone costs what has changed.
	cached      bool // there is one, of the set as it is
	cachedFrom  Position
	cachedDelta deltaset.Delta[*Entry]
}

// NewStore returns the empty set of a view. The epoch has to be new: two stores of one
// epoch would number different changes alike.
func NewStore(epoch string, view View) *Store {
	return NewStoreWithWindow(epoch, view, deltaset.Window)
}

// NewStoreWithWindow is NewStore with another window than the contract's: so many changes back a reader
// can resume by its cursor.
func NewStoreWithWindow(epoch string, view View, window int) *Store {
	return &Store{view: view, set: deltaset.New[*Entry](epoch, window), changed: make(chan struct{})}
}

// View returns the view that the store is of.
func (s *Store) View() View { return s.view }

// Apply takes in changes of the roster, at a cost that does not depend on the set's size.
// It reports whether the view changed, and whether an anomaly arose by that: then further
// complete observations are wanted. Call it before SetStatus with what was known at the same
// moment: an observation must never be told with a set from before it.
func (s *Store) Apply(changes []roster.Change) (changed, anomaly bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.set.Revision()
	s.cached, s.cachedDelta = false, deltaset.Delta[*Entry]{}
	for _, c := range changes {
		if c.Node == nil || !s.view.selects(c.Node) {
			s.removeNode(c.Name)
		} else {
			s.putNode(c.Node)
		}
	}
	if s.set.Revision() == before {
		return false, false
	}
	s.wakeReaders()
	return true, s.detectAnomaly()
}

func (s *Store) putNode(n *roster.Node) {
	e := &Entry{Node: n, Labels: s.view.exportedLabels(n)}
	e.Fingerprint = fingerprint(n, e.Labels)
	old, existed := s.set.Get("", n.Name)
	if !s.set.Put(e) {
		return // only what the view does not tell is different
	}
	if existed {
		s.countReady(old, -1)
	} else {
		s.anomaly.Add(n.Name)
	}
	s.countReady(e, +1)
}

func (s *Store) removeNode(name string) {
	old, existed := s.set.Get("", name)
	if !existed {
		return
	}
	s.set.Remove("", name)
	s.countReady(old, -1)
	s.anomaly.Remove(name)
}

func (s *Store) countReady(e *Entry, by int) {
	if e.Node.State == roster.Ready {
		s.readyCount += by
	}
}

// detectAnomaly looks for anomalies of what clients are sent; before that there are none.
func (s *Store) detectAnomaly() bool {
	if !s.status.Told {
		s.anomaly.Forget()
		return false
	}
	return s.anomaly.Arose(s.readyCount)
}

// SetStatus takes in what the roster is worth. It reports whether an anomaly arose, as one does
// that is there when clients are first sent the set.
func (s *Store) SetStatus(status roster.Status) (anomaly bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.status
	s.status = status
	s.statusVersion++
	if status.Observation != old.Observation {
		s.anomaly.Observed()
	}
	if !SameStatus(old, status) {
		s.wakeReaders()
	}
	return s.detectAnomaly()
}

// Changed returns a channel that is closed at the next change of the set or of the word
// that the status gives. Take it before Since, so that nothing falls in between.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Store) wakeReaders() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Since returns what leads a reader from a position to the present set; nil: from nothing.
// It depends on the position alone: readers are not known, so a slow one skips states and
// costs nothing meanwhile (rule R10).
func (s *Store) Since(from *Position) Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Update{Status: s.status, StatusVersion: s.statusVersion, Synced: s.status.Told}
	switch {
	case !u.Synced:
	case from == nil:
		u.Delta = s.set.Since(nil, nil)
	default:
		if !s.cached || s.cachedFrom != *from {
			s.cached, s.cachedFrom, s.cachedDelta = true, *from, s.set.Since(from, nil)
		}
		u.Delta = s.cachedDelta
	}
	return u
}

// Snapshot returns the whole set as it is, also before the first word, then with Synced false.
func (s *Store) Snapshot() Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Update{Delta: s.set.Since(nil, nil), Status: s.status, StatusVersion: s.statusVersion, Synced: s.status.Told}
}

// Revision returns the number of changes that there were.
func (s *Store) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.Revision()
}

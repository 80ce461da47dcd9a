package feed

import (
	"sync"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Store is the set of one view. It may be used by any number of goroutines.
type Store struct {
	view View

	mu      sync.Mutex
	set     *deltaset.Set[*Entry]
	status  roster.Status
	word    uint64 // see Update
	anomaly roster.AnomalyDetector
	ready   int // nodes that are READY
	changed chan struct{}

	// The last answer: of readers who are in step, the first alone costs what has changed.
	led  bool // there is one, of the set as it is
	from Position
	last deltaset.Delta[*Entry]
}

// NewStore returns the empty set of a view. The epoch has to be new: two stores of one
// epoch would number different changes alike.
func NewStore(epoch string, view View) *Store { return NewStoreWithin(epoch, view, deltaset.Window) }

// NewStoreWithin is NewStore with another window than the contract's: so many changes back a reader
// can resume by its cursor.
func NewStoreWithin(epoch string, view View, window int) *Store {
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
	was := s.set.Revision()
	s.led, s.last = false, deltaset.Delta[*Entry]{}
	for _, c := range changes {
		if c.Node == nil || !s.view.selects(c.Node) {
			s.remove(c.Name)
		} else {
			s.put(c.Node)
		}
	}
	if s.set.Revision() == was {
		return false, false
	}
	s.broadcast()
	return true, s.anomalyArose()
}

func (s *Store) put(n *roster.Node) {
	e := &Entry{Node: n, Labels: s.view.pick(n)}
	e.Fingerprint = fingerprint(n, e.Labels)
	old, had := s.set.Get("", n.Name)
	if !s.set.Put(e) {
		return // only what the view does not tell is different
	}
	if had {
		s.countReady(old, -1)
	} else {
		s.anomaly.Add(n.Name)
	}
	s.countReady(e, +1)
}

func (s *Store) remove(name string) {
	old, had := s.set.Get("", name)
	if !had {
		return
	}
	s.set.Remove("", name)
	s.countReady(old, -1)
	s.anomaly.Remove(name)
}

func (s *Store) countReady(e *Entry, by int) {
	if e.Node.State == roster.Ready {
		s.ready += by
	}
}

// anomalyArose looks for anomalies of what clients are sent; before that there are none.
func (s *Store) anomalyArose() bool {
	if !s.status.Told {
		s.anomaly.Forget()
		return false
	}
	return s.anomaly.Arose(s.ready)
}

// SetStatus takes in what the roster is worth. It reports whether an anomaly arose, as one does
// that is there when clients are first sent the set.
func (s *Store) SetStatus(status roster.Status) (anomaly bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.status
	s.status = status
	s.word++
	if status.Observation != old.Observation {
		s.anomaly.Observed()
	}
	if !SameWord(old, status) {
		s.broadcast()
	}
	return s.anomalyArose()
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
	u := Update{Status: s.status, Word: s.word, Synced: s.status.Told}
	switch {
	case !u.Synced:
	case from == nil:
		u.Delta = s.set.Since(nil, nil)
	default:
		if !s.led || s.from != *from {
			s.led, s.from, s.last = true, *from, s.set.Since(from, nil)
		}
		u.Delta = s.last
	}
	return u
}

// All returns the whole set as it is, also before the first word, then with Synced false.
func (s *Store) All() Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Update{Delta: s.set.Since(nil, nil), Status: s.status, Word: s.word, Synced: s.status.Told}
}

// Revision returns the number of changes that there were.
func (s *Store) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.Revision()
}

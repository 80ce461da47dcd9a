package feed

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Stores are the stores of all views that were ever asked for, kept abreast of the roster.
type Stores struct {
	epoch string

	mu      sync.Mutex
	nodes   map[string]*roster.Node // the whole roster, for stores to come
	status  roster.Status
	stores  map[string]*Store // by the view's key
	changed chan struct{}
}

// NewStores returns the stores of a replica's life, which the epoch names: random, new at
// each start, at most 48 bytes.
func NewStores(epoch string) *Stores {
	return &Stores{
		epoch: epoch, nodes: map[string]*roster.Node{}, stores: map[string]*Store{},
		changed: make(chan struct{}),
	}
}

// For returns the store of a view. It stays for good: made anew within the epoch it would
// number other changes alike. There are as many as the list of clients ever had views.
func (s *Stores) For(view View) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := view.Key()
	store := s.stores[key]
	if store == nil {
		// Each view has an epoch of its own: a client whose view was altered has a cursor
		// that means nothing here, though it is the same life of the same replica.
		sum := sha256.Sum256([]byte(key))
		store = NewStore(s.epoch+"."+hex.EncodeToString(sum[:6]), view)
		all := make([]roster.Change, 0, len(s.nodes))
		for _, n := range s.sorted() {
			all = append(all, roster.Change{Name: n.Name, Node: n})
		}
		store.Apply(all)
		store.SetStatus(s.status)
		s.stores[key] = store
	}
	return store
}

// Apply gives changes of the roster to all stores, and reports whether an anomaly arose in any
// of them. Call it before SetStatus with what was known at the same moment.
func (s *Stores) Apply(changes []roster.Change) (anomaly bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		if c.Node == nil {
			delete(s.nodes, c.Name)
		} else {
			s.nodes[c.Name] = c.Node
		}
	}
	for _, store := range s.stores {
		_, arose := store.Apply(changes)
		anomaly = anomaly || arose
	}
	return anomaly
}

// SetStatus gives the roster's status to all stores, and reports whether an anomaly arose in any
// of them.
func (s *Stores) SetStatus(status roster.Status) (anomaly bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !SameWord(s.status, status) {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.status = status
	for _, store := range s.stores {
		anomaly = store.SetStatus(status) || anomaly
	}
	return anomaly
}

// Status returns the last status, and a channel that is closed when it gives another word.
func (s *Stores) Status() (roster.Status, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status, s.changed
}

// Outside returns the nodes of the roster that a view does not select, sorted by name.
func (s *Stores) Outside(view View) []*roster.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(s.sorted(), view.selects)
}

// Revisions is the number of changes that all views have seen together.
func (s *Stores) Revisions() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum uint64
	for _, store := range s.stores {
		sum += store.Revision()
	}
	return sum
}

func (s *Stores) sorted() []*roster.Node {
	all := make([]*roster.Node, 0, len(s.nodes))
	for _, n := range s.nodes {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b *roster.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

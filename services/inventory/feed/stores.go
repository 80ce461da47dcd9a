package feed

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// unusedTimeout is how long a store stays without a reader. It outlasts an upgrade or an outage of a
// writer: a reader that returns then gets what changed, and no reset.
const unusedTimeout = 10 * time.Minute

// Stores are the stores of the views that are read or were read lately, kept up to date with the
// roster.
type Stores struct {
	epoch string

	mu             sync.Mutex
	nodes          map[string]*roster.Node // the whole roster, for stores to come
	status         roster.Status
	stores         map[string]*sharedStore // by the view's key
	freed          uint64                  // stores so far
	totalRevisions uint64                  // see Revisions
	changed        chan struct{}
}

// sharedStore is a store and who reads it.
type sharedStore struct {
	*Store

	readers     int
	unusedSince time.Time // meaningful without readers
}

// NewStores returns the stores of a replica's life, which the epoch names: random, new at
// each start, at most 48 bytes.
func NewStores(epoch string) *Stores {
	return &Stores{
		epoch: epoch, nodes: map[string]*roster.Node{}, stores: map[string]*sharedStore{},
		changed: make(chan struct{}),
	}
}

// Acquire returns the store of a view for one reader, who releases it at the end.
func (s *Stores) Acquire(view View) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := view.Key()
	store := s.stores[key]
	if store == nil {
		store = &sharedStore{Store: s.newStore(view)}
		s.stores[key] = store
	}
	store.readers++
	return store.Store
}

// newStore makes the store of a view. Its epoch is its own: a client whose view was altered has a
// cursor that means nothing here, and a store that is made again numbers other changes than the
// one that was freed.
func (s *Stores) newStore(view View) *Store {
	sum := sha256.Sum256(append(binary.AppendUvarint(nil, s.freed), view.Key()...))
	store := NewStore(s.epoch+"."+hex.EncodeToString(sum[:6]), view)
	changes := make([]roster.Change, 0, len(s.nodes))
	for _, n := range s.sortedNodes() {
		changes = append(changes, roster.Change{Name: n.Name, Node: n})
	}
	store.Apply(changes)
	store.SetStatus(s.status)
	return store
}

// Release ends what Acquire began: the reader does not use the store any more.
func (s *Stores) Release(store *Store, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := s.stores[store.view.Key()]
	if shared.readers--; shared.readers == 0 {
		shared.unusedSince = now
	}
}

// FreeUnused frees the stores that have had no reader for unusedTimeout, as those of views that were
// edited. Call it now and then.
func (s *Stores) FreeUnused(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, store := range s.stores {
		if store.readers == 0 && now.Sub(store.unusedSince) >= unusedTimeout {
			delete(s.stores, key)
			s.freed++
		}
	}
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
		before := store.Revision()
		_, newAnomaly := store.Apply(changes)
		s.totalRevisions += store.Revision() - before
		anomaly = anomaly || newAnomaly
	}
	return anomaly
}

// SetStatus gives the roster's status to all stores, and reports whether an anomaly arose in any
// of them.
func (s *Stores) SetStatus(status roster.Status) (anomaly bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !SameStatus(s.status, status) {
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

// NotInView returns the nodes of the roster that a view does not select, sorted by name.
func (s *Stores) NotInView(view View) []*roster.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(s.sortedNodes(), view.selects)
}

// TotalRevisions is the number of changes that all views have seen together, those included whose store
// was freed. What a view has when its store is made is no change: else a client that lists now and
// then would look like nodes that flap.
func (s *Stores) TotalRevisions() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.totalRevisions
}

func (s *Stores) sortedNodes() []*roster.Node {
	all := make([]*roster.Node, 0, len(s.nodes))
	for _, n := range s.nodes {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b *roster.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

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

	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// unusedTimeout is how long a store without readers is kept. It is longer than an upgrade or a short
// outage of a writer, so that a reader that returns receives a delta rather than a reset.
const unusedTimeout = 10 * time.Minute

// Stores holds the stores of all views that are in use or were recently, and applies the roster's
// changes to them.
type Stores struct {
	instanceID string

	mu             sync.Mutex
	nodes          map[string]*roster.Node // the complete roster, for stores that are created later
	status         source.Status
	stores         map[string]*sharedStore // by View.Key
	freedCount     uint64                  // number of stores that were freed so far
	totalRevisions uint64                  // see TotalRevisions
	changed        chan struct{}
}

// sharedStore is a store and the number of its readers.
type sharedStore struct {
	*Store

	readers     int
	unusedSince time.Time // valid while readers is 0
}

// NewStores returns the stores of one run of a replica. The instanceID names the run, and the epochs of
// all stores start with it: it is random, new at each start, and has at most 48 bytes.
func NewStores(instanceID string) *Stores {
	return &Stores{
		instanceID: instanceID, nodes: map[string]*roster.Node{}, stores: map[string]*sharedStore{},
		changed: make(chan struct{}),
	}
}

// Acquire returns the store of a view to one reader, which must release it.
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

// newStore creates the store of a view. Each store has its own epoch, for two reasons: if a client's view
// was edited, its cursor belongs to another set, and if a store was freed and created again, its
// revisions start again.
func (s *Stores) newStore(view View) *Store {
	sum := sha256.Sum256(append(binary.AppendUvarint(nil, s.freedCount), view.Key()...))
	store := NewStore(s.instanceID+"."+hex.EncodeToString(sum[:6]), view)
	changes := make([]roster.Change, 0, len(s.nodes))
	for _, n := range s.sortedNodes() {
		changes = append(changes, roster.Change{Name: n.Name, Node: n})
	}
	store.Apply(changes)
	store.SetStatus(s.status)
	return store
}

// Release ends the use of a store that Acquire returned.
func (s *Stores) Release(store *Store, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := s.stores[store.view.Key()]
	if shared.readers--; shared.readers == 0 {
		shared.unusedSince = now
	}
}

// FreeUnused frees the stores that had no reader for unusedTimeout, such as those of edited views.
// The collector calls it regularly.
func (s *Stores) FreeUnused(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, store := range s.stores {
		if store.readers == 0 && now.Sub(store.unusedSince) >= unusedTimeout {
			delete(s.stores, key)
			s.freedCount++
		}
	}
}

// Apply applies changes of the roster to all stores. Call it before SetStatus with the status of the same moment.
func (s *Stores) Apply(changes []roster.Change) {
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
		store.Apply(changes)
		s.totalRevisions += store.Revision() - before
	}
}

// SetStatus sets the roster's status in all stores.
func (s *Stores) SetStatus(status source.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !SameStatus(s.status, status) {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.status = status
	for _, store := range s.stores {
		store.SetStatus(status)
	}
}

// Status returns the current status, and a channel that is closed when it changes, except for ages.
func (s *Stores) Status() (source.Status, <-chan struct{}) {
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

// TotalRevisions returns the number of changes over all views, including those of freed stores. It does
// not count the initial content of a store: otherwise a client that calls ListNodes now and then would
// look like nodes that flap.
func (s *Stores) TotalRevisions() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.totalRevisions
}

// Revisions returns the revision of each store, by its epoch.
func (s *Stores) Revisions() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]uint64, len(s.stores))
	for _, store := range s.stores {
		all[store.Epoch()] = store.Revision()
	}
	return all
}

func (s *Stores) sortedNodes() []*roster.Node {
	all := make([]*roster.Node, 0, len(s.nodes))
	for _, n := range s.nodes {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b *roster.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Package feed keeps the nodes that a roster publishes as one set, together with the roster's status. It
// guarantees what deltaset guarantees, and that readers get no nodes before the first publication. It does
// not know its readers: it has no queue, no client and no clock.
package feed

import (
	"sync"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// Entry is a node of the set. Entries are immutable.
type Entry struct {
	Node        *roster.Node
	Fingerprint Digest
}

// Identity implements deltaset.Entry. All entries are in one group.
func (e *Entry) Identity() (group, key string, fingerprint Digest) {
	return "", e.Node.Name, e.Fingerprint
}

// Position identifies a state of the set: a cursor and the digest at it.
type Position = deltaset.Position

// Update takes a reader to the current set.
type Update struct {
	deltaset.Delta[*Entry] // valid only if Synced, or from Snapshot

	Status        source.Status
	StatusVersion uint64 // increases with each SetStatus

	// Synced is false before the first publication (rule R8).
	Synced bool
}

// Set is the set that all clients of one inventory, or of one exported Service, read. It is safe for concurrent use.
type Set struct {
	mu            sync.Mutex
	nodes         *deltaset.Set[*Entry]
	status        source.Status
	statusVersion uint64 // see Update
	changed       chan struct{}

	// The last delta, so that only the first of many readers at the same position computes it.
	cacheValid  bool // false after a change of the set
	cachedFrom  Position
	cachedDelta deltaset.Delta[*Entry]
}

// NewSet returns an empty set. No other set may have this epoch, because a cursor does not distinguish two
// sets of one epoch: it is random, and new at each start. It has at most 64 bytes.
func NewSet(epoch string) *Set { return newSet(epoch, deltaset.Window) }

// minWindow is how many changes a small set keeps: a Service may have many in a moment.
const minWindow = 64

func newSet(epoch string, window int) *Set {
	return &Set{nodes: deltaset.New[*Entry](epoch, min(window, minWindow), window), changed: make(chan struct{})}
}

// Apply applies changes of the roster. Its cost does not depend on the size of the set. Call it before SetStatus
// with the status of the same moment: the number of an observation must never be published with an older set.
func (s *Set) Apply(changes []roster.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.nodes.Revision()
	s.cacheValid, s.cachedDelta = false, deltaset.Delta[*Entry]{}
	for _, c := range changes {
		if c.Node == nil {
			s.nodes.Remove("", c.Name)
		} else {
			s.nodes.Put(&Entry{Node: c.Node, Fingerprint: fingerprint(c.Node)})
		}
	}
	if s.nodes.Revision() != before {
		s.wakeReaders()
	}
}

// SetStatus sets the status of the roster.
func (s *Set) SetStatus(status source.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.status
	s.status = status
	s.statusVersion++
	if !SameStatus(old, status) {
		s.wakeReaders()
	}
}

// SameStatus reports whether two statuses differ in nothing but ages.
func SameStatus(a, b source.Status) bool {
	samePart := func(a, b source.PartStatus) bool { return a.Sync == b.Sync && a.Reason == b.Reason }
	return a.Publishable == b.Publishable && a.Observation == b.Observation &&
		samePart(a.Membership, b.Membership) && samePart(a.Addresses, b.Addresses)
}

// Status returns the current status, and the channel that Changed returns.
func (s *Set) Status() (source.Status, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status, s.changed
}

// Changed returns a channel that is closed at the next change of the set or of the status, except for
// ages. Call it before Since, so that no change in between is missed.
func (s *Set) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Set) wakeReaders() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Since returns the update from a position to the current set; nil is the position of a reader without a
// set. The update depends on nothing else, so a slow reader skips the states in between and costs nothing
// until it reads (rule R10).
func (s *Set) Since(from *Position) Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Update{Status: s.status, StatusVersion: s.statusVersion, Synced: s.status.Publishable}
	switch {
	case !u.Synced: // the update has only a status
	case from == nil:
		u.Delta = s.nodes.Since(nil, nil)
	default:
		if !s.cacheValid || s.cachedFrom != *from {
			s.cacheValid, s.cachedFrom, s.cachedDelta = true, *from, s.nodes.Since(from, nil)
		}
		u.Delta = s.cachedDelta
	}
	return u
}

// Snapshot returns the complete set, even before the first publication, with Synced false.
func (s *Set) Snapshot() Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Update{
		Delta:         s.nodes.Since(nil, nil),
		Status:        s.status,
		StatusVersion: s.statusVersion,
		Synced:        s.status.Publishable,
	}
}

// Epoch identifies the set in cursors.
func (s *Set) Epoch() string { return s.nodes.Epoch() }

// Revision returns the number of changes of the set so far.
func (s *Set) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes.Revision()
}

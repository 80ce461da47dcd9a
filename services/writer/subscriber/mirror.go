package subscriber

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Limits of the memory that a peer can make one set take. The staged set is kept beside the current one,
// so the total is twice that. The largest known clusters have a tenth of these nodes.
const (
	maxNodes     = 100_000
	maxSetMemory = 64 << 20

	nodeOverhead   = 200 // bytes per node besides its members, with all its index entries
	memberOverhead = 200 // bytes per address
	labelOverhead  = 64  // bytes per label besides its strings
	portOverhead   = 40  // bytes per port besides its strings
)

// memoryCost estimates the bytes that a node takes in memory.
func memoryCost(n *inventoryv1.Node) int {
	sum := nodeOverhead + len(n.GetAddresses())*memberOverhead + len(n.GetName()) + len(n.GetZone()) + len(n.GetHostname())
	for key, value := range n.GetLabels() {
		sum += labelOverhead + len(key) + len(value)
	}
	for _, p := range n.GetPorts() {
		sum += portOverhead + len(p.GetName()) + len(p.GetProtocol())
	}
	return sum
}

// reportedNode is a node of the set.
type reportedNode struct {
	members     []*verdict.Member // for each of its addresses
	fingerprint contract.Digest
	memoryCost  int
}

// Mirror is the client's state of the contract: the current set with its cursor and digest, and the
// set that is being staged. It is pure: the caller passes messages and times. It is not safe for
// concurrent use.
type Mirror struct {
	current    Snapshot                 // its slices are never modified in place
	digest     contract.Digest          // of the current set, also without a cursor
	nodes      map[string]*reportedNode // of the current set, by name
	memoryCost int                      // of all nodes
	staged     *stagedSet

	streamObservation    uint64 // last number in the current stream since its last reset
	observationUnchecked bool   // the next number may be lower, because the cursor was cleared
}

// stagedSet is the set that the messages before the next synced one build: changes to the current
// set or, after a reset, to an empty one.
type stagedSet struct {
	reset      bool
	changed    map[string]*reportedNode // nil: removed
	count      int
	memoryCost int
	digest     contract.Digest
}

// NewMirror returns an empty mirror.
func NewMirror() *Mirror { return &Mirror{nodes: map[string]*reportedNode{}} }

// BeginStream prepares for a new stream. It drops what the last stream staged (rule R1).
func (mirror *Mirror) BeginStream() {
	mirror.staged = nil
	mirror.current.SyncedInStream = false
	mirror.streamObservation = 0
}

// ClearCursor drops cursor and digest, so that the next stream starts with a reset. The set stays
// (rule R13).
func (mirror *Mirror) ClearCursor() {
	mirror.BeginStream()
	mirror.current.Cursor = Cursor{}
	mirror.observationUnchecked = true
}

// ResumePoint returns the cursor and digest for a request; ok is false if there are none.
func (mirror *Mirror) ResumePoint() (cursor Cursor, digest [16]byte, ok bool) {
	return mirror.current.Cursor, mirror.digest, mirror.current.Cursor != Cursor{}
}

// Snapshot returns the current state. The caller sets Source, Connected and ChangedAt.
func (mirror *Mirror) Snapshot() Snapshot { return mirror.current }

// Apply applies the next message of the stream, and reports whether it completed a synced set. An
// error is a *Violation: the set is unchanged, and the caller must end the stream.
func (mirror *Mirror) Apply(received time.Time, m *inventoryv1.WatchNodesResponse) (synced bool, err error) {
	violation := mirror.stageMessage(received, m)
	var members []*verdict.Member
	if violation == nil && m.GetSynced() {
		if violation = mirror.checkSynced(m); violation == nil {
			members, violation = mirror.stagedMembers()
		}
	}
	if violation != nil {
		mirror.staged = nil
		return false, violation
	}
	if m.GetSynced() {
		mirror.commitStaged(received, m, members)
	}
	current := &mirror.current
	if m.GetStatus() != nil {
		current.Membership = decodePartStatus(received, m.GetStatus().GetMembership(), current.Membership)
		current.Addresses = decodePartStatus(received, m.GetStatus().GetAddresses(), current.Addresses)
		if m.GetSynced() && current.Membership.State == Synced {
			current.MembershipSyncedAt = received
		}
	}
	if current.SyncedInStream && current.Membership.State == Synced {
		current.TrustedMembers = current.Members
	}
	return m.GetSynced(), nil
}

// stageMessage checks the message and applies it to the staged set.
func (mirror *Mirror) stageMessage(received time.Time, m *inventoryv1.WatchNodesResponse) *Violation {
	if len(m.GetUpserts()) > contract.MaxChunk || len(m.GetRemoved()) > contract.MaxChunk {
		return violationf(LimitExceeded, "%d upserts and %d removed names in one message: want at most %d of each",
			len(m.GetUpserts()), len(m.GetRemoved()), contract.MaxChunk)
	}
	number := m.GetStatus().GetObservation()
	switch {
	case m.GetReset_():
		mirror.staged = &stagedSet{reset: true, changed: make(map[string]*reportedNode, len(m.GetUpserts()))}
		mirror.streamObservation = 0 // the epoch may change, which only the synced message shows
	case m.GetStatus() != nil && number < mirror.streamObservation:
		return violationf(ObservationDecreased, "observation went from %d to %d in one stream", mirror.streamObservation, number)
	case mirror.staged == nil && (m.GetSynced() || len(m.GetUpserts())+len(m.GetRemoved()) > 0):
		mirror.staged = &stagedSet{
			changed:    map[string]*reportedNode{},
			count:      mirror.current.Nodes,
			memoryCost: mirror.memoryCost,
			digest:     mirror.digest,
		}
	}
	if m.GetStatus() != nil {
		mirror.streamObservation = number
	}

	removedByName := make(map[string]bool, len(m.GetRemoved())+len(m.GetUpserts())) // true: removed, false: upserted
	for _, name := range m.GetRemoved() {
		if removedByName[name] {
			return violationf(DuplicateName, "node %.253q removed twice in one message", name)
		}
		removedByName[name] = true
		if mirror.stagedNode(name) == nil {
			return violationf(UnknownRemoval, "removed node %.253q not in the set", name)
		}
		mirror.stage(name, nil)
	}
	for _, n := range m.GetUpserts() {
		node, violation := decodeNode(received, n)
		if violation != nil {
			return violation
		}
		name := n.GetName()
		if removed, twice := removedByName[name]; removed {
			return violationf(RemovedAndUpserted, "node %q removed and upserted in one message", name)
		} else if twice {
			return violationf(DuplicateName, "node %q upserted twice in one message", name)
		}
		removedByName[name] = false
		mirror.stage(name, node)
		if mirror.staged.count > maxNodes {
			return violationf(LimitExceeded, "more than %d nodes", maxNodes)
		}
		if mirror.staged.memoryCost > maxSetMemory {
			return violationf(LimitExceeded, "more than %d MiB of nodes", maxSetMemory>>20)
		}
	}
	return nil
}

// stagedNode returns a node of the staged set, or nil.
func (mirror *Mirror) stagedNode(name string) *reportedNode {
	if n, ok := mirror.staged.changed[name]; ok || mirror.staged.reset {
		return n
	}
	return mirror.nodes[name]
}

// stage makes n the node with the name in the staged set; nil removes it.
func (mirror *Mirror) stage(name string, n *reportedNode) {
	s := mirror.staged
	if old := mirror.stagedNode(name); old != nil {
		s.digest.XOR(old.fingerprint)
		s.count--
		s.memoryCost -= old.memoryCost
	}
	s.changed[name] = n
	if n != nil {
		s.digest.XOR(n.fingerprint)
		s.count++
		s.memoryCost += n.memoryCost
	} else if s.reset || mirror.nodes[name] == nil {
		delete(s.changed, name) // otherwise a peer could fill memory with names that came and went
	}
}

// checkSynced compares a synced message with the staged set and with earlier synced messages.
func (mirror *Mirror) checkSynced(m *inventoryv1.WatchNodesResponse) *Violation {
	epoch, revision := m.GetCursor().GetEpoch(), m.GetCursor().GetRevision()
	number := m.GetStatus().GetObservation()
	switch {
	case m.GetStatus() == nil:
		return violationf(IncompleteSynced, "synced without status")
	case epoch == "":
		return violationf(IncompleteSynced, "synced without cursor")
	case len(epoch) > contract.MaxEpochLength:
		return violationf(LimitExceeded, "epoch of %d bytes: want at most %d", len(epoch), contract.MaxEpochLength)
	case mirror.current.SyncedInStream && epoch != mirror.current.Cursor.Epoch && !mirror.staged.reset:
		return violationf(EpochChanged, "epoch went from %q to %q without a reset", mirror.current.Cursor.Epoch, epoch)
	case epoch == mirror.current.Cursor.Epoch && revision < mirror.current.Cursor.Revision:
		return violationf(RevisionDecreased, "revision went from %d to %d in epoch %q", mirror.current.Cursor.Revision, revision, epoch)
	case epoch == mirror.current.ObservationEpoch && !mirror.observationUnchecked && number < mirror.current.Observation:
		return violationf(ObservationDecreased, "observation went from %d to %d in epoch %q", mirror.current.Observation, number, epoch)
	case int64(m.GetCount()) != int64(mirror.staged.count):
		return violationf(CountMismatch, "reported %d nodes, received %d", m.GetCount(), mirror.staged.count)
	case !bytes.Equal(m.GetDigest(), mirror.staged.digest[:]):
		return violationf(DigestMismatch, "reported %x, computed %x", m.GetDigest(), mirror.staged.digest)
	}
	return nil
}

// stagedMembers returns the members after the staged changes, sorted by address. No two nodes may have the same one.
func (mirror *Mirror) stagedMembers() ([]*verdict.Member, *Violation) {
	s := mirror.staged
	if !s.reset && len(s.changed) == 0 {
		return mirror.current.Members, nil
	}
	members := make([]*verdict.Member, 0, len(mirror.current.Members)+len(s.changed))
	if !s.reset {
		for _, m := range mirror.current.Members {
			if _, changes := s.changed[m.Name]; !changes {
				members = append(members, m)
			}
		}
	}
	for _, n := range s.changed {
		if n != nil {
			members = append(members, n.members...)
		}
	}
	slices.SortFunc(members, func(a, b *verdict.Member) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Name, b.Name))
	})
	for i := 1; i < len(members); i++ {
		if a, b := members[i-1], members[i]; a.Address == b.Address {
			return nil, violationf(DuplicateAddress, "nodes %q and %q both have %s", a.Name, b.Name, a.Address)
		}
	}
	return members, nil
}

// commitStaged makes the staged set the current one.
func (mirror *Mirror) commitStaged(received time.Time, m *inventoryv1.WatchNodesResponse, members []*verdict.Member) {
	s, current := mirror.staged, &mirror.current
	mirror.staged = nil
	for name, n := range s.changed {
		old := mirror.nodes[name]
		switch {
		case n == nil:
			delete(mirror.nodes, name)
			continue
		case old != nil && old.fingerprint == n.fingerprint:
			n.keepSince(old)
		}
		if !s.reset {
			mirror.nodes[name] = n
		}
	}
	if s.reset {
		mirror.nodes = s.changed
	}
	current.Members, current.Nodes = members, s.count
	mirror.digest, mirror.memoryCost = s.digest, s.memoryCost
	current.Cursor = Cursor{Epoch: m.GetCursor().GetEpoch(), Revision: m.GetCursor().GetRevision()}
	current.EverSynced, current.SyncedInStream = true, true
	if number := m.GetStatus().GetObservation(); number != current.Observation || current.Cursor.Epoch != current.ObservationEpoch {
		current.Observation, current.ObservationEpoch = number, current.Cursor.Epoch
		current.ObservationReceivedAt, current.ObservedAt = received, time.Time{}
		if number > 0 {
			current.ObservedAt = received.Add(-clampAge(m.GetStatus().GetObservationAge()))
		}
	}
	mirror.observationUnchecked = false
}

// keepSince keeps when a node that is reported again entered its state: another replica, or the same one after a restart,
// may have seen the node in its state for a shorter time than this mirror.
func (n *reportedNode) keepSince(old *reportedNode) {
	for _, m := range n.members {
		if before := old.members[0]; before.State == m.State && before.Since.Before(m.Since) {
			m.Since = before.Since
		}
	}
}

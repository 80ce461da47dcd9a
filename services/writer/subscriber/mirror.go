package subscriber

import (
	"bytes"
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
)

// Limits of the memory that a peer can make one set take. The staged set is kept beside the current one,
// so the total is twice that. The largest known clusters have a tenth of these nodes.
const (
	maxNodes     = 100_000
	maxSetMemory = 64 << 20

	memberOverhead = 400 // bytes per member besides its strings, with all its index entries
	labelOverhead  = 64  // bytes per label besides its strings
	portOverhead   = 40  // bytes per port besides its strings
)

// memoryCost estimates the bytes that the member takes in memory.
func (m *Member) memoryCost() int {
	sum := memberOverhead + len(m.Name) + len(m.UID) + len(m.Zone) + len(m.Region) + len(m.Hostname)
	for key, value := range m.Labels {
		sum += labelOverhead + len(key) + len(value)
	}
	for _, p := range m.Ports {
		sum += portOverhead + len(p.Name) + len(p.Protocol)
	}
	return sum
}

// Mirror is the client's state of the contract: the current set with its cursor and digest, and the
// set that is being staged. It is pure: the caller passes messages and times. It is not safe for
// concurrent use.
type Mirror struct {
	current    Snapshot        // its slices are never modified in place
	digest     contract.Digest // of the current set, also without a cursor
	memoryCost int             // of all members
	staged     *stagedSet

	streamObservation    uint64 // last number in the current stream since its last reset
	observationUnchecked bool   // the next number may be lower, because the cursor was cleared
}

// stagedSet is the set that the messages before the next synced one build: changes to the current
// set or, after a reset, to an empty one.
type stagedSet struct {
	reset      bool
	changed    map[string]*Member // nil: removed
	count      int
	memoryCost int
	digest     contract.Digest
}

// NewMirror returns an empty mirror.
func NewMirror() *Mirror { return &Mirror{} }

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
	mirror.current.Cursor, mirror.current.Digest = Cursor{}, contract.Digest{}
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
	if violation == nil && m.GetSynced() {
		violation = mirror.checkSynced(m)
	}
	if violation != nil {
		mirror.staged = nil
		return false, violation
	}
	if m.GetSynced() {
		mirror.commitStaged(received, m)
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
		mirror.staged = &stagedSet{reset: true, changed: make(map[string]*Member, len(m.GetUpserts()))}
		mirror.streamObservation = 0 // the epoch may change, which only the synced message shows
	case m.GetStatus() != nil && number < mirror.streamObservation:
		return violationf(ObservationDecreased, "observation went from %d to %d in one stream", mirror.streamObservation, number)
	case mirror.staged == nil && (m.GetSynced() || len(m.GetUpserts())+len(m.GetRemoved()) > 0):
		mirror.staged = &stagedSet{
			changed:    map[string]*Member{},
			count:      len(mirror.current.Members),
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
		if mirror.stagedMember(name) == nil {
			return violationf(UnknownRemoval, "removed node %.253q not in the set", name)
		}
		mirror.stage(name, nil)
	}
	for _, n := range m.GetUpserts() {
		member, violation := decodeNode(received, n)
		if violation != nil {
			return violation
		}
		if removed, twice := removedByName[member.Name]; removed {
			return violationf(RemovedAndUpserted, "node %q removed and upserted in one message", member.Name)
		} else if twice {
			return violationf(DuplicateName, "node %q upserted twice in one message", member.Name)
		}
		removedByName[member.Name] = false
		mirror.stage(member.Name, member)
		if mirror.staged.count > maxNodes {
			return violationf(LimitExceeded, "more than %d nodes", maxNodes)
		}
		if mirror.staged.memoryCost > maxSetMemory {
			return violationf(LimitExceeded, "more than %d MiB of nodes", maxSetMemory>>20)
		}
	}
	return nil
}

// stagedMember returns a member of the staged set, or nil.
func (mirror *Mirror) stagedMember(name string) *Member {
	if m, ok := mirror.staged.changed[name]; ok || mirror.staged.reset {
		return m
	}
	return mirror.current.Member(name)
}

// stage makes m the member with the name in the staged set; nil removes it.
func (mirror *Mirror) stage(name string, m *Member) {
	s := mirror.staged
	if old := mirror.stagedMember(name); old != nil {
		s.digest.XOR(old.fingerprint)
		s.count--
		s.memoryCost -= old.memoryCost()
	}
	s.changed[name] = m
	if m != nil {
		s.digest.XOR(m.fingerprint)
		s.count++
		s.memoryCost += m.memoryCost()
	} else if s.reset || mirror.current.Member(name) == nil {
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
	return mirror.checkAddresses()
}

// checkAddresses reports an address that two nodes of the staged set have. The current set has none, so
// each pair has a changed node.
func (mirror *Mirror) checkAddresses() *Violation {
	changed := mirror.staged.changed
	names := make(map[netip.Addr]string, len(changed)) // of changed nodes
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		if m := changed[name]; m != nil {
			for _, a := range m.Addresses {
				if other, taken := names[a]; taken {
					return violationf(DuplicateAddress, "nodes %q and %q both have %s", other, name, a)
				}
				names[a] = name
			}
		}
	}
	if mirror.staged.reset || len(names) == 0 {
		return nil
	}
	for _, m := range mirror.current.Members {
		for _, a := range m.Addresses {
			if other, taken := names[a]; taken {
				if _, changes := changed[m.Name]; !changes {
					return violationf(DuplicateAddress, "nodes %q and %q both have %s", m.Name, other, a)
				}
			}
		}
	}
	return nil
}

// commitStaged makes the staged set the current one.
func (mirror *Mirror) commitStaged(received time.Time, m *inventoryv1.WatchNodesResponse) {
	s, current := mirror.staged, &mirror.current
	mirror.staged = nil
	if s.reset || len(s.changed) > 0 {
		current.Members = current.mergeStaged(s)
	}
	mirror.digest, mirror.memoryCost = s.digest, s.memoryCost
	current.Digest = s.digest
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

// mergeStaged returns the members after the staged changes, sorted by name.
func (s Snapshot) mergeStaged(staged *stagedSet) []*Member {
	members := make([]*Member, 0, staged.count)
	if !staged.reset {
		for _, m := range s.Members {
			if _, changes := staged.changed[m.Name]; !changes {
				members = append(members, m)
			}
		}
	}
	for name, m := range staged.changed {
		if m == nil {
			continue
		}
		// Another replica, or the same one after a restart, may have seen the node in its
		// state for a shorter time than this mirror.
		if old := s.Member(name); old != nil && old.fingerprint == m.fingerprint && old.State == m.State && old.Since.Before(m.Since) {
			m.Since = old.Since
		}
		members = append(members, m)
	}
	slices.SortFunc(members, compareNames)
	return members
}

func compareNames(a, b *Member) int { return cmp.Compare(a.Name, b.Name) }

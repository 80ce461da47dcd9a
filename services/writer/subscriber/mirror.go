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

// Mirror is the client's state of the contract: the current set with its cursor and digest, and the
// set that is being staged. It is pure: the caller passes messages and times. It is not safe for
// concurrent use.
type Mirror struct {
	members       []*Member // of the current set, sorted by name; never modified in place
	byName        map[string]*Member
	nameByAddress map[netip.Addr]string // the member that has the address
	digest        [16]byte              // of the current set
	memoryCost    int                   // of all members
	generation    uint64

	trustedMembers    []*Member // members as last reported while membership was Synced
	trustedGeneration uint64

	cursor         Cursor // zero: the next stream starts without one
	everSynced     bool
	syncedInStream bool
	staged         *stagedSet

	membership, addresses PartStatus
	ports                 []SourcePort
	membershipSyncedAt    time.Time

	streamObservation uint64 // last number in the current stream since its last reset
	observation       observation
}

type observation struct {
	number       uint64
	epoch        string
	at, received time.Time
	unchecked    bool // the next number may be lower, because the cursor was cleared
}

// stagedSet is the set that the messages before the next synced one build: changes to the current
// set or, after a reset, to an empty one.
type stagedSet struct {
	reset      bool
	changed    map[string]*Member // nil: removed
	count      int
	memoryCost int
	digest     [16]byte
}

// NewMirror returns an empty mirror.
func NewMirror() *Mirror {
	return &Mirror{byName: map[string]*Member{}, nameByAddress: map[netip.Addr]string{}}
}

// BeginStream prepares for a new stream. It drops what the last stream staged (rule R1).
func (mirror *Mirror) BeginStream() {
	mirror.staged = nil
	mirror.syncedInStream = false
	mirror.streamObservation = 0
}

// ClearCursor drops cursor and digest, so that the next stream starts with a reset. The set stays
// (rule R13).
func (mirror *Mirror) ClearCursor() {
	mirror.BeginStream()
	mirror.cursor = Cursor{}
	mirror.observation.unchecked = true
}

// ResumePoint returns the cursor and digest for a request; ok is false if there are none.
func (mirror *Mirror) ResumePoint() (cursor Cursor, digest [16]byte, ok bool) {
	return mirror.cursor, mirror.digest, mirror.cursor != Cursor{}
}

// Snapshot returns the current state. The caller sets Source, Connected and ChangedAt.
func (mirror *Mirror) Snapshot() Snapshot {
	s := Snapshot{
		EverSynced: mirror.everSynced, SyncedInStream: mirror.syncedInStream,
		Members: mirror.members, Generation: mirror.generation, Cursor: mirror.cursor,
		TrustedMembers: mirror.trustedMembers, TrustedGeneration: mirror.trustedGeneration,
		Membership: mirror.membership, Addresses: mirror.addresses, Ports: mirror.ports, MembershipSyncedAt: mirror.membershipSyncedAt,
		Observation: mirror.observation.number, ObservationEpoch: mirror.observation.epoch,
		ObservedAt: mirror.observation.at, ObservationReceivedAt: mirror.observation.received,
	}
	if mirror.cursor != (Cursor{}) {
		s.Digest = mirror.digest
	}
	return s
}

// Apply applies the next message of the stream, and reports whether it completed a synced set. An
// error is a *Violation: the set is unchanged, and the caller must end the stream.
func (mirror *Mirror) Apply(received time.Time, m *inventoryv1.WatchNodesResponse) (synced bool, err error) {
	ports, violation := decodePorts(m.GetStatus().GetPorts())
	if violation == nil {
		violation = mirror.stageMessage(received, m)
	}
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
	if m.GetStatus() != nil {
		mirror.membership = decodePartStatus(received, m.GetStatus().GetMembership(), mirror.membership)
		mirror.addresses = decodePartStatus(received, m.GetStatus().GetAddresses(), mirror.addresses)
		mirror.ports = ports
		if m.GetSynced() && mirror.membership.State == Synced {
			mirror.membershipSyncedAt = received
		}
	}
	if mirror.syncedInStream && mirror.membership.State == Synced {
		mirror.trustedMembers, mirror.trustedGeneration = mirror.members, mirror.generation
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
		mirror.staged = &stagedSet{changed: map[string]*Member{}, count: len(mirror.byName), memoryCost: mirror.memoryCost, digest: mirror.digest}
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
		mirror.stageRemoval(name)
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
		mirror.stageUpsert(member)
		if mirror.staged.count > maxNodes {
			return violationf(LimitExceeded, "more than %d nodes", maxNodes)
		}
		if mirror.staged.memoryCost > maxSetMemory {
			return violationf(LimitExceeded, "more than %d MiB of nodes", maxSetMemory>>20)
		}
	}
	return nil
}

func (mirror *Mirror) stagedMember(name string) *Member {
	if m, ok := mirror.staged.changed[name]; ok {
		return m
	}
	if mirror.staged.reset {
		return nil
	}
	return mirror.byName[name]
}

func (mirror *Mirror) stageRemoval(name string) {
	mirror.unstage(mirror.stagedMember(name))
	if mirror.staged.reset || mirror.byName[name] == nil {
		delete(mirror.staged.changed, name) // otherwise a peer could fill memory with names that came and went
	} else {
		mirror.staged.changed[name] = nil
	}
}

// unstage subtracts a member from the staged digest, count and memory cost.
func (mirror *Mirror) unstage(m *Member) {
	xorDigest(&mirror.staged.digest, m.fingerprint)
	mirror.staged.count--
	mirror.staged.memoryCost -= m.memoryCost()
}

func (mirror *Mirror) stageUpsert(m *Member) {
	if old := mirror.stagedMember(m.Name); old != nil {
		mirror.unstage(old)
	}
	xorDigest(&mirror.staged.digest, m.fingerprint)
	mirror.staged.count++
	mirror.staged.memoryCost += m.memoryCost()
	mirror.staged.changed[m.Name] = m
}

func xorDigest(d *[16]byte, o [16]byte) {
	for i := range d {
		d[i] ^= o[i]
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
	case mirror.syncedInStream && epoch != mirror.cursor.Epoch && !mirror.staged.reset:
		return violationf(EpochChanged, "epoch went from %q to %q without a reset", mirror.cursor.Epoch, epoch)
	case epoch == mirror.cursor.Epoch && revision < mirror.cursor.Revision:
		return violationf(RevisionDecreased, "revision went from %d to %d in epoch %q", mirror.cursor.Revision, revision, epoch)
	case epoch == mirror.observation.epoch && !mirror.observation.unchecked && number < mirror.observation.number:
		return violationf(ObservationDecreased, "observation went from %d to %d in epoch %q", mirror.observation.number, number, epoch)
	case int64(m.GetCount()) != int64(mirror.staged.count):
		return violationf(CountMismatch, "reported %d nodes, received %d", m.GetCount(), mirror.staged.count)
	case !bytes.Equal(m.GetDigest(), mirror.staged.digest[:]):
		return violationf(DigestMismatch, "reported %x, computed %x", m.GetDigest(), mirror.staged.digest)
	}
	return mirror.checkAddresses()
}

// checkAddresses reports an address that two nodes of the staged set have. Without a reset it checks
// only the changed nodes.
func (mirror *Mirror) checkAddresses() *Violation {
	stagedNames := make(map[netip.Addr]string, len(mirror.staged.changed))
	for _, name := range slices.Sorted(maps.Keys(mirror.staged.changed)) {
		m := mirror.staged.changed[name]
		if m == nil {
			continue
		}
		for _, a := range m.Addresses {
			other, taken := stagedNames[a]
			if !taken && !mirror.staged.reset {
				if other, taken = mirror.nameByAddress[a]; taken {
					_, changed := mirror.staged.changed[other] // stagedNames has its new addresses
					taken = !changed
				}
			}
			if taken {
				return violationf(DuplicateAddress, "nodes %q and %q both have %s", other, name, a)
			}
			stagedNames[a] = name
		}
	}
	return nil
}

// commitStaged makes the staged set the current one.
func (mirror *Mirror) commitStaged(received time.Time, m *inventoryv1.WatchNodesResponse) {
	s := mirror.staged
	mirror.staged = nil
	if s.reset || len(s.changed) > 0 {
		mirror.mergeStaged(s)
		mirror.generation++
	}
	mirror.digest, mirror.memoryCost = s.digest, s.memoryCost
	mirror.cursor = Cursor{Epoch: m.GetCursor().GetEpoch(), Revision: m.GetCursor().GetRevision()}
	mirror.everSynced, mirror.syncedInStream = true, true
	number := m.GetStatus().GetObservation()
	if o := mirror.observation; number != o.number || mirror.cursor.Epoch != o.epoch {
		mirror.observation = observation{number: number, epoch: mirror.cursor.Epoch, received: received}
		if number > 0 {
			mirror.observation.at = received.Add(-clampAge(m.GetStatus().GetObservationAge()))
		}
	}
	mirror.observation.unchecked = false
}

// mergeStaged applies the staged changes. Updating the maps costs as much as there are changes; the
// published slice is copied, one pointer per member.
func (mirror *Mirror) mergeStaged(s *stagedSet) {
	oldByName := mirror.byName
	if s.reset {
		mirror.byName = make(map[string]*Member, len(s.changed))
		mirror.nameByAddress = make(map[netip.Addr]string, len(s.changed))
	} else {
		for name := range s.changed {
			if old := oldByName[name]; old != nil {
				for _, a := range old.Addresses {
					delete(mirror.nameByAddress, a)
				}
			}
		}
	}
	changed := make([]*Member, 0, len(s.changed))
	for name, m := range s.changed {
		old := oldByName[name]
		if m == nil {
			delete(mirror.byName, name)
			continue
		}
		// Another replica, or the same one after a restart, may have seen the node in its
		// state for a shorter time than this mirror.
		if old != nil && old.fingerprint == m.fingerprint && old.State == m.State && old.Since.Before(m.Since) {
			m.Since = old.Since
		}
		mirror.byName[name] = m
		for _, a := range m.Addresses {
			mirror.nameByAddress[a] = name
		}
		changed = append(changed, m)
	}
	slices.SortFunc(changed, compareNames)
	kept := mirror.members
	if s.reset {
		kept = nil
	}
	members := make([]*Member, 0, len(mirror.byName))
	for _, m := range kept {
		if _, ok := s.changed[m.Name]; ok {
			continue
		}
		for len(changed) > 0 && changed[0].Name < m.Name {
			members, changed = append(members, changed[0]), changed[1:]
		}
		members = append(members, m)
	}
	members = append(members, changed...)
	mirror.members = members
}

func compareNames(a, b *Member) int { return cmp.Compare(a.Name, b.Name) }

func searchByName(members []*Member, name string) (int, bool) {
	return slices.BinarySearchFunc(members, name, func(m *Member, name string) int { return cmp.Compare(m.Name, name) })
}

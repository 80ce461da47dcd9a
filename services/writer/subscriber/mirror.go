package subscriber

import (
	"bytes"
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
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
	unchecked    bool // the next number may be lower
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
func (v *Mirror) BeginStream() {
	v.staged = nil
	v.syncedInStream = false
	v.streamObservation = 0
}

// ClearCursor drops cursor and digest, so that the next stream starts with a reset. The set stays
// (rule R13).
func (v *Mirror) ClearCursor() {
	v.BeginStream()
	v.cursor = Cursor{}
	v.observation.unchecked = true
}

// ResumePoint returns the cursor and digest for a request; ok is false if there are none.
func (v *Mirror) ResumePoint() (cursor Cursor, digest [16]byte, ok bool) {
	return v.cursor, v.digest, v.cursor != Cursor{}
}

// Snapshot returns the current state. The caller sets Source, Connected and ChangedAt.
func (v *Mirror) Snapshot() Snapshot {
	s := Snapshot{
		EverSynced: v.everSynced, SyncedInStream: v.syncedInStream,
		Members: v.members, Generation: v.generation, Cursor: v.cursor,
		TrustedMembers: v.trustedMembers, TrustedGeneration: v.trustedGeneration,
		Membership: v.membership, Addresses: v.addresses, Ports: v.ports, MembershipSyncedAt: v.membershipSyncedAt,
		Observation: v.observation.number, ObservationEpoch: v.observation.epoch,
		ObservedAt: v.observation.at, ObservationReceivedAt: v.observation.received,
	}
	if v.cursor != (Cursor{}) {
		s.Digest = v.digest
	}
	return s
}

// Apply applies the next message of the stream, and reports whether it completed a synced set. An
// error is a *Violation: the set is unchanged, and the caller must end the stream.
func (v *Mirror) Apply(received time.Time, m *inventoryv1.WatchNodesResponse) (synced bool, err error) {
	ports, violation := decodePorts(m.GetStatus().GetPorts())
	if violation == nil {
		violation = v.stageMessage(received, m)
	}
	if violation == nil && m.GetSynced() {
		violation = v.checkSynced(m)
	}
	if violation != nil {
		v.staged = nil
		return false, violation
	}
	if m.GetSynced() {
		v.commitStaged(received, m)
	}
	if m.GetStatus() != nil {
		v.membership = decodePartStatus(received, m.GetStatus().GetMembership(), v.membership)
		v.addresses = decodePartStatus(received, m.GetStatus().GetAddresses(), v.addresses)
		v.ports = ports
		if m.GetSynced() && v.membership.State == Synced {
			v.membershipSyncedAt = received
		}
	}
	if v.syncedInStream && v.membership.State == Synced {
		v.trustedMembers, v.trustedGeneration = v.members, v.generation
	}
	return m.GetSynced(), nil
}

// stageMessage checks the message and applies it to the staged set.
func (v *Mirror) stageMessage(received time.Time, m *inventoryv1.WatchNodesResponse) *Violation {
	if len(m.GetUpserts()) > inventoryv1.MaxChunk || len(m.GetRemoved()) > inventoryv1.MaxChunk {
		return violationf(LimitExceeded, "%d upserts and %d removed names in one message: want at most %d of each",
			len(m.GetUpserts()), len(m.GetRemoved()), inventoryv1.MaxChunk)
	}
	number := m.GetStatus().GetObservation()
	switch {
	case m.GetReset_():
		v.staged = &stagedSet{reset: true, changed: make(map[string]*Member, len(m.GetUpserts()))}
		v.streamObservation = 0 // the epoch may change, which only the synced message shows
	case m.GetStatus() != nil && number < v.streamObservation:
		return violationf(ObservationDecreased, "observation went from %d to %d in one stream", v.streamObservation, number)
	case v.staged == nil && (m.GetSynced() || len(m.GetUpserts())+len(m.GetRemoved()) > 0):
		v.staged = &stagedSet{changed: map[string]*Member{}, count: len(v.byName), memoryCost: v.memoryCost, digest: v.digest}
	}
	if m.GetStatus() != nil {
		v.streamObservation = number
	}

	inMessage := make(map[string]bool, len(m.GetRemoved())+len(m.GetUpserts())) // true: removed
	for _, name := range m.GetRemoved() {
		if inMessage[name] {
			return violationf(DuplicateName, "node %.253q removed twice in one message", name)
		}
		inMessage[name] = true
		if v.stagedMember(name) == nil {
			return violationf(UnknownRemoval, "removed node %.253q not in the set", name)
		}
		v.stageRemoval(name)
	}
	for _, n := range m.GetUpserts() {
		member, violation := decodeNode(received, n)
		if violation != nil {
			return violation
		}
		if removed, twice := inMessage[member.Name]; removed {
			return violationf(RemovedAndUpserted, "node %q removed and upserted in one message", member.Name)
		} else if twice {
			return violationf(DuplicateName, "node %q upserted twice in one message", member.Name)
		}
		inMessage[member.Name] = false
		v.stageUpsert(member)
		if v.staged.count > maxNodes {
			return violationf(LimitExceeded, "more than %d nodes", maxNodes)
		}
		if v.staged.memoryCost > maxSetMemory {
			return violationf(LimitExceeded, "more than %d MiB of nodes", maxSetMemory>>20)
		}
	}
	return nil
}

func (v *Mirror) stagedMember(name string) *Member {
	if m, ok := v.staged.changed[name]; ok {
		return m
	}
	if v.staged.reset {
		return nil
	}
	return v.byName[name]
}

func (v *Mirror) stageRemoval(name string) {
	v.unstage(v.stagedMember(name))
	if v.staged.reset || v.byName[name] == nil {
		delete(v.staged.changed, name) // otherwise a peer could fill memory with names that came and went
	} else {
		v.staged.changed[name] = nil
	}
}

// unstage subtracts a member from the staged digest, count and memory cost.
func (v *Mirror) unstage(m *Member) {
	xorDigest(&v.staged.digest, m.fingerprint)
	v.staged.count--
	v.staged.memoryCost -= m.memoryCost()
}

func (v *Mirror) stageUpsert(m *Member) {
	if old := v.stagedMember(m.Name); old != nil {
		v.unstage(old)
	}
	xorDigest(&v.staged.digest, m.fingerprint)
	v.staged.count++
	v.staged.memoryCost += m.memoryCost()
	v.staged.changed[m.Name] = m
}

func xorDigest(d *[16]byte, o [16]byte) {
	for i := range d {
		d[i] ^= o[i]
	}
}

// checkSynced compares a synced message with the staged set and with earlier synced messages.
func (v *Mirror) checkSynced(m *inventoryv1.WatchNodesResponse) *Violation {
	epoch, revision := m.GetCursor().GetEpoch(), m.GetCursor().GetRevision()
	number := m.GetStatus().GetObservation()
	switch {
	case m.GetStatus() == nil:
		return violationf(IncompleteSynced, "synced without status")
	case epoch == "":
		return violationf(IncompleteSynced, "synced without cursor")
	case len(epoch) > inventoryv1.MaxEpochLength:
		return violationf(LimitExceeded, "epoch of %d bytes: want at most %d", len(epoch), inventoryv1.MaxEpochLength)
	case v.syncedInStream && epoch != v.cursor.Epoch && !v.staged.reset:
		return violationf(EpochChanged, "epoch went from %q to %q without a reset", v.cursor.Epoch, epoch)
	case epoch == v.cursor.Epoch && revision < v.cursor.Revision:
		return violationf(RevisionDecreased, "revision went from %d to %d in epoch %q", v.cursor.Revision, revision, epoch)
	case epoch == v.observation.epoch && !v.observation.unchecked && number < v.observation.number:
		return violationf(ObservationDecreased, "observation went from %d to %d in epoch %q", v.observation.number, number, epoch)
	case int64(m.GetCount()) != int64(v.staged.count):
		return violationf(CountMismatch, "reported %d nodes, received %d", m.GetCount(), v.staged.count)
	case !bytes.Equal(m.GetDigest(), v.staged.digest[:]):
		return violationf(DigestMismatch, "reported %x, computed %x", m.GetDigest(), v.staged.digest)
	}
	return v.checkAddresses()
}

// checkAddresses reports an address that two nodes of the staged set have. Without a reset it checks
// only the changed nodes.
func (v *Mirror) checkAddresses() *Violation {
	claimed := make(map[netip.Addr]string, len(v.staged.changed))
	for _, name := range slices.Sorted(maps.Keys(v.staged.changed)) {
		m := v.staged.changed[name]
		if m == nil {
			continue
		}
		for _, a := range m.Addresses {
			other, taken := claimed[a]
			if !taken && !v.staged.reset {
				if other, taken = v.nameByAddress[a]; taken {
					_, gone := v.staged.changed[other] // claimed has its new addresses, if any
					taken = !gone
				}
			}
			if taken {
				return violationf(DuplicateAddress, "nodes %q and %q both have %s", other, name, a)
			}
			claimed[a] = name
		}
	}
	return nil
}

// commitStaged makes the staged set the current one.
func (v *Mirror) commitStaged(received time.Time, m *inventoryv1.WatchNodesResponse) {
	s := v.staged
	v.staged = nil
	if s.reset || len(s.changed) > 0 {
		v.mergeStaged(s)
		v.generation++
	}
	v.digest, v.memoryCost = s.digest, s.memoryCost
	v.cursor = Cursor{Epoch: m.GetCursor().GetEpoch(), Revision: m.GetCursor().GetRevision()}
	v.everSynced, v.syncedInStream = true, true
	number := m.GetStatus().GetObservation()
	if o := v.observation; number != o.number || v.cursor.Epoch != o.epoch {
		v.observation = observation{number: number, epoch: v.cursor.Epoch, received: received}
		if number > 0 {
			v.observation.at = received.Add(-clampAge(m.GetStatus().GetObservationAge()))
		}
	}
	v.observation.unchecked = false
}

// mergeStaged applies the staged changes. Updating the maps costs as much as there are changes; the
// published slice is copied, one pointer per member.
func (v *Mirror) mergeStaged(s *stagedSet) {
	oldByName := v.byName
	if s.reset {
		v.byName = make(map[string]*Member, len(s.changed))
		v.nameByAddress = make(map[netip.Addr]string, len(s.changed))
	} else {
		for name := range s.changed {
			if old := oldByName[name]; old != nil {
				for _, a := range old.Addresses {
					delete(v.nameByAddress, a)
				}
			}
		}
	}
	changed := make([]*Member, 0, len(s.changed))
	for name, m := range s.changed {
		old := oldByName[name]
		if m == nil {
			delete(v.byName, name)
			continue
		}
		// Another replica, or the same one after a restart, may have seen the node in its
		// state for a shorter time than this mirror.
		if old != nil && old.fingerprint == m.fingerprint && old.State == m.State && old.Since.Before(m.Since) {
			m.Since = old.Since
		}
		v.byName[name] = m
		for _, a := range m.Addresses {
			v.nameByAddress[a] = name
		}
		changed = append(changed, m)
	}
	slices.SortFunc(changed, compareNames)
	kept := v.members
	if s.reset {
		kept = nil
	}
	members := make([]*Member, 0, len(v.byName))
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
	v.members = members
}

func compareNames(a, b *Member) int { return cmp.Compare(a.Name, b.Name) }

func searchByName(members []*Member, name string) (int, bool) {
	return slices.BinarySearchFunc(members, name, func(m *Member, name string) int { return cmp.Compare(m.Name, name) })
}

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

// Mirror is the client's state of the contract: a set, a cursor, a digest, and what is staged.
// It is pure: messages and times come in. It is not safe for concurrent use.
type Mirror struct {
	members       []*Member // of the set in force, sorted by name; never altered in place
	byName        map[string]*Member
	nameByAddress map[netip.Addr]string // which member has an address
	digest        [16]byte              // of the set in force
	memoryCost    int                   // of its members
	generation    uint64

	trustedMembers    []*Member // members as last reported while membership was Synced
	trustedGeneration uint64

	cursor         Cursor // zero: none, the next stream starts without
	everSynced     bool
	syncedInStream bool // synced in the present stream
	staged         *stagedSet

	membership, addresses PartStatus
	ports                 []SourcePort
	membershipSyncedAt    time.Time

	streamObservation uint64 // the number that the present stream told last, since its last reset
	observation       observation
}

type observation struct {
	number       uint64
	epoch        string
	at, received time.Time
	unchecked    bool // the number binds the peer no longer
}

// stagedSet is a set in the making: what is to change in the set in force, or in an empty one.
type stagedSet struct {
	reset      bool
	changed    map[string]*Member // nil: removed
	count      int
	memoryCost int
	digest     [16]byte
}

// NewMirror returns a view that holds nothing.
func NewMirror() *Mirror {
	return &Mirror{byName: map[string]*Member{}, nameByAddress: map[netip.Addr]string{}}
}

// BeginStream says that a new stream begins: what the last one staged is lost (rule R1).
func (v *Mirror) BeginStream() {
	v.staged = nil
	v.syncedInStream = false
	v.streamObservation = 0
}

// ClearCursor drops cursor and digest after a breach, so that the next stream starts over
// without them. The set stays (rule R13).
func (v *Mirror) ClearCursor() {
	v.BeginStream()
	v.cursor = Cursor{}
	v.observation.unchecked = true
}

// ResumePoint returns the cursor and digest for a request; ok is false when there are none.
func (v *Mirror) ResumePoint() (cursor Cursor, digest [16]byte, ok bool) {
	return v.cursor, v.digest, v.cursor != Cursor{}
}

// Snapshot returns what the view says. Source and Alive are the shell's to fill in.
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

// Apply takes in the next message of the stream, and reports whether it put a synced state
// in force. An error is a *Breach: then the set is as it was, and the stream has to end.
func (v *Mirror) Apply(received time.Time, m *inventoryv1.WatchNodesResponse) (synced bool, err error) {
	ports, b := decodePorts(m.GetStatus().GetPorts())
	if b == nil {
		b = v.stageMessage(received, m)
	}
	if b == nil && m.GetSynced() {
		b = v.checkSynced(m)
	}
	if b != nil {
		v.staged = nil
		return false, b
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

// stageMessage checks the message by itself and against what is staged, and applies it to that.
func (v *Mirror) stageMessage(received time.Time, m *inventoryv1.WatchNodesResponse) *Violation {
	if len(m.GetUpserts()) > inventoryv1.MaxChunk || len(m.GetRemoved()) > inventoryv1.MaxChunk {
		return violationf(LimitExceeded, "a message with %d upserts and %d removed names: at most %d of each",
			len(m.GetUpserts()), len(m.GetRemoved()), inventoryv1.MaxChunk)
	}
	number := m.GetStatus().GetObservation()
	switch {
	case m.GetReset_():
		v.staged = &stagedSet{reset: true, changed: make(map[string]*Member, len(m.GetUpserts()))}
		v.streamObservation = 0 // another epoch may begin, which only the synced message tells
	case m.GetStatus() != nil && number < v.streamObservation:
		return violationf(ObservationDecreased, "from %d to %d in one stream", v.streamObservation, number)
	case v.staged == nil && (m.GetSynced() || len(m.GetUpserts())+len(m.GetRemoved()) > 0):
		v.staged = &stagedSet{changed: map[string]*Member{}, count: len(v.byName), memoryCost: v.memoryCost, digest: v.digest}
	}
	if m.GetStatus() != nil {
		v.streamObservation = number
	}

	inMessage := make(map[string]bool, len(m.GetRemoved())+len(m.GetUpserts())) // true: removed
	for _, name := range m.GetRemoved() {
		if inMessage[name] {
			return violationf(DuplicateName, "node %.253q is removed twice in one message", name)
		}
		inMessage[name] = true
		if v.stagedMember(name) == nil {
			return violationf(UnknownRemoval, "node %.253q is not in the set", name)
		}
		v.stageRemoval(name)
	}
	for _, n := range m.GetUpserts() {
		member, b := decodeNode(received, n)
		if b != nil {
			return b
		}
		if removed, twice := inMessage[member.Name]; removed {
			return violationf(RemovedAndUpserted, "node %q, in one message", member.Name)
		} else if twice {
			return violationf(DuplicateName, "node %q twice in one message", member.Name)
		}
		inMessage[member.Name] = false
		v.stageUpsert(member)
		if v.staged.count > maxNodes {
			return violationf(LimitExceeded, "more than %d nodes", maxNodes)
		}
		if v.staged.memoryCost > maxSetMemory {
			return violationf(LimitExceeded, "nodes that take more than %d MiB together", maxSetMemory>>20)
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
		delete(v.staged.changed, name) // it came and went: a peer could have us remember any number of such names
	} else {
		v.staged.changed[name] = nil
	}
}

// unstage takes a member out of what is summed up.
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

// checkSynced holds a synced message against the staged set and against what was told before.
func (v *Mirror) checkSynced(m *inventoryv1.WatchNodesResponse) *Violation {
	epoch, revision := m.GetCursor().GetEpoch(), m.GetCursor().GetRevision()
	number := m.GetStatus().GetObservation()
	switch {
	case m.GetStatus() == nil:
		return violationf(IncompleteSynced, "synced without status")
	case epoch == "":
		return violationf(IncompleteSynced, "synced without cursor")
	case len(epoch) > inventoryv1.MaxEpochLength:
		return violationf(LimitExceeded, "an epoch of %d bytes: at most %d", len(epoch), inventoryv1.MaxEpochLength)
	case v.syncedInStream && epoch != v.cursor.Epoch && !v.staged.reset:
		return violationf(EpochChanged, "from %q to %q without a reset", v.cursor.Epoch, epoch)
	case epoch == v.cursor.Epoch && revision < v.cursor.Revision:
		return violationf(RevisionDecreased, "from %d to %d in epoch %q", v.cursor.Revision, revision, epoch)
	case epoch == v.observation.epoch && !v.observation.unchecked && number < v.observation.number:
		return violationf(ObservationDecreased, "from %d to %d in epoch %q", v.observation.number, number, epoch)
	case int64(m.GetCount()) != int64(v.staged.count):
		return violationf(CountMismatch, "%d nodes were told, and there are %d", m.GetCount(), v.staged.count)
	case !bytes.Equal(m.GetDigest(), v.staged.digest[:]):
		return violationf(DigestMismatch, "%x was told, and it is %x", m.GetDigest(), v.staged.digest)
	}
	return v.checkAddresses()
}

// checkAddresses finds an address that two nodes of the staged set have. Of the set in force
// only what changes is looked at.
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
					_, gone := v.staged.changed[other] // what it has now is in claimed, if anything
					taken = !gone
				}
			}
			if taken {
				return violationf(DuplicateAddress, "%s of both %q and %q", a, other, name)
			}
			claimed[a] = name
		}
	}
	return nil
}

// commitStaged puts the staged set in force.
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

// mergeStaged applies what is staged. The maps cost what changed; the published slice is
// copied, a pointer per member.
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
		// Another replica, or the same one after a restart, may have seen the node in
		// its state for a shorter time than we have.
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

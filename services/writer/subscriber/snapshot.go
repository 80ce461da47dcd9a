// Package subscriber holds what one inventory tells, checked message by message against the
// contract slicefeed.inventory.v1. It promises that nothing but a whole, checked state is
// ever published, and that a peer which breaks the contract loses its stream and changes
// nothing. It refuses to judge: what is to be believed is for others to decide.
package subscriber

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// NodeState is what the secured cluster's control plane says of a node.
type NodeState uint8

// The states. Unknown is one that a newer inventory tells and we cannot read (rule R12).
const (
	Unknown NodeState = iota
	Ready
	Draining
	NotReady
)

// String is the state's name, as metrics label it.
func (s NodeState) String() string { return stateName(s, "unknown", "ready", "draining", "not_ready") }

// SyncState is how far a part of the source can be believed.
type SyncState uint8

// The states of a part. A value that we do not know is Degraded (rule R12), and
// so is the zero value.
const (
	Degraded SyncState = iota
	Synced
	Unsynced
)

// String is the name of the state of a part.
func (s SyncState) String() string { return stateName(s, "degraded", "synced", "unsynced") }

func stateName[T ~uint8](n T, names ...string) string {
	if int(n) < len(names) {
		return names[n]
	}
	return names[0]
}

// Member is a node as the inventory tells it. Members are immutable.
type Member struct {
	Name, UID string

	// Addresses are in the order of the message: at least one, at most one of each family,
	// and no two members of a set share one.
	Addresses []netip.Addr

	State NodeState
	Since time.Time // when it entered the state, by our clock

	Zone, Region string
	Labels       map[string]string // those that the inventory's list of clients grants us

	fingerprint [16]byte
}

// Cursor names a state of the set. The zero value is none.
type Cursor struct {
	Epoch    string
	Revision uint64
}

// PartStatus is the state of one part of the source.
type PartStatus struct {
	State  SyncState
	Reason string    // for people, when not Synced; at most 1,024 bytes
	Since  time.Time // when it entered the state, by our clock
}

// SourcePort is a port of the source's own endpoints.
type SourcePort struct {
	Name     string // empty: it has none
	Protocol string // TCP, UDP or SCTP
	Number   uint16
}

// Snapshot is what one source says at a moment. It is immutable.
type Snapshot struct {
	Source string

	EverSynced     bool // there was a synced state since this process started
	SyncedInStream bool // there was one since the present stream started; false while there is no stream
	Connected      bool // the present stream has been heard within three heartbeat intervals

	// Members of the last synced state, sorted by name. The slice is shared with other
	// snapshots: it is not to be altered. Generation grows when it changes, and only then.
	Members    []*Member
	Generation uint64

	// TrustedMembers are the members as last reported while the stream was synced and membership was Synced, of
	// which TrustedGeneration was the Generation. While the source is trusted they are Members.
	TrustedMembers    []*Member
	TrustedGeneration uint64

	// Cursor and Digest name the last synced state: of which inventory's life it is, too.
	// After a breach of the contract they are zero until the next synced state.
	Cursor Cursor
	Digest [16]byte

	// Membership (which nodes there are) and Addresses (where they are) are as the last
	// message said, whether it was synced or not.
	Membership, Addresses PartStatus

	// Ports are those of the source's own endpoints, if it tells any, as the last message said.
	Ports []SourcePort

	// MembershipSyncedAt is when a synced message last said that membership is Synced, by our clock.
	MembershipSyncedAt time.Time

	// Observation is the number of the last complete observation that a synced state told
	// (0: none), in the epoch of the cursor then; ObservedAt when it was complete, and
	// ObservationReceivedAt when we first heard of that number, both by our clock.
	// ObservationEpoch is that epoch: numbers of different epochs cannot be compared.
	Observation           uint64
	ObservationEpoch      string
	ObservedAt            time.Time
	ObservationReceivedAt time.Time

	// ChangedAt is when the message came that the snapshot differs by from the one before it, or
	// the stream ended; zero: nothing was heard yet.
	ChangedAt time.Time
}

// Member finds a member by name, or returns nil.
func (s Snapshot) Member(name string) *Member {
	if i, ok := searchByName(s.Members, name); ok {
		return s.Members[i]
	}
	return nil
}

// Differs reports whether two snapshots say different things, ages and times apart.
func (s Snapshot) Differs(o Snapshot) bool {
	equal := func(a, b PartStatus) bool { return a.State == b.State && a.Reason == b.Reason }
	return s.EverSynced != o.EverSynced || s.SyncedInStream != o.SyncedInStream || s.Connected != o.Connected ||
		s.Generation != o.Generation || s.Cursor.Epoch != o.Cursor.Epoch ||
		s.Observation != o.Observation || s.ObservationEpoch != o.ObservationEpoch ||
		!equal(s.Membership, o.Membership) || !equal(s.Addresses, o.Addresses) || !slices.Equal(s.Ports, o.Ports)
}

// NotSyncedReason says how far an inventory has come that tells no set.
func (s Snapshot) NotSyncedReason() string {
	if !s.Connected {
		return "the stream of nodes brings nothing"
	}
	return "it has no complete set yet: " + s.Summary()
}

// Summary says in words how much the snapshot is worth.
func (s Snapshot) Summary() string {
	var all []string
	for _, p := range []struct {
		name string
		part PartStatus
	}{{"membership", s.Membership}, {"addresses", s.Addresses}} {
		text := p.name + " " + p.part.State.String()
		if p.part.State != Synced && p.part.Reason != "" {
			text += " (" + p.part.Reason + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// Package subscriber is the writer's view of its inventories. It keeps a WatchNodes stream to each set that a target
// uses, and checks every message against the contract slicefeed.inventory.v1.
//
// It guarantees that it publishes only complete, verified sets; that a message that violates the protocol changes nothing;
// that the last set survives the end of any stream; that an inventory that returns is followed again soon without a storm
// of calls; and that an exported Service has one stream, however many targets use it. It decides neither what a target uses
// nor whether a source is trusted: packages targets and verdict do.
package subscriber

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

// SyncState is the completeness and freshness of a part of the source's status.
type SyncState uint8

// The sync states of a part. An unknown value is Degraded (rule R12), as is the zero value.
const (
	Degraded SyncState = iota
	Synced
	Unsynced
	Withheld
)

// String returns the state's name.
func (s SyncState) String() string {
	return [...]string{"degraded", "synced", "unsynced", "withheld"}[s]
}

// Member is a node as the inventory reports it. Members are immutable.
type Member struct {
	Name, UID string

	// Addresses are in the order of the message: one of one family, or one of each. No two members
	// of a set have the same address.
	Addresses []netip.Addr

	State contract.NodeState
	Since time.Time // when the node entered the state, by the local clock

	Zone, Region string
	Hostname     string            // by which a headless Service names it; empty: none
	Ports        []contract.Port   // at which it serves; none: not known
	Labels       map[string]string // those that the inventory exports

	fingerprint contract.Digest
}

// Cursor is a position in the stream. The zero value is no position.
type Cursor struct {
	Epoch    string
	Revision uint64
}

// PartStatus is the status of one part of the source: membership or addresses.
type PartStatus struct {
	State  SyncState
	Reason string    // for humans, if not Synced; at most 1,024 bytes
	Since  time.Time // when the part entered the state, by the local clock
}

// Snapshot is everything that one source reports at one moment. It is immutable.
type Snapshot struct {
	Source  string
	Service string // of an inventory that exports Services, as namespace/name; else empty

	EverSynced     bool // a synced set was received since this process started
	SyncedInStream bool // a synced set was received in the current stream; false without a stream
	Connected      bool // the current stream delivered a message within three heartbeat intervals

	// Members are the nodes of the last synced set, sorted by name. Snapshots of the same set share the slice, see
	// SameSet, so it must not be modified.
	Members []*Member

	// TrustedMembers are the Members as last reported while the stream was synced and membership was
	// Synced. They are the same set while the source is trusted.
	TrustedMembers []*Member

	// Cursor and Digest identify the last synced set; the cursor's epoch also identifies the run of
	// the inventory. After a protocol violation both are zero until the next synced set.
	Cursor Cursor
	Digest contract.Digest

	// Membership (which nodes exist) and Addresses (where they are) are the status of the last
	// message, synced or not.
	Membership, Addresses PartStatus

	// MembershipSyncedAt is when a synced message last reported membership as Synced, by the local clock.
	MembershipSyncedAt time.Time

	// Observation is the number of the last complete observation in a synced message (0: none).
	// ObservationEpoch is the epoch of that message: numbers of different epochs cannot be compared.
	// ObservedAt is when the observation was complete, and ObservationReceivedAt when its number was
	// first received, both by the local clock.
	Observation           uint64
	ObservationEpoch      string
	ObservedAt            time.Time
	ObservationReceivedAt time.Time

	// Denial is why the inventory rejects the requests of this client; empty: it does not. For people.
	Denial string

	// ChangedAt is when the snapshot last changed: when the message with the change was received, or
	// when the stream ended. It is zero before the first message.
	ChangedAt time.Time
}

// FeedName names the set: by its source, and by the exported Service if there is one.
func (s Snapshot) FeedName() string { return FeedName(s.Source, s.Service) }

// FeedName names the set of a source, or of a Service that it exports.
func FeedName(source, service string) string {
	if service == "" {
		return source
	}
	return source + "/" + service
}

// Ports returns the ports of all members, each once.
func (s Snapshot) Ports() (all []contract.Port) {
	for _, m := range s.Members {
		for _, p := range m.Ports {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// SameSet reports whether Members of two snapshots, or TrustedMembers, are one set. A number would not identify it: the
// sets of a client that was started again have those of its predecessor.
func SameSet(a, b []*Member) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Member returns the member with the name, or nil.
func (s Snapshot) Member(name string) *Member {
	at, found := slices.BinarySearchFunc(s.Members, name, func(m *Member, name string) int { return cmp.Compare(m.Name, name) })
	if !found {
		return nil
	}
	return s.Members[at]
}

// Differs reports whether two snapshots differ in anything but ages and times.
func (s Snapshot) Differs(o Snapshot) bool {
	equal := func(a, b PartStatus) bool { return a.State == b.State && a.Reason == b.Reason }
	return s.EverSynced != o.EverSynced || s.SyncedInStream != o.SyncedInStream || s.Connected != o.Connected ||
		!SameSet(s.Members, o.Members) || s.Denial != o.Denial || s.Cursor.Epoch != o.Cursor.Epoch ||
		s.Observation != o.Observation || s.ObservationEpoch != o.ObservationEpoch ||
		!equal(
			s.Membership,
			o.Membership,
		) || !equal(s.Addresses, o.Addresses)
}

// NotSyncedReason explains why the inventory has not delivered a set.
func (s Snapshot) NotSyncedReason() string {
	switch {
	case s.Denial != "":
		return "request rejected: " + s.Denial
	case !s.Connected:
		return "no message received on the node stream"
	case s.Membership.State != Synced && s.Membership.Reason != "":
		return s.Membership.Reason
	case s.Addresses.State != Synced && s.Addresses.Reason != "":
		return s.Addresses.Reason
	}
	return "the inventory has no complete set yet"
}

// WithheldReason explains why the inventory responds and may not publish the set; empty: it may, or it does not respond.
func (s Snapshot) WithheldReason() string {
	if !s.Connected || s.Membership.State != Withheld {
		return ""
	}
	return "the inventory withholds the set: " + s.Membership.Reason
}

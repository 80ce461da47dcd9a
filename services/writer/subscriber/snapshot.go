// Package subscriber is the writer's view of its inventories. It keeps a WatchNodes stream to each set that a target
// uses, and checks every message against the contract slicefeed.inventory.v1.
//
// It guarantees that it publishes only complete, verified sets; that a message that violates the protocol changes nothing;
// that the last set survives the end of any stream; that an inventory that returns is followed again soon without a storm
// of calls; and that an exported Service has one stream, however many targets use it. It decides neither what a target uses
// nor whether a source is trusted: packages targets and verdict do.
package subscriber

import (
	"slices"
	"strings"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// SyncState is the completeness and freshness of a part of the source's status.
type SyncState = inventoryv1.SyncState

// The sync states of a part. A value that this version does not know is Degraded (rule R12).
const (
	Synced   = inventoryv1.SyncState_SYNC_STATE_SYNCED
	Degraded = inventoryv1.SyncState_SYNC_STATE_DEGRADED
	Unsynced = inventoryv1.SyncState_SYNC_STATE_UNSYNCED
	Withheld = inventoryv1.SyncState_SYNC_STATE_WITHHELD
)

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

// StateName returns the name of the state, such as degraded.
func (p PartStatus) StateName() string {
	return strings.ToLower(strings.TrimPrefix(p.State.String(), "SYNC_STATE_"))
}

// Snapshot is everything that one source reports at one moment. It is immutable.
type Snapshot struct {
	Source  string
	Service string // of an inventory that exports Services, as namespace/name; else empty

	EverSynced     bool // a synced set was received since this process started
	SyncedInStream bool // a synced set was received in the current stream; false without a stream
	Connected      bool // the current stream delivered a message within three heartbeat intervals

	// Members are the nodes of the last synced set: one member for each address, sorted by it. Snapshots of the same set
	// share the slice, see SameSet, so neither it nor its members must be modified.
	Members []*verdict.Member
	Nodes   int // in Members

	// TrustedMembers are the Members as last reported while the stream was synced and membership was
	// Synced. They are the same set while the source is trusted.
	TrustedMembers []*verdict.Member

	// Cursor identifies the last synced set; its epoch also identifies the run of the inventory. After a protocol violation
	// it is zero until the next synced set.
	Cursor Cursor

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
		for _, p := range m.Serves {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// SameSet reports whether Members of two snapshots, or TrustedMembers, are one set. A number would not identify it: the
// sets of a client that was started again have those of its predecessor.
func SameSet(a, b []*verdict.Member) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
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

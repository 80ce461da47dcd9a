package roster

import "time"

// SyncState is how far a part of the source can be trusted.
type SyncState uint8

// The states of a part, as slicefeed.inventory.v1.SyncState has them.
const (
	Synced SyncState = iota + 1
	Degraded
	Unsynced
	Withheld
)

// PartStatus is the status of one part of the source.
type PartStatus struct {
	Sync   SyncState
	Reason string    // for people, when not Synced
	Since  time.Time // when it entered this state
}

// Status is the status of what the inventory observes.
type Status struct {
	Membership PartStatus // which nodes exist, as the source reports
	Addresses  PartStatus // where they are, as the cloud reports

	// Observation is the number of the last complete observation, from 1; 0: none yet.
	Observation uint64
	ObservedAt  time.Time // when it was complete; zero: none yet

	// Publishable is whether the roster may be published as complete: see isPublishable.
	Publishable bool
}

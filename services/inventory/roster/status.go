package roster

import (
	"fmt"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

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

// Status returns the status at this time.
func (o *observer) Status(now time.Time) Status {
	o.updateStatus(now)
	return Status{
		Membership: o.membership, Addresses: o.addresses,
		Observation: o.number, ObservedAt: o.observedAt, Publishable: o.isPublishable(),
	}
}

func (o *observer) updateStatus(now time.Time) {
	o.membership = transition(o.membership, now, o.evaluateMembership)
	o.addresses = transition(o.addresses, now, o.evaluateAddresses)
}

func transition(old PartStatus, now time.Time, evaluate func(time.Time) (SyncState, string)) PartStatus {
	sync, reason := evaluate(now)
	if sync != old.Sync {
		old.Since = now
	}
	return PartStatus{Sync: sync, Reason: reason, Since: old.Since}
}

// evaluateMembership decides how far the source can be trusted. Reasons have no running numbers, so that a
// state that lasts does not look like a change.
func (o *observer) evaluateMembership(now time.Time) (SyncState, string) {
	v := &o.verifications
	switch {
	case o.withheld != "":
		return Withheld, o.withheld
	case !v.everFull && v.err != "":
		return Unsynced, "no full verification of the source yet: " + v.err
	case !v.everFull:
		return Unsynced, joinReason("no full verification of the source yet", v.failure)
	case v.err != "":
		return Degraded, "source verification failed: " + v.err
	case now.Sub(v.okAt) > maxIdle:
		return Degraded, fmt.Sprintf("no source verification succeeded for more than %s", maxIdle)
	case now.Sub(v.lastContact) > maxIdle:
		return Degraded, joinReason(fmt.Sprintf("no contact with the source for more than %s", maxIdle), v.failure)
	case v.pending.number != 0 && now.Sub(v.pending.endedAt) > maxIdle:
		return Degraded, joinReason(
			fmt.Sprintf("the source has not caught up with a verification for more than %s", maxIdle),
			v.failure,
		)
	case o.partialError != "":
		return Degraded, o.partialError
	case o.counts.invalid > 0:
		return Degraded, fmt.Sprintf(
			"the source has invalid data for %s; known nodes keep their last valid state",
			display.Count(o.counts.invalid, "node", "nodes"),
		)
	}
	return Synced, ""
}

func (o *observer) evaluateAddresses(now time.Time) (SyncState, string) {
	noAddresses := o.counts.eligible > 0 && o.counts.published == 0
	if !o.usesCloud() {
		switch {
		case !o.verifications.everFull:
			return Unsynced, "no full verification of the source yet"
		case noAddresses:
			return Unsynced, display.Count(o.counts.eligible, "eligible node has", "eligible nodes have") + " no usable address"
		}
		return Synced, ""
	}
	l := &o.listings
	switch {
	case l.completeAt.IsZero():
		return Unsynced, joinReason("the cloud has not been listed yet", l.err)
	case noAddresses:
		return Unsynced, joinReason(
			display.Count(o.counts.eligible, "eligible node has", "eligible nodes have")+" no address",
			l.err,
		)
	case l.err != "":
		return Degraded, "cloud listing failed: " + l.err
	case now.Sub(l.completeAt) >= o.maxListingAge():
		return Degraded, fmt.Sprintf("no complete cloud listing for %s", o.maxListingAge())
	case o.counts.unreadable > 0:
		return Degraded, "the cloud has invalid data for the servers of " + display.Count(o.counts.unreadable, "node", "nodes")
	}
	return Synced, ""
}

// maxListingAge is the age at which a complete listing is no longer fresh.
func (o *observer) maxListingAge() time.Duration { return 3 * o.cfg.ListInterval }

// nextStatusChange is when time alone may change the status; at the latest in a minute.
func (o *observer) nextStatusChange(now time.Time) time.Time {
	v := &o.verifications
	wake := now.Add(maxRetryDelay)
	limits := []time.Time{v.lastContact.Add(maxIdle + 1), v.okAt.Add(maxIdle + 1), o.listings.completeAt.Add(o.maxListingAge())}
	if v.pending.number != 0 {
		limits = append(limits, v.pending.endedAt.Add(maxIdle+1))
	}
	for _, at := range limits {
		if at.After(now) {
			wake = earlier(wake, at)
		}
	}
	return wake
}

func joinReason(what, cause string) string {
	if cause == "" {
		return what
	}
	return what + ": " + cause
}

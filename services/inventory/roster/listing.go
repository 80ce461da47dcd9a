package roster

import (
	"time"
)

// ListingResult is the result of a listing that NextActions requested.
type ListingResult struct {
	StartedAt  time.Time
	Listing    Listing // valid only without an error
	Err        error
	RetryAfter time.Duration // that the cloud requires; 0: none
}

// listings is the state of the listings of the cloud.
type listings struct {
	inFlight   bool
	startedAt  time.Time // of the last one
	completeAt time.Time // when the last complete one was started
	failures   int       // in a row
	notBefore  time.Time // after a failure, and during Retry-After
	err        string    // of the last one; empty: it was complete

	requestedAt time.Time // the earliest time at which a node needs one; zero: none does
}

// listingDone records the result of a listing. The changes of nodes that it causes come after it, and
// then CompleteListing.
func (o *observer) listingDone(now time.Time, result ListingResult) {
	l := &o.listings
	l.inFlight = false
	l.startedAt = later(l.startedAt, result.StartedAt)
	if result.RetryAfter > 0 {
		l.notBefore = later(l.notBefore, now.Add(result.RetryAfter))
	}
	if result.Err != nil {
		l.failures++
		l.notBefore = later(l.notBefore, now.Add(retryDelay(l.failures, o.cfg.ConfirmInterval, o.cfg.ListInterval)))
		l.err = sanitize(result.Err.Error())
		o.reevaluate(now)
		return
	}
	l.failures, l.err, l.completeAt, l.requestedAt = 0, "", result.StartedAt, time.Time{}
}

// completeListing completes the current observation with a complete listing, if the source was verified before it.
func (o *observer) completeListing(now, startedAt time.Time) {
	v := &o.verifications
	if v.first.IsZero() || startedAt.Before(v.first) || !o.isObservationDue(now) {
		return
	}
	v.first = time.Time{}
	if v.last.After(startedAt) {
		v.first = v.last
	}
	o.completeObservation(now)
	o.reevaluate(now)
}

// misses counts the complete listings in a row that did not resolve a node.
type misses struct {
	Confirmed bool      // two of them, ListInterval apart: the node has no address
	Next      time.Time // when the node needs a listing that others do not

	count int
	first time.Time // when the first of them was started
}

// addMiss records that a complete listing did not resolve a node.
func (o *observer) addMiss(m *misses, startedAt time.Time) {
	m.count++
	if m.first.IsZero() {
		m.first = startedAt
	}
	m.Confirmed = m.Confirmed || m.count > 1 && startedAt.Sub(m.first) >= o.cfg.ListInterval
	m.Next = startedAt.Add(retryDelay(m.count, o.cfg.ConfirmInterval, o.cfg.ListInterval))
}

// requestListing requests a listing on behalf of a node without an address.
func (o *observer) requestListing(at time.Time) {
	if l := &o.listings; l.requestedAt.IsZero() || !at.IsZero() && at.Before(l.requestedAt) {
		l.requestedAt = at
	}
}

// nextListing is when the next listing is due. There is none before the first full verification: it
// could not be part of an observation, and would have to be repeated immediately.
func (o *observer) nextListing() (time.Time, bool) {
	if !o.usesCloud() || !o.verifications.everFull {
		return time.Time{}, false
	}
	l := &o.listings
	at := l.startedAt.Add(o.cfg.ListInterval)
	if next, wanted := o.nextConfirmation(); wanted && !o.verifications.first.IsZero() {
		at = earlier(at, next)
	}
	if !l.requestedAt.IsZero() {
		at = earlier(at, l.requestedAt)
	}
	if l.failures > 0 {
		at = time.Time{} // as soon as notBefore allows
	}
	if !l.startedAt.IsZero() {
		at = later(at, l.startedAt.Add(o.cfg.ConfirmInterval))
	}
	return later(at, l.notBefore), true
}

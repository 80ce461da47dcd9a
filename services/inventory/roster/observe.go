package roster

import (
	"cmp"
	"time"
)

// observationGap is the minimum time between two observations, which the contract guarantees.
const observationGap = 5 * time.Second

// observer has the state of requests and observations. It is not safe for concurrent use.
type observer struct {
	cfg    Config
	counts Counts

	verifications verifications
	listings      listings

	partialError, withheld string // of the source

	number     uint64    // of the last complete observation
	observedAt time.Time // when it was complete

	anomalies anomalyDetector
	anomalyAt time.Time // a verification that was started before says nothing about the anomaly
	restarted bool      // an anomaly has already restarted the current observation

	everPublished bool

	membership, addresses PartStatus
}

// Actions are the requests to send now, and when to ask for the next ones.
type Actions struct {
	Verify Verification // its result is given to Apply
	List   bool         // the cloud; its result is given to Apply
	Wake   time.Time    // call NextActions again at this time at the latest
}

// newObserver returns an observer without observations.
func newObserver(cfg Config) *observer {
	cfg.ListInterval = cmp.Or(cfg.ListInterval, time.Minute)
	cfg.ConfirmInterval = cmp.Or(cfg.ConfirmInterval, 5*time.Second)
	cfg.VerifyInterval = cmp.Or(cfg.VerifyInterval, time.Minute)
	return &observer{cfg: cfg, counts: newCounts()}
}

// usesCloud reports whether addresses come from listings of the cloud.
func (o *observer) usesCloud() bool { return o.cfg.Method == ByCloud }

// reevaluate draws the conclusions after any input.
func (o *observer) reevaluate(now time.Time) {
	if o.number > 0 {
		o.everPublished = o.everPublished || !o.usesCloud() || o.counts.unconfirmed == 0
	}
	switch {
	case !o.isPublishable():
		o.anomalies.active = anomalies{} // of a set that is not published
	case o.anomalies.detect(o.counts.States[Ready]) && !o.restarted:
		// An observation that was started before the anomaly says nothing about it. But one that was restarted already
		// goes on: otherwise a node that flaps faster than the cloud is listed would let none complete.
		o.anomalyAt, o.restarted = now, true
		o.verifications.first, o.verifications.last = time.Time{}, time.Time{}
	}
	o.updateStatus(now)
}

// completeObservation counts an observation, unless the last one is too recent.
func (o *observer) completeObservation(now time.Time) {
	o.number++
	o.observedAt = now
	o.restarted = false
	o.anomalies.observationDone()
}

// isObservationDue reports whether an observation that is complete now counts as another one.
func (o *observer) isObservationDue(now time.Time) bool {
	return o.number == 0 || now.Sub(o.observedAt) >= observationGap
}

// isPublishable reports whether the nodes can be published as complete. It is withdrawn while the source withholds them,
// or there are eligible nodes and none has an address: then the addresses are unknown rather than gone.
func (o *observer) isPublishable() bool {
	return o.everPublished && o.withheld == "" && (o.counts.eligible == 0 || o.counts.published > 0)
}

// nextConfirmation returns when the next complete observation is due at the start or while there is an anomaly; false:
// only at rest.
func (o *observer) nextConfirmation() (at time.Time, wanted bool) {
	if o.number == 0 {
		return time.Time{}, true
	}
	after, wanted := o.anomalies.interval()
	return o.observedAt.Add(max(after, o.cfg.ConfirmInterval)), wanted
}

// NextActions returns the requests to send now, each of which must be answered once, and when to call it again. A
// request counts as under way until its result arrives.
func (o *observer) NextActions(now time.Time) Actions {
	o.updateStatus(now)
	actions := Actions{Wake: o.nextStatusChange(now)}
	if v := &o.verifications; !v.inFlight {
		if mode, at := o.nextVerification(now); !at.After(now) {
			actions.Verify, v.inFlight, v.startedAt, v.verifySoon = mode, true, now, false
		} else {
			actions.Wake = earlier(actions.Wake, at)
		}
	}
	if l := &o.listings; !l.inFlight {
		if at, ok := o.nextListing(); ok && !at.After(now) {
			actions.List, l.inFlight, l.startedAt = true, true, now
		} else if ok {
			actions.Wake = earlier(actions.Wake, at)
		}
	}
	return actions
}

// retryDelay is how long to wait after so many failures in a row: the interval, doubled up to a maximum.
func retryDelay(failures int, interval, maximum time.Duration) time.Duration {
	wait := interval
	for range min(failures, 32) - 1 {
		if wait *= 2; wait >= maximum {
			return maximum
		}
	}
	return min(wait, maximum)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

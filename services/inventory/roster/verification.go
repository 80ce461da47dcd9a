package roster

import (
	"time"
)

const (
	maxRetryDelay = time.Minute       // of verifications, however many have failed
	maxIdle       = 150 * time.Second // an idle watch delivers something at least every 120s
)

// VerificationResult is the result of a verification that NextActions requested.
type VerificationResult struct {
	StartedAt time.Time
	Mode      Verification
	Number    uint64 // of a light one: it is complete when the source has caught up with it
	Err       error
}

// verifications is the state of the source and of its verifications.
type verifications struct {
	inFlight   bool
	startedAt  time.Time // of the last one
	failures   int       // in a row
	notBefore  time.Time // after a failure
	err        string    // of the last one; empty: it succeeded
	okAt       time.Time // of the last that succeeded
	everFull   bool      // a full one succeeded
	verifySoon bool      // the source has failed since the last verification started

	lastContact time.Time // of the source with its origin
	verified    uint64    // the number that the source had caught up with by then
	failure     string    // of following the source, since

	pending pendingVerification // the earliest light one that the source has not caught up with

	// The earliest and the latest complete verification that no observation has used.
	first, last time.Time
}

type pendingVerification struct {
	number             uint64 // 0: there is none
	startedAt, endedAt time.Time
}

// updateSource records the contact and the errors of an update. The changes of its nodes come before it.
func (o *observer) updateSource(now time.Time, update Update) {
	o.partialError, o.withheld = sanitize(update.PartialError), sanitize(update.Withheld)
	v := &o.verifications
	if !update.LastContact.IsZero() {
		if v.failure != "" && v.failures > 0 {
			v.notBefore = now // the source is back: perhaps also what the verifications failed with
		}
		v.lastContact, v.verified, v.failure = update.LastContact, update.Verified, ""
		if p := v.pending; p.number != 0 && v.verified >= p.number {
			v.pending = pendingVerification{}
			o.completeVerification(now, p.startedAt)
		}
	}
	if update.Failure != "" {
		v.failure, v.verifySoon = sanitize(update.Failure), true // only a verification can show what it means
	}
	o.reevaluate(now)
}

// verificationDone records the result of a verification. What the source had reported when it ended
// comes before it.
func (o *observer) verificationDone(now time.Time, result VerificationResult) {
	v := &o.verifications
	v.inFlight = false
	isLight := result.Mode == LightVerification
	switch {
	case result.Err != nil:
		o.verificationFailed(now, result.Err.Error())
	case isLight && result.Number == 0:
		o.verificationFailed(now, "the response does not say how current it is")
	case isLight && v.verified < result.Number:
		v.failures, v.err, v.okAt = 0, "", now
		if v.pending.number == 0 {
			v.pending = pendingVerification{number: result.Number, startedAt: result.StartedAt, endedAt: now}
		}
	default: // equal sets prove more than a number
		v.failures, v.err, v.okAt, v.everFull, v.pending = 0, "", now, v.everFull || !isLight, pendingVerification{}
		o.completeVerification(now, result.StartedAt)
	}
	o.reevaluate(now)
}

func (o *observer) verificationFailed(now time.Time, text string) {
	v := &o.verifications
	v.failures++
	v.notBefore = now.Add(retryDelay(v.failures, o.cfg.ConfirmInterval, maxRetryDelay))
	v.err = sanitize(text)
	v.first, v.last = time.Time{}, time.Time{} // earlier ones are no longer current
}

// completeVerification records a complete verification; it counts if it was started after the last anomaly.
func (o *observer) completeVerification(now, startedAt time.Time) {
	if startedAt.Before(o.anomalyAt) {
		return
	}
	if !o.usesCloud() {
		if o.isObservationDue(now) {
			o.completeObservation(now)
		}
		return
	}
	v := &o.verifications
	if v.first.IsZero() {
		v.first = now
	}
	v.last = now
}

// isBehind reports whether the source was idle for too long, or did not catch up with a verification.
func (v *verifications) isBehind(now time.Time) bool {
	return now.Sub(v.lastContact) > maxIdle || v.pending.number != 0 && now.Sub(v.pending.endedAt) > maxIdle
}

// nextVerification is which verification comes next, and when. While the source is behind, it is a full one: only that
// finds what the source missed, and makes it start again. So is the one after a failure: what the source follows may have
// been restored from a backup meanwhile.
func (o *observer) nextVerification(now time.Time) (Verification, time.Time) {
	v := &o.verifications
	mode, at := LightVerification, v.startedAt.Add(o.cfg.VerifyInterval)
	if v.isBehind(now) || v.failures > 0 {
		mode = FullVerification
	}
	if v.verifySoon {
		at = earlier(at, v.startedAt.Add(o.cfg.ConfirmInterval))
	}
	if next, wanted := o.nextConfirmation(); wanted && v.first.IsZero() {
		if next = later(next, v.startedAt.Add(o.cfg.ConfirmInterval)); !v.everFull || !next.After(at) {
			mode, at = FullVerification, next
		}
	}
	if v.failures > 0 {
		at = v.notBefore
	}
	return mode, at
}

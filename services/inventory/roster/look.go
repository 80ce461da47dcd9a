package roster

import "time"

const (
	lookEvery = time.Minute       // between two looks at rest
	silence   = 150 * time.Second // an idle watch speaks at least every 120s
)

// looks is what is known of the watch of the Nodes and of the looks at the API server.
type looks struct {
	inFlight  bool
	began     time.Time // the last one
	failures  int       // in a row
	notBefore time.Time // after a failure
	err       string    // of the last one; empty: it was answered well
	okAt      time.Time // the last one that was answered well
	complete  bool      // a full look was complete once

	heardAt time.Time // when the watch last spoke
	heard   uint64    // the resourceVersion that it reached
	failure string    // what the watch failed with since

	target target // the earliest LIST that the watch has not caught up with

	// The earliest and the latest complete looks that no observation has used.
	first, last time.Time
}

// target is the answer of a light look that the watch has to reach.
type target struct {
	rv        uint64 // 0: there is none
	began, at time.Time
}

// Heard takes in that the watch of the Nodes has spoken, by an event or a bookmark,
// and the resourceVersion it has reached. Call it after the Upserts and Removes that led there.
func (r *Roster) Heard(now time.Time, resourceVersion uint64) {
	l := &r.looks
	// The last word counts, not the highest: a store that was restored from a backup goes back.
	l.heardAt, l.heard, l.failure = now, resourceVersion, ""
	if t := l.target; t.rv != 0 && l.heard >= t.rv {
		l.target = target{}
		r.looked(now, t.began)
	}
	r.reckon(now)
}

// WatchFailed takes in what the watch said when it failed, for the status text.
func (r *Roster) WatchFailed(now time.Time, reason string) {
	r.looks.failure = plain(reason)
	r.reckon(now)
}

// Looked answers Ask.Look, which began at that time; rv is the LIST's resourceVersion.
// For Full, a nil error means that the informer's set equalled the listed one.
// Call it after the Upserts and Removes that were told before the look ended.
func (r *Roster) Looked(now, began time.Time, look Look, rv uint64, err error) {
	l := &r.looks
	l.inFlight = false
	switch {
	case err != nil:
		r.lookFailed(now, err.Error())
	case look == Light && rv == 0:
		r.lookFailed(now, "the answer has no resourceVersion")
	case look == Light:
		l.failures, l.err, l.okAt = 0, "", now
		switch {
		case l.heard >= rv:
			l.target = target{}
			r.looked(now, began)
		case l.target.rv == 0 || rv < l.target.rv: // the store went back: what we waited for never comes
			l.target = target{rv: rv, began: began, at: now}
		}
	default:
		l.failures, l.err, l.okAt = 0, "", now
		l.complete = true
		l.target = target{} // equal sets say more than a number reached
		r.looked(now, began)
	}
	r.reckon(now)
}

func (r *Roster) lookFailed(now time.Time, what string) {
	l := &r.looks
	l.failures++
	l.notBefore = now.Add(backoff(l.failures, r.cfg.Pace, lookEvery))
	l.err = plain(what)
	l.first, l.last = time.Time{}, time.Time{} // what was seen before is no longer fresh
}

// looked takes in that a look is complete; it counts if it began after the last doubt arose.
func (r *Roster) looked(now, began time.Time) {
	if began.Before(r.obs.after) {
		return
	}
	if r.cfg.Resolver == ByNodeAddress {
		r.observe(now)
		return
	}
	l := &r.looks
	if l.first.IsZero() {
		l.first = now
	}
	l.last = now
}

// nextLook is which look is wanted next, and when.
func (r *Roster) nextLook() (Look, time.Time) {
	l := &r.looks
	look, at := Light, l.began.Add(lookEvery)
	if !l.complete || r.inSeries() && l.first.IsZero() {
		look, at = Full, latest(l.began.Add(r.cfg.Pace), r.obs.at.Add(r.cfg.Pace))
	}
	if l.failures > 0 {
		at = l.notBefore
	}
	return look, at
}

// backoff is how long to wait after so many failures in a row: pace, doubled up to most.
func backoff(failures int, pace, most time.Duration) time.Duration {
	wait := pace
	for range min(failures, 32) - 1 {
		if wait *= 2; wait >= most {
			return most
		}
	}
	return min(wait, most)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

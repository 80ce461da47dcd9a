package roster

import "time"

const (
	longestPause = time.Minute       // between two looks, however many have failed
	silence      = 150 * time.Second // an idle watch speaks at least every 120s
)

// looks is what is known of the source and of the looks at it.
type looks struct {
	inFlight  bool
	began     time.Time // the last one
	failures  int       // in a row
	notBefore time.Time // after a failure
	err       string    // of the last one; empty: it was answered well
	okAt      time.Time // the last one that was answered well
	complete  bool      // a full look was complete once

	heardAt time.Time // when the source last spoke
	mark    uint64    // that it had caught up with then
	failure string    // what following it failed with since
	suspect bool      // it failed since the last look began: worth a look of its own

	target target // the earliest look that the source has not caught up with

	// The earliest and the latest complete looks that no observation has used.
	first, last time.Time
}

// target is the answer of a light look that the source has to catch up with.
type target struct {
	mark      uint64 // 0: there is none
	began, at time.Time
}

// heard takes in that the source has spoken, and what it has caught up with.
func (r *Roster) heard(now, at time.Time, mark uint64) {
	l := &r.looks
	if l.failure != "" && l.failures > 0 {
		l.notBefore = now // it is back: so is perhaps what did not answer the looks
	}
	l.heardAt, l.mark, l.failure = at, mark, ""
	if t := l.target; t.mark != 0 && l.mark >= t.mark {
		l.target = target{}
		r.looked(now, t.began)
	}
}

// failed takes in what following the source failed with. It makes a look worth its price
// at once: only that tells whether the source can still be believed.
func (r *Roster) failed(reason string) {
	r.looks.failure, r.looks.suspect = plain(reason), true
}

// Looked answers Ask.Look, which began at that time. The source gives each look a mark,
// from 1, higher than those before it: a light one is complete when the source has caught up with
// its mark (News.Verified). For Full, a nil error means that all that was freshly read is what the
// source has told. Call it after Hear with the news that there were when the look ended.
func (r *Roster) Looked(now, began time.Time, look Look, mark uint64, err error) {
	l := &r.looks
	l.inFlight = false
	switch {
	case err != nil:
		r.lookFailed(now, err.Error())
	case look == Light && mark == 0:
		r.lookFailed(now, "the response does not say how current it is")
	case look == Light:
		l.failures, l.err, l.okAt = 0, "", now
		switch {
		case l.mark >= mark:
			l.target = target{}
			r.looked(now, began)
		case l.target.mark == 0:
			l.target = target{mark: mark, began: began, at: now}
		}
	default:
		l.failures, l.err, l.okAt = 0, "", now
		l.complete = true
		l.target = target{} // equal sets say more than a mark
		r.looked(now, began)
	}
	r.reckon(now)
}

func (r *Roster) lookFailed(now time.Time, what string) {
	l := &r.looks
	l.failures++
	l.notBefore = now.Add(backoff(l.failures, r.cfg.Pace, longestPause))
	l.err = plain(what)
	l.first, l.last = time.Time{}, time.Time{} // what was seen before is no longer fresh
}

// looked takes in that a look is complete; it counts if it began after the last doubt arose.
func (r *Roster) looked(now, began time.Time) {
	if began.Before(r.obs.after) {
		return
	}
	if r.cfg.Resolver != ByCloud {
		if r.obs.observationDue(now) {
			r.observe(now)
		}
		return
	}
	l := &r.looks
	if l.first.IsZero() {
		l.first = now
	}
	l.last = now
}

// behind reports whether the source was silent for too long, or did not catch up with a look.
func (l *looks) behind(now time.Time) bool {
	return now.Sub(l.heardAt) > silence || l.target.mark != 0 && now.Sub(l.target.at) > silence
}

// nextLook is which look is wanted next, and when. While the source is behind, those at rest
// are full: only they find out what it missed, and have it begin anew.
func (r *Roster) nextLook(now time.Time) (Look, time.Time) {
	l := &r.looks
	look, at := Light, l.began.Add(r.cfg.Rest)
	if l.behind(now) {
		look = Full
	}
	if l.suspect {
		at = earlier(at, l.began.Add(r.cfg.Pace))
	}
	if !l.complete || r.inSeries() && l.first.IsZero() {
		look, at = Full, latest(l.began.Add(r.cfg.Pace), r.obs.at.Add(max(r.cfg.Pace, observationGap)))
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

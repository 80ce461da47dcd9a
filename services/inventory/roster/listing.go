package roster

import (
	"maps"
	"slices"
	"time"
)

// listings is what is known of the listings of the cloud.
type listings struct {
	inFlight  bool
	began     time.Time // the last one
	whole     time.Time // when the last whole one began
	failures  int       // in a row
	notBefore time.Time // after a failure, and while Retry-After runs
	err       string    // of the last one; empty: it was whole

	urgent time.Time // a node wants one as of this time; zero: none does
}

// misses counts the whole listings in a row that did not resolve a member.
type misses struct {
	count  int
	first  time.Time // when the first of them began
	agreed bool      // two of them, a poll interval apart, said so
	next   time.Time // when it is worth a listing of its own
}

// Listed answers Ask.List, which began at that time. With an error the listing is ignored;
// retryAfter is what the cloud asked for, 0: nothing.
func (r *Roster) Listed(now, began time.Time, l Listing, err error, retryAfter time.Duration) {
	r.lists.inFlight = false
	r.lists.began = latest(r.lists.began, began)
	if retryAfter > 0 {
		r.lists.notBefore = latest(r.lists.notBefore, now.Add(retryAfter))
	}
	if err != nil {
		r.lists.failures++
		r.lists.notBefore = latest(r.lists.notBefore, now.Add(backoff(r.lists.failures, r.cfg.Pace, r.cfg.Poll)))
		r.lists.err = plain(err.Error())
		r.reckon(now)
		return
	}
	r.lists.failures, r.lists.err, r.lists.whole = 0, "", began
	r.cloud = index(l, began)
	// All are resolved before any claims: whether an owner yields depends on what
	// this listing, not the one before, gives it.
	all := make([]*member, 0, len(r.members))
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		r.resolve(r.members[name])
		all = append(all, r.members[name])
	}
	slices.SortStableFunc(all, func(a, b *member) int { return int(a.State) - int(b.State) })
	r.settle(all)
	r.missed(began)
	r.reckon(now)
	if first := r.looks.first; !first.IsZero() && !began.Before(first) && r.obs.observationDue(now) {
		r.looks.first = time.Time{}
		if r.looks.last.After(began) {
			r.looks.first = r.looks.last
		}
		r.observe(now)
		r.reckon(now)
	}
}

// missed takes in which members a whole listing did not resolve.
func (r *Roster) missed(began time.Time) {
	r.lists.urgent = time.Time{}
	for _, m := range r.unresolved {
		if s := &m.misses; !began.Before(m.firstSeen) {
			s.count++
			if s.first.IsZero() {
				s.first = began
			}
			s.agreed = s.agreed || s.count > 1 && began.Sub(s.first) >= r.cfg.Poll
			s.next = began.Add(backoff(s.count, r.cfg.Pace, r.cfg.Poll))
		}
		r.plead(m)
	}
}

// plead asks for a listing on behalf of a member that has no address.
func (r *Roster) plead(m *member) {
	if m.node != nil || m.Excluded != 0 {
		return
	}
	if u := r.lists.urgent; u.IsZero() || m.misses.next.Before(u) {
		r.lists.urgent = m.misses.next
	}
}

// nextListing is when a listing is wanted next. There is none before the first complete look:
// it could not be part of an observation, and would have to be repeated at once.
func (r *Roster) nextListing() (time.Time, bool) {
	if r.cfg.Resolver != ByCloud || !r.looks.complete {
		return time.Time{}, false
	}
	l := &r.lists
	at := l.began.Add(r.cfg.Poll)
	if r.inSeries() && !r.looks.first.IsZero() {
		at = r.obs.at.Add(observationGap)
	} else if u := l.urgent; !u.IsZero() && u.Before(at) {
		at = u
	}
	if l.failures > 0 {
		at = time.Time{} // as soon as notBefore allows
	}
	if !l.began.IsZero() {
		at = latest(at, l.began.Add(r.cfg.Pace))
	}
	return latest(at, l.notBefore), true
}

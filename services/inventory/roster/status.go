package roster

import (
	"fmt"
	"time"
)

// Status returns what the roster is worth at this time.
func (r *Roster) Status(now time.Time) Status {
	r.judge(now)
	return Status{
		Membership: r.membership, Addresses: r.addresses,
		Observation: r.obs.number, ObservedAt: r.obs.at, Ports: r.ports, Publishable: r.told(),
	}
}

// judge brings both parts up to date.
func (r *Roster) judge(now time.Time) {
	r.membership = turn(r.membership, now, r.judgeMembership)
	r.addresses = turn(r.addresses, now, r.judgeAddresses)
}

func turn(was Part, now time.Time, judge func(time.Time) (Sync, string)) Part {
	sync, reason := judge(now)
	if sync != was.Sync {
		was.Since = now
	}
	return Part{Sync: sync, Reason: reason, Since: was.Since}
}

// judgeMembership says what the source's word is worth. Reasons bear no running numbers, so
// that a state which lasts does not look like news.
func (r *Roster) judgeMembership(now time.Time) (Sync, string) {
	l := &r.looks
	switch {
	case !l.complete && l.err != "":
		return Unsynced, "no full verification of the source yet: " + l.err
	case !l.complete:
		return Unsynced, join("no full verification of the source yet", l.failure)
	case l.err != "":
		return Degraded, "source verification failed: " + l.err
	case now.Sub(l.okAt) > silence:
		return Degraded, fmt.Sprintf("no source verification succeeded for more than %s", silence)
	case now.Sub(l.heardAt) > silence:
		return Degraded, join(fmt.Sprintf("no contact with the source for more than %s", silence), l.failure)
	case l.target.mark != 0 && now.Sub(l.target.at) > silence:
		return Degraded, join(fmt.Sprintf("the source has not caught up with a verification for more than %s", silence), l.failure)
	case r.flaw != "":
		return Degraded, r.flaw
	case len(r.invalid) > 0:
		return Degraded, fmt.Sprintf("the source has invalid data for %d nodes; known nodes keep their last valid state", len(r.invalid))
	}
	return Synced, ""
}

func (r *Roster) judgeAddresses(now time.Time) (Sync, string) {
	l := &r.lists
	blind := r.eligible > 0 && r.published == 0
	if r.cfg.Resolver != ByCloud {
		switch {
		case !r.looks.complete:
			return Unsynced, "no full verification of the source yet"
		case blind:
			return Unsynced, fmt.Sprintf("none of %d eligible nodes has a usable address", r.eligible)
		}
		return Synced, ""
	}
	switch {
	case l.whole.IsZero() && l.err != "":
		return Unsynced, "the cloud has not been listed yet: " + l.err
	case l.whole.IsZero():
		return Unsynced, "the cloud has not been listed yet"
	case blind:
		return Unsynced, join(fmt.Sprintf("none of %d eligible nodes has an address", r.eligible), l.err)
	case l.err != "":
		return Degraded, "cloud listing failed: " + l.err
	case now.Sub(l.whole) >= r.stale():
		return Degraded, fmt.Sprintf("no complete cloud listing for %s", r.stale())
	case len(r.odd) > 0:
		return Degraded, fmt.Sprintf("the cloud has invalid data for the servers of %d nodes", len(r.odd))
	}
	return Synced, ""
}

// stale is the age at which a whole listing is no longer fresh.
func (r *Roster) stale() time.Duration { return 3 * r.cfg.Poll }

// nextTurn is when time alone may change the status; at the latest in a minute.
func (r *Roster) nextTurn(now time.Time) time.Time {
	wake := now.Add(longestPause)
	late := []time.Time{r.looks.heardAt.Add(silence + 1), r.looks.okAt.Add(silence + 1), r.lists.whole.Add(r.stale())}
	if r.looks.target.mark != 0 {
		late = append(late, r.looks.target.at.Add(silence+1))
	}
	for _, t := range late {
		if t.After(now) {
			wake = earlier(wake, t)
		}
	}
	return wake
}

func join(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

package prober

import "time"

// A failure counts only if another endpoint of its target corroborates it: if it passes, and its run of
// passes overlaps with the run of failures (package verdict). Without control probes that may take until the
// next regular probe of another key. So the first failure that contradicts a status probes other passing keys
// of its targets, and a key that begins to pass probes the failing ones. A control probe is an extra one within the
// same limits, and starts at least reprobeGap after the last probe of its key.

// maxControls is how many keys a contradiction probes: of two, one may have failed for the same reason.
const maxControls = 2

// controlPassing probes passing keys after a failure of another key of their targets, first those that
// passed last: they are the least likely to have failed too. A key that is contradicted itself is probed
// again in any case.
func (s *ProbeSchedule) controlPassing(failed *keyRecord, now time.Time) {
	var controls [maxControls]*keyRecord // the youngest pass first
	for _, t := range failed.targets {
		if t.counts[Passing] == 0 { // thousands may fail: without this, each visits all others
			continue
		}
		for _, r := range t.records {
			if r == failed || r.status.Health != Passing || len(r.contradicting) > 0 {
				continue
			}
			for i, other := range controls {
				if other == r {
					break
				}
				if other == nil || r.status.RunLast.After(other.status.RunLast) {
					copy(controls[i+1:], controls[i:])
					controls[i] = r
					break
				}
			}
		}
	}
	for _, r := range controls {
		if r != nil {
			s.control(r, now)
		}
	}
}

// controlFailing probes the failing keys that no probe was started for since another key of their targets
// passes.
func (s *ProbeSchedule) controlFailing(passed *keyRecord, now time.Time) {
	for _, t := range passed.targets {
		if t.counts[Failing] == 0 {
			continue
		}
		for _, r := range t.records {
			if r.status.Health == Failing && !r.lastStartedAt.After(passed.status.RunStart) {
				s.control(r, now)
			}
		}
	}
}

// control moves the next probe of a key forward. One that is already due then serves as well.
func (s *ProbeSchedule) control(r *keyRecord, now time.Time) {
	if due := later(now, r.lastStartedAt.Add(reprobeGap)); due.Before(r.nextDue) {
		r.controlDue = due
		s.reschedule(r)
	}
}

package subscriber

import "time"

// The delays of rule R14.
const (
	shortestDelay = time.Second
	longestDelay  = 30 * time.Second
	stableAfter   = 30 * time.Second
)

// Schedule says when to connect again. It is pure: the caller brings the random number. Its zero
// value is one of a peer that was never met.
type Schedule struct {
	failures int // ends of a stream since one was synced for a while
	breaches int // ends by a breach since a stream ended otherwise after having been synced for a while
}

// Next returns how long to wait after a stream's end. synced is how long the stream
// had been synced, zero when it never was; random is uniform in [0, 1).
func (s *Schedule) Next(synced time.Duration, breach bool, random float64) time.Duration {
	stable := synced >= stableAfter
	if stable {
		s.failures = 0
	}
	if breach {
		s.breaches++
	} else if stable {
		s.breaches = 0
	}
	// The first delay is between 1 s and 2 s, so a routine end costs little; a peer
	// that breaks the contract time and again waits longer, though each stream was stable.
	limit := longestDelay
	if n := max(s.failures, s.breaches) + 1; n < 5 {
		limit = shortestDelay << n
	}
	s.failures++
	return shortestDelay + time.Duration(random*float64(limit-shortestDelay))
}

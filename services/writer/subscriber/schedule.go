package subscriber

import "time"

// The delays of rule R14. After an inventory restarts, its writers sync again within 5 s: no delay is longer
// than maxDelay, and a connection attempt has no backoff of its own. After protocol violations the delays
// grow further, since calling such an inventory often would not help.
const (
	minDelay          = 500 * time.Millisecond
	initialLimit      = time.Second // of the first delay
	maxDelay          = 4 * time.Second
	maxViolationDelay = 5 * time.Minute
	stableAfter       = 30 * time.Second
)

// Schedule decides when to reconnect. It is pure: the caller passes the random number. The zero
// value is for a peer that was never connected.
type Schedule struct {
	failures   int // stream ends since the last stream that was synced for stableAfter
	violations int // protocol violations since a stable stream last ended for another reason
}

// Next returns how long to wait after the end of a stream. synced is how long the stream
// was synced, zero if it never was; random is uniform in [0, 1).
func (s *Schedule) Next(synced time.Duration, violation bool, random float64) time.Duration {
	stable := synced >= stableAfter
	if stable {
		s.failures = 0
	}
	limit := doubledLimit(s.failures, maxDelay)
	s.failures++
	switch {
	case violation: // counts even after a stable stream
		limit = max(limit, doubledLimit(s.violations, maxViolationDelay))
		s.violations++
	case stable:
		s.violations = 0
	}
	return minDelay + time.Duration(random*float64(limit-minDelay))
}

// doubledLimit returns initialLimit doubled the given number of times, at most limit.
func doubledLimit(times int, limit time.Duration) time.Duration {
	const maxDoublings = 16 // exceeds every limit and does not overflow
	return min(initialLimit<<min(times, maxDoublings), limit)
}

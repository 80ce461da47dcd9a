package subscriber

import "time"

// The delays of rule R14. An inventory that restarts is followed again within 5 s, since no delay is
// above maxDelay and nothing else waits. One that violates the protocol gains nothing by being called often.
const (
	minDelay          = 500 * time.Millisecond
	initialLimit      = time.Second
	maxDelay          = 4 * time.Second
	maxViolationDelay = 5 * time.Minute
	stableAfter       = 30 * time.Second
)

// Schedule decides when to connect again. It is pure: the caller brings the random number. Its zero
// value belongs to a peer that was never connected.
type Schedule struct {
	failures   int // stream ends since a stream was synced for stableAfter
	violations int // ends by a protocol violation since a stable stream ended otherwise
}

// Next returns how long to wait after a stream's end. synced is how long the stream
// had been synced, zero when it never was; random is uniform in [0, 1).
func (s *Schedule) Next(synced time.Duration, violation bool, random float64) time.Duration {
	stable := synced >= stableAfter
	if stable {
		s.failures = 0
	}
	limit := doubledLimit(s.failures, maxDelay)
	s.failures++
	switch {
	case violation: // it counts though the stream was stable
		limit = max(limit, doubledLimit(s.violations, maxViolationDelay))
		s.violations++
	case stable:
		s.violations = 0
	}
	return minDelay + time.Duration(random*float64(limit-minDelay))
}

// doubledLimit is the first limit, doubled as many times, at most to the given one.
func doubledLimit(times int, limit time.Duration) time.Duration {
	const maxDoublings = 16 // far above every limit, and below what overflows
	return min(initialLimit<<min(times, maxDoublings), limit)
}

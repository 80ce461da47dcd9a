package probe

import (
	"net/netip"
	"slices"
	"time"
)

// The thresholds, as in HAProxy.
const (
	fall        = 3 // failures until a status is failing
	riseInitial = 1 // successes until a pending status is passing
	riseRecover = 2 // successes until a failing status is passing
)

// Health is the conclusion from a key's probe results: the main part of its Status.
type Health uint8

// The values of Health. Pending, the zero value, means that there is no conclusion yet.
const (
	Pending Health = iota
	Passing
	Failing
)

var healthNames = [...]string{Pending: "pending", Passing: "passing", Failing: "failing"}

func (h Health) String() string { return healthNames[h] }

// Status is what the probes of a key have shown.
type Status struct {
	Address netip.Addr
	Port    uint16

	Health     Health
	Since      time.Time // when this health was reached; zero while pending
	Detail     string    // why it fails or cannot be probed, without numbers that change from probe to probe
	LastPassed time.Time // when a probe last passed; zero: never
	// Expired: pending because no probe was conclusive for three intervals. The writer cannot probe the key.
	Expired bool

	// The run is all results that agree with the health, from those that led to it on; single other results
	// do not end it. It starts when its first pass began, or its first failure ended. RunLast is
	// when its youngest probe began. Both are zero while pending.
	RunStart, RunLast time.Time
}

// conclusion is a key's status and the results that may change it. Probes are numbered in the order of
// their start. They may end in another order, and then the one that started later counts.
type conclusion struct {
	status        Status
	lastAgreeing  uint64       // the last probe that agrees with the status
	contradicting []endedProbe // later probes that contradict it, in the order of their start; fewer than fall
}

// endedProbe is a probe whose result contradicts the status of its key.
type endedProbe struct {
	seq                uint64
	startedAt, endedAt time.Time
}

// add applies a conclusive result.
func (c *conclusion) add(seq uint64, startedAt, endedAt time.Time, result Result, detail string) {
	c.status.Expired = false
	health := Failing
	if result == Pass {
		health, c.status.LastPassed = Passing, endedAt
	}
	switch {
	case health == c.status.Health:
		c.lastAgreeing = max(c.lastAgreeing, seq)
		c.contradicting = startedAfter(c.contradicting, seq)
		if startedAt.After(c.status.RunLast) {
			c.status.RunLast = startedAt
		}
	case seq < c.lastAgreeing: // a later probe already agreed
	default:
		ended := endedProbe{seq, startedAt, endedAt}
		at := len(c.contradicting) - len(startedAfter(c.contradicting, seq))
		c.contradicting = slices.Insert(c.contradicting, at, ended)
		if len(c.contradicting) >= c.threshold(health) {
			c.change(health, ended, detail)
		}
	}
}

// change changes the health because of the probes that contradict it, of which this one ended last.
func (c *conclusion) change(health Health, ended endedProbe, detail string) {
	// All probes that contradicted the old status agree with the new one, including those that
	// started after this one. Only a pending status is contradicted by both kinds: when it becomes
	// passing, later failures continue to count.
	agreeing := c.contradicting
	if c.status.Health == Pending && health == Passing {
		agreeing = []endedProbe{ended}
	}
	last := agreeing[len(agreeing)-1]
	c.status = Status{
		Health: health, Since: ended.endedAt, LastPassed: c.status.LastPassed,
		RunStart: agreeing[0].startedAt, RunLast: last.startedAt,
	}
	if health == Failing {
		c.status.Detail, c.status.RunStart = detail, firstEnded(agreeing)
	}
	c.lastAgreeing, c.contradicting = last.seq, startedAfter(c.contradicting, last.seq)
}

// threshold is how many probes must agree on a health before the status changes to it.
func (c *conclusion) threshold(health Health) int {
	switch {
	case health == Failing:
		return fall
	case c.status.Health == Pending:
		return riseInitial
	default:
		return riseRecover
	}
}

// needsReprobe reports whether the status is contradicted, since when, and too few probes have started to
// change it; lastSeq is the last of them.
func (c *conclusion) needsReprobe(lastSeq uint64) (since time.Time, needed bool) {
	if len(c.contradicting) == 0 {
		return time.Time{}, false
	}
	other := Failing
	if c.status.Health == Failing {
		other = Passing
	}
	lastNeeded := c.contradicting[0].seq + uint64(c.threshold(other)) - 1
	return firstEnded(c.contradicting), lastSeq < lastNeeded
}

// startedAfter returns the probes with a number above seq.
func startedAfter(probes []endedProbe, seq uint64) []endedProbe {
	at := slices.IndexFunc(probes, func(p endedProbe) bool { return p.seq > seq })
	if at < 0 {
		return nil
	}
	return probes[at:]
}

// firstEnded returns when the first of these probes ended.
func firstEnded(probes []endedProbe) time.Time {
	return slices.MinFunc(probes, func(a, b endedProbe) int { return a.endedAt.Compare(b.endedAt) }).endedAt
}

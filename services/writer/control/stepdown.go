package control

import (
	"time"

	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// stepDown decides when a leader releases its Lease because its own probes are what fails:
// no probe of any target has passed for a while, and at least one target panics, or has an endpoint in use that cannot be
// probed (no socket or port is left). The prober of another host may see more. It promises not to pass the Lease round in circles when the
// backends are dead indeed: who took over in this state keeps it, and nobody gives
// it up more than once in a long while.
type stepDown struct {
	last time.Time // when it was given up
}

const (
	nonePassingFor   = 30 * time.Second
	stepDownInterval = 10 * time.Minute
)

// due says whether to give the Lease up now, by the latest decision on each target; later is
// when to ask again, zero: when a decision has changed. We have led since then.
func (s *stepDown) due(targets []verdict.Decision, since, now time.Time) (give bool, later time.Time) {
	var blind time.Time
	blinded := false
	for _, d := range targets {
		if d.AnyPassing {
			return false, time.Time{}
		}
		blinded = blinded || d.Panic || d.CannotProbe
		if d.NonePassingSince.After(blind) {
			blind = d.NonePassingSince
		}
	}
	if !blinded || since.IsZero() || !blind.After(since) {
		return false, time.Time{}
	}
	at := blind.Add(nonePassingFor)
	if again := s.last.Add(stepDownInterval); !s.last.IsZero() && again.After(at) {
		at = again
	}
	if at.After(now) {
		return false, at
	}
	return true, time.Time{}
}

// done notes that it was given up.
func (s *stepDown) done(now time.Time) { s.last = now }

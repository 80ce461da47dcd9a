package reconciler

import (
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

const (
	nonePassingFor   = 30 * time.Second
	stepDownInterval = 10 * time.Minute
)

// stepDown releases the Lease when no probe of any target has passed for a while: the prober of another host may see
// more. It hands the Lease over when no write is in progress. Two writers whose backends are dead do not pass the
// Lease to each other: a writer that took over in this state keeps it, and none steps down twice in ten minutes.
type stepDown struct {
	mu       sync.Mutex
	probes   map[targets.Key]verdict.Decision // of targets with probes: the fields about probes alone
	last     time.Time                        // when it stepped down
	writing  int                              // writes in progress
	handOver func()                           // when none is; nil: it has not stepped down
}

// update records what a decision says about the probes of a target, and releases the Lease if that is due. The zero
// Decision means that there is none. It returns when to call it again although nothing changes; zero: never.
func (s *stepDown) update(key targets.Key, d verdict.Decision, lease Lease, now time.Time) (released bool, wake time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Panic || d.AnyPassing || !d.NonePassingSince.IsZero() {
		s.probes[key] = verdict.Decision{
			Panic:            d.Panic,
			AnyPassing:       d.AnyPassing,
			CannotProbe:      d.CannotProbe,
			NonePassingSince: d.NonePassingSince,
		}
	} else {
		delete(s.probes, key)
	}
	if wake = stepDownAt(maps.Values(s.probes), lease.LeadingSince(), s.last); wake.IsZero() || wake.After(now) {
		return false, wake
	}
	s.last, s.handOver = now, lease.Release()
	s.handOverBetweenWrites()
	return true, time.Time{}
}

// stepDownAt returns when the leader must step down. since is when its term began, last when it last stepped down. Zero:
// never, as things are. It must if at least one target panics, or has an endpoint in use that cannot be probed (no socket
// or port is left).
func stepDownAt(all iter.Seq[verdict.Decision], since, last time.Time) time.Time {
	var blind time.Time
	blinded := false
	for d := range all {
		if d.AnyPassing {
			return time.Time{}
		}
		blinded = blinded || d.Panic || d.CannotProbe
		if d.NonePassingSince.After(blind) {
			blind = d.NonePassingSince
		}
	}
	if !blinded || since.IsZero() || !blind.After(since) {
		return time.Time{}
	}
	at := blind.Add(nonePassingFor)
	if again := last.Add(stepDownInterval); !last.IsZero() && again.After(at) {
		at = again
	}
	return at
}

// writeStarts must be called before it is checked whether this writer leads: Release ends that.
func (s *stepDown) writeStarts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing++
}

func (s *stepDown) writeEnds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing--
	s.handOverBetweenWrites()
}

func (s *stepDown) handOverBetweenWrites() {
	if s.writing == 0 && s.handOver != nil {
		s.handOver()
		s.handOver = nil
	}
}

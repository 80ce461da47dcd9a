package verdict

import (
	"fmt"
	"strings"
	"time"
)

// resyncSpan is how far from the time of a resync it may be made: it is what a person asks for now, not a setting.
const resyncSpan = 10 * time.Minute

// Resync is what became of a resync that a person asked for (Limits.Resync); the zero value: none is due.
type Resync struct {
	Done  bool   // this leader has made it
	Freed int    // endpoints that it let go
	Waits string // why it has not been made yet: which sources cannot be trusted; empty: it has, or this is a standby
}

// Message is the sentence for an Event; empty: there is nothing to say.
func (r Resync) Message() string {
	switch {
	case r.Done:
		return fmt.Sprintf("Resync done: %d endpoints that the sources drain or no longer list were removed, without the guards shrink, floor "+
			"and empty. Remove the annotation slicefeed.dev/resync.", r.Freed)
	case r.Waits != "":
		return fmt.Sprintf("Resync waits until every source is trusted, for at most 10 minutes from its time: %s. Check the inventory "+
			"and the link to it.", r.Waits)
	}
	return ""
}

// resynced is the last resync that was made, and by which leader.
type resynced struct {
	at, led time.Time
	freed   int
}

// resync finds out whether this decision is the one that a person asked for: what the trusted sources do not list leaves,
// whatever shrink, floor and the confirmation of emptiness say. It is made once per leader and time, so that a lie that
// comes a minute later meets all guards again.
func (c *court) resync() {
	at := c.in.Limits.Resync
	c.memory.resync = c.past.resync
	if at.IsZero() || c.in.LeadingSince.IsZero() || c.forbidden || c.now.After(at.Add(resyncSpan)) {
		return
	}
	if begins := at.Add(-resyncSpan); c.now.Before(begins) {
		c.wake(begins)
		return
	}
	if done := c.past.resync; done.at.Equal(at) && done.led.Equal(c.in.LeadingSince) {
		c.decision.Resync = Resync{Done: true, Freed: done.freed}
		return
	}
	var waits []string
	for i := range c.sources {
		if w := &c.sources[i]; !w.trusted {
			waits = append(waits, "source "+w.Name+", "+w.doubt)
		}
	}
	if len(c.sources) == 0 {
		waits = append(waits, "no source")
	}
	c.decision.Resync.Waits = strings.Join(waits, "; ")
	c.resyncs = len(waits) == 0
}

// free notes what a resync lets go. It stays free until that is written, or the source wants it again or cannot be
// trusted any more.
func (c *court) free() {
	freed := 0
	for i := range c.subjects {
		s, e := &c.subjects[i], &c.decision.Endpoints[i]
		staysReady := e.Listed && e.Conditions.Ready
		leaves := s.held != nil && (e.Verdict == Gone || s.held.Conditions.Ready && !staysReady)
		s.freed = leaves && (s.freed || c.resyncs)
		if s.freed {
			freed++
		}
	}
	if c.resyncs {
		c.memory.resync = resynced{c.in.Limits.Resync, c.in.LeadingSince, freed}
		c.decision.Resync = Resync{Done: true, Freed: freed}
	}
}

package verdict

import (
	"fmt"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// resyncSpan is how far from the time of a resync it may be made: it is what a person asks for now, not a setting.
const resyncSpan = 10 * time.Minute

// Resync is what became of a resync that a person asked for (Limits.Resync); the zero value: none is due.
type Resync struct {
	Done       bool   // this leader has made it
	Removed    int    // endpoints that it let go
	WaitingFor string // why it has not been made yet: which sources cannot be trusted; empty: it has, or this is a standby
}

// Message is the sentence for an Event; empty: there is nothing to say.
func (r Resync) Message() string {
	switch {
	case r.Done:
		return fmt.Sprintf("Resync done: %s removed, without the guards shrink, floor "+
			"and empty. Remove the annotation slicefeed.dev/resync.", display.Count(r.Removed,
			"endpoint that the sources drain or no longer list was", "endpoints that the sources drain or no longer list were"))
	case r.WaitingFor != "":
		return fmt.Sprintf("Resync waits until every source is trusted, for at most 10 minutes from its time: %s. Check the inventory "+
			"and the link to it.", r.WaitingFor)
	}
	return ""
}

// resyncMemory is the last resync that was made, and by which leader.
type resyncMemory struct {
	at, leadingSince time.Time
	removed          int
}

// beginResync finds out whether this decision is the one that a person asked for: what the trusted sources do not list
// leaves, whatever shrink, floor and the confirmation of emptiness hold. It is made once per leader and time, so that a
// lie that comes a minute later meets all guards again.
func (e *evaluation) beginResync() {
	at, last := e.input.Limits.Resync, e.previous.resync
	e.memory.resync = last
	if at.IsZero() || e.input.LeadingSince.IsZero() || e.now.After(at.Add(resyncSpan)) {
		return
	}
	if begins := at.Add(-resyncSpan); e.now.Before(begins) {
		e.wakeAt(begins)
		return
	}
	if last.at.Equal(at) && last.leadingSince.Equal(e.input.LeadingSince) {
		e.decision.Resync = Resync{Done: true, Removed: last.removed}
		return
	}
	var waiting []string
	for i := range e.sources {
		if s := &e.sources[i]; !s.trusted() {
			waiting = append(waiting, "source "+s.Name+", "+s.distrust)
		}
	}
	if len(e.sources) == 0 {
		waiting = append(waiting, "no source")
	}
	e.decision.Resync.WaitingFor = strings.Join(waiting, "; ")
	e.resyncs = len(waiting) == 0
}

// endResync notes what a resync removes. Shrink and floor do not hold that until it is written, or until the source
// lists it again or is not trusted any more.
func (e *evaluation) endResync() {
	removed := 0
	for i := range e.rows {
		r := &e.rows[i]
		staysReady := r.result.Listed && r.result.Conditions.Ready
		leaves := r.current != nil && !r.dropped && (r.result.Verdict == Remove || r.current.Conditions.Ready && !staysReady)
		r.memory.resyncTakes = leaves && (r.memory.resyncTakes || e.resyncs)
		if r.memory.resyncTakes {
			removed++
		}
	}
	if e.resyncs {
		e.memory.resync = resyncMemory{e.input.Limits.Resync, e.input.LeadingSince, removed}
		e.decision.Resync = Resync{Done: true, Removed: removed}
	}
}

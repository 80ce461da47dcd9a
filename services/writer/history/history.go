// Package history remembers what this writer did last: what it wrote to the consuming cluster and
// what it told people there. It promises to stay small however long it runs and whatever happens,
// and refuses to be more than a memory: nothing is decided by it, and a restart begins a new one.
package history

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// What is remembered at most.
const (
	maxWrites  = 100
	maxEvents  = 100
	maxChanges = 50   // of a write
	maxText    = 1024 // bytes of what the API server said, or of an Event's note
)

// Write is a request that changes a slice, and what became of it.
type Write struct {
	At                 time.Time
	Namespace, Service string
	Slice              string
	Verb               string // create, update or delete
	Result             string // ok, conflict, throttled, refused or unknown
	Message            string // what the API server said, unless ok
	Changes            []Change
	OmittedChanges     int // changes that there is no room for

	// Attempts is how often the same was tried in a row with the same result; At is the last time.
	Attempts int
}

// Change is one thing that differs between a slice before and after a write. It has neither a Was
// nor an Is that is empty, but where it came or went.
type Change struct {
	Field    string // "endpoint 10.0.0.1", "port http", "label app"
	Old, New string // empty: it came, or it went
	Reason   string // the decision's reason; empty: there is none to tell
}

// Mark is + for what came, - for what went and ~ for what is different.
func (c *Change) Mark() string {
	switch {
	case c.Old == "":
		return "+"
	case c.New == "":
		return "-"
	default:
		return "~"
	}
}

// String is the change in a line.
func (c *Change) String() string {
	line := c.Mark() + " " + c.Field + " "
	if c.Old != "" && c.New != "" {
		return line + c.Old + " -> " + c.New
	}
	return line + c.Old + c.New
}

// Event is what was told on a Service.
type Event struct {
	At                 time.Time
	Namespace, Service string
	Reason, Note       string
}

// Log is the memory. It may be used by any number of goroutines. A nil Log takes everything and
// keeps nothing: the one of a rehearsal.
type Log struct {
	mu     sync.Mutex
	writes []Write // oldest first
	events []Event
}

// AddWrite remembers a write. Its changes are not to be altered afterwards.
func (l *Log) AddWrite(w Write) {
	if l == nil {
		return
	}
	w.Message, w.Attempts = truncateText(w.Message), 1
	w.OmittedChanges = max(0, len(w.Changes)-maxChanges)
	w.Changes = w.Changes[:len(w.Changes)-w.OmittedChanges]
	l.mu.Lock()
	defer l.mu.Unlock()
	// What is refused is tried again and again: it must not push out what was before.
	if n := slices.IndexFunc(l.writes, func(o Write) bool { return w.Result != "ok" && isRetryOf(&o, &w) }); n >= 0 {
		w.Attempts += l.writes[n].Attempts
		l.writes = slices.Delete(l.writes, n, n+1)
	}
	l.writes = keepLast(append(l.writes, w), maxWrites)
}

// isRetryOf reports whether the later write is the earlier one, tried again in vain.
func isRetryOf(earlier, later *Write) bool {
	return earlier.Namespace == later.Namespace && earlier.Slice == later.Slice && earlier.Verb == later.Verb &&
		earlier.Result == later.Result && earlier.Message == later.Message
}

// AddEvent remembers an Event.
func (l *Log) AddEvent(e Event) {
	if l == nil {
		return
	}
	e.Note = truncateText(e.Note)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = keepLast(append(l.events, e), maxEvents)
}

// Recent returns what is remembered of the Services that are selected, newest first; nil: of all.
func (l *Log) Recent(selects func(namespace, service string) bool) (writes []Write, events []Event) {
	if l == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range slices.Backward(l.writes) {
		if selects == nil || selects(w.Namespace, w.Service) {
			writes = append(writes, w)
		}
	}
	for _, e := range slices.Backward(l.events) {
		if selects == nil || selects(e.Namespace, e.Service) {
			events = append(events, e)
		}
	}
	return writes, events
}

// keepLast keeps the last of them, in an array that does not grow for ever.
func keepLast[T any](all []T, limit int) []T {
	if len(all) > limit {
		return append(all[:0], all[len(all)-limit:]...)
	}
	return all
}

func truncateText(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…" // not half a letter
}

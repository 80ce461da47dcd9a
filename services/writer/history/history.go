// Package history records the writer's recent writes and Events, for status pages and commands. It
// guarantees that its memory is limited. It does not survive a restart, and no decision depends on it.
package history

import (
	"slices"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

const (
	maxWrites  = 100
	maxEvents  = 100
	maxChanges = 50   // per write
	maxText    = 1024 // bytes of an API server's message or an Event's note
)

// Write is a request to change a slice, and its result.
type Write struct {
	At                 time.Time
	Namespace, Service string
	Slice              string
	Verb               string // create, update or delete
	Result             string // ok, conflict, throttled, rejected, terminating or unknown
	Message            string // of the API server, unless ok
	Changes            []Change
	OmittedChanges     int // changes above the limit

	// Attempts is how often the same write was tried with the same result; At is the last time.
	Attempts int
}

// Change is one difference between a slice before and after a write.
type Change struct {
	Field  string `json:"field"`            // "endpoint 10.0.0.1", "port http", "label app"
	Old    string `json:"old"`              // empty: it is added
	New    string `json:"new"`              // empty: it is removed
	Reason string `json:"reason,omitempty"` // the decision's reason, if any
}

// Mark returns + for an added field, - for a removed one and ~ for a changed one.
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

// String returns the change in one line.
func (c *Change) String() string {
	line := c.Mark() + " " + c.Field + " "
	if c.Old != "" && c.New != "" {
		return line + c.Old + " -> " + c.New
	}
	return line + c.Old + c.New
}

// Event is an Event that was recorded for a Service.
type Event struct {
	At                 time.Time
	Namespace, Service string
	Reason, Note       string
}

// Log has the recent writes and Events. It is safe for concurrent use. A nil Log discards everything; a
// dry run uses one.
type Log struct {
	mu     sync.Mutex
	writes []Write // oldest first
	events []Event
}

// AddWrite adds a write. The caller must not modify its changes afterwards.
func (l *Log) AddWrite(w Write) {
	if l == nil {
		return
	}
	w.Message, w.Attempts = display.Truncate(w.Message, maxText), 1
	w.OmittedChanges = max(0, len(w.Changes)-maxChanges)
	w.Changes = w.Changes[:len(w.Changes)-w.OmittedChanges]
	l.mu.Lock()
	defer l.mu.Unlock()
	// A failing write is retried often, and must not displace the earlier writes.
	if n := slices.IndexFunc(l.writes, func(o Write) bool { return w.Result != "ok" && isRetryOf(&o, &w) }); n >= 0 {
		w.Attempts += l.writes[n].Attempts
		l.writes = slices.Delete(l.writes, n, n+1)
	}
	l.writes = keepLast(append(l.writes, w), maxWrites)
}

// isRetryOf reports whether the later write repeats the earlier one with the same result.
func isRetryOf(earlier, later *Write) bool {
	return earlier.Namespace == later.Namespace && earlier.Slice == later.Slice && earlier.Verb == later.Verb &&
		earlier.Result == later.Result && earlier.Message == later.Message
}

// AddEvent adds an Event.
func (l *Log) AddEvent(e Event) {
	if l == nil {
		return
	}
	e.Note = display.Truncate(e.Note, maxText)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = keepLast(append(l.events, e), maxEvents)
}

// Recent returns the writes and Events of the selected Services, newest first. A nil selects is for all.
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

// keepLast keeps the last elements in the same array.
func keepLast[T any](all []T, limit int) []T {
	if len(all) > limit {
		return append(all[:0], all[len(all)-limit:]...)
	}
	return all
}

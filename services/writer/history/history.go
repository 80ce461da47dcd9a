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
	Answer             string // what the API server said, unless ok
	Changes            []Change
	LeftOut            int // changes that there is no room for

	// Times is how often the same was tried in a row with the same result; At is the last time.
	Times int
}

// Change is one thing that differs between a slice before and after a write. It has neither a Was
// nor an Is that is empty, but where it came or went.
type Change struct {
	What    string // "endpoint 10.0.0.1", "port http", "label app"
	Was, Is string // empty: it came, or it went
	Why     string // the decision's reason; empty: there is none to tell
}

// Mark is + for what came, - for what went and ~ for what is different.
func (c *Change) Mark() string {
	switch {
	case c.Was == "":
		return "+"
	case c.Is == "":
		return "-"
	default:
		return "~"
	}
}

// String is the change in a line.
func (c *Change) String() string {
	line := c.Mark() + " " + c.What + " "
	if c.Was != "" && c.Is != "" {
		return line + c.Was + " -> " + c.Is
	}
	return line + c.Was + c.Is
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

// Wrote remembers a write. Its changes are not to be altered afterwards.
func (l *Log) Wrote(w Write) {
	if l == nil {
		return
	}
	w.Answer, w.Times = clip(w.Answer), 1
	w.LeftOut = max(0, len(w.Changes)-maxChanges)
	w.Changes = w.Changes[:len(w.Changes)-w.LeftOut]
	l.mu.Lock()
	defer l.mu.Unlock()
	// What is refused is tried again and again: it must not push out what was before.
	if n := slices.IndexFunc(l.writes, func(o Write) bool { return w.Result != "ok" && again(&o, &w) }); n >= 0 {
		w.Times += l.writes[n].Times
		l.writes = slices.Delete(l.writes, n, n+1)
	}
	l.writes = last(append(l.writes, w), maxWrites)
}

// again reports whether the later write is the earlier one, tried again in vain.
func again(earlier, later *Write) bool {
	return earlier.Namespace == later.Namespace && earlier.Slice == later.Slice && earlier.Verb == later.Verb &&
		earlier.Result == later.Result && earlier.Answer == later.Answer
}

// Told remembers an Event.
func (l *Log) Told(e Event) {
	if l == nil {
		return
	}
	e.Note = clip(e.Note)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = last(append(l.events, e), maxEvents)
}

// Last returns what is remembered of the Services that are selected, newest first; nil: of all.
func (l *Log) Last(selects func(namespace, service string) bool) (writes []Write, events []Event) {
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

// last keeps the last of them, in an array that does not grow for ever.
func last[T any](all []T, most int) []T {
	if len(all) > most {
		return append(all[:0], all[len(all)-most:]...)
	}
	return all
}

func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…" // not half a letter
}

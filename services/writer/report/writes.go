package report

import (
	"slices"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

const (
	maxWrites  = 20   // of a Service
	maxKept    = 1000 // of all Services
	maxChanges = 50   // of a write
	maxText    = 1024 // bytes of an API server's message
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
	Field  string // "endpoint 10.0.0.1", "port http", "label app"
	Old    string // empty: it is added
	New    string // empty: it is removed
	Reason string // the decision's reason, if any
}

// String returns the change in one line: + is added, - removed and ~ changed.
func (c *Change) String() string {
	switch {
	case c.Old == "":
		return "+ " + c.Field + " " + c.New
	case c.New == "":
		return "- " + c.Field + " " + c.Old
	default:
		return "~ " + c.Field + " " + c.Old + " -> " + c.New
	}
}

// Writes has the last writes of each Service, at most 20 of one and 1,000 of all. It is safe for concurrent use. A nil
// Writes keeps nothing.
type Writes struct {
	mu   sync.Mutex
	kept []Write // oldest first
}

// Add adds a write. The caller must not modify its changes afterwards.
func (l *Writes) Add(w Write) {
	if l == nil {
		return
	}
	w.Message, w.Attempts = display.Truncate(w.Message, maxText), 1
	w.OmittedChanges = max(0, len(w.Changes)-maxChanges)
	w.Changes = w.Changes[:len(w.Changes)-w.OmittedChanges]
	l.mu.Lock()
	defer l.mu.Unlock()
	ofService := 0
	for i := range l.kept {
		if l.kept[i].isOf(w.Namespace, w.Service) {
			ofService++
		}
	}
	// A failing write is retried often, and must not displace the earlier writes.
	drop := slices.IndexFunc(l.kept, func(o Write) bool { return w.Result != "ok" && isRetryOf(&o, &w) })
	switch {
	case drop >= 0:
		w.Attempts += l.kept[drop].Attempts
	case ofService == maxWrites:
		drop = slices.IndexFunc(l.kept, func(o Write) bool { return o.isOf(w.Namespace, w.Service) })
	case len(l.kept) == maxKept:
		drop = 0
	}
	if drop >= 0 {
		l.kept = slices.Delete(l.kept, drop, drop+1)
	}
	l.kept = append(l.kept, w)
}

func (w *Write) isOf(namespace, service string) bool {
	return w.Namespace == namespace && w.Service == service
}

// isRetryOf reports whether the later write repeats the earlier one with the same result.
func isRetryOf(earlier, later *Write) bool {
	return earlier.Namespace == later.Namespace && earlier.Slice == later.Slice && earlier.Verb == later.Verb &&
		earlier.Result == later.Result && earlier.Message == later.Message
}

// Of returns the writes of a Service, newest first.
func (l *Writes) Of(namespace, service string) (writes []Write) {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range slices.Backward(l.kept) {
		if w.isOf(namespace, service) {
			writes = append(writes, w)
		}
	}
	return writes
}

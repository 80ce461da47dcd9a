package report

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
)

const (
	maxWrites  = 20   // of a Service
	maxKept    = 1000 // of all Services
	maxChanges = 50   // of a write
	maxText    = 1024 // bytes of an API server's message
)

// Write is the report of a request to change a slice of a Service, without its age.
type Write struct {
	*writerv1.WriteReport

	At                 time.Time
	Namespace, Service string
}

// NewWrite returns the report of a request that changes a slice from before to after, as CompareSlices compares them.
func NewWrite(
	slice, verb, result string, before, after *discoveryv1.EndpointSlice, reasonFor func(netip.Addr) string,
) *writerv1.WriteReport {
	w := &writerv1.WriteReport{Slice: slice, Verb: verb, Result: result}
	for _, change := range CompareSlices(before, after, reasonFor) {
		w.Changes = append(w.Changes, text(change.String()))
	}
	return w
}

// Writes has the last writes of each Service, at most 20 of one and 1,000 of all. It is safe for concurrent use. A nil
// Writes keeps nothing.
type Writes struct {
	mu   sync.Mutex
	kept []Write // oldest first
}

// Add adds a write. The caller must not modify it afterwards.
func (l *Writes) Add(w Write) {
	if l == nil {
		return
	}
	w.Attempts, w.Message, w.ChangesOmitted = 1, text(w.GetMessage()), uint32(max(0, len(w.GetChanges())-maxChanges))
	w.Changes = w.Changes[:min(len(w.GetChanges()), maxChanges)]
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
		w.Attempts += l.kept[drop].GetAttempts()
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

package nodeserver

import (
	"cmp"
	"slices"
	"time"
)

// Subscriber describes an active stream of a client.
type Subscriber struct {
	Name    string // of the client
	Service string // that it watches; empty: the only set
	Since   time.Time

	LastSentAt time.Time // when a message was last sent, even a heartbeat; zero: never
	Lag        uint64    // changes that were not sent to it yet
}

// sendProgress is how far a subscriber was updated. Zero: nothing was sent yet.
type sendProgress struct {
	sentAt   time.Time
	synced   bool
	revision uint64
}

// Subscribers returns all active streams, sorted by client name, Service and start.
func (s *Server) Subscribers() []Subscriber {
	s.mu.Lock()
	all := make([]Subscriber, 0, len(s.readers))
	for r := range s.readers {
		all = append(all, r.subscriberInfo())
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b Subscriber) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Service, b.Service), a.Since.Compare(b.Since))
	})
	return all
}

func (r *Reader) subscriberInfo() Subscriber {
	info := Subscriber{Name: r.client.Name, Service: r.set.Service, Since: r.since}
	r.mu.Lock()
	progress := r.progress
	r.mu.Unlock()
	info.LastSentAt = progress.sentAt
	if revision := r.set.Nodes.Revision(); progress.synced && revision > progress.revision {
		info.Lag = revision - progress.revision
	}
	return info
}

func (s *Server) register(r *Reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers[r] = struct{}{}
}

func (s *Server) unregister(r *Reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.readers, r)
}

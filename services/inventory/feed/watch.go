package feed

import (
	"cmp"
	"slices"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"google.golang.org/grpc"
)

// WatchNodes streams the nodes of a set.
func (s *Server) WatchNodes(req *inventoryv1.WatchNodesRequest, to grpc.ServerStreamingServer[inventoryv1.WatchNodesResponse]) error {
	client, err := s.cfg.Identify(to.Context())
	if err != nil {
		return err
	}
	from, err := ResumePosition(req)
	if err != nil {
		return err
	}
	end, err := s.Admit(string(client.SAN))
	if err != nil {
		return err
	}
	defer end()
	set, release, err := s.cfg.Sets.Acquire(client, req.GetService())
	if err != nil {
		return err
	}
	defer release()
	r := set.NewReader(from, nil, stream.HeartbeatInterval)
	defer s.register(r, Subscriber{Name: string(client.SAN), Service: set.service, Since: time.Now()})()
	return stream.Serve(s.Streams, to, r)
}

// ResumePosition returns where a request resumes; nil: the client has no set. An error is for the client: the request is
// malformed.
func ResumePosition(req *inventoryv1.WatchNodesRequest) (*stream.Position, error) {
	return stream.ResumePosition(req.GetCursor(), req.GetDigest())
}

// Subscriber describes an active stream of a client.
type Subscriber struct {
	Name    string // of the client
	Service string // that it watches; empty: the only set
	Since   time.Time

	LastSentAt time.Time // when a message was last sent, even a heartbeat; zero: never
	Lag        uint64    // changes that were not sent to it yet
}

// register makes a stream one of Subscribers until it calls unregister.
func (s *Server) register(r *Reader, info Subscriber) (unregister func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers[r] = info
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.readers, r)
	}
}

// Subscribers returns all active streams, sorted by client name, Service and start.
func (s *Server) Subscribers() []Subscriber {
	s.mu.Lock()
	all := make([]Subscriber, 0, len(s.readers))
	for r, info := range s.readers {
		info.LastSentAt, info.Lag = r.Progress()
		all = append(all, info)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b Subscriber) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Service, b.Service), a.Since.Compare(b.Since))
	})
	return all
}

package endpointserver

import (
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
)

// WatchEndpoints streams the entries selected.
func (s *Server) WatchEndpoints(req *writerv1.WatchEndpointsRequest, to grpc.ServerStreamingServer[writerv1.WatchEndpointsResponse]) error {
	if err := req.Validate(); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	client, err := s.cfg.Identify(to.Context())
	if err != nil {
		return err
	}
	leave, err := s.streams.Admit(client.Name)
	if err != nil {
		return err
	}
	defer leave()
	return stream.Serve(s.streams, to, &reader{
		board: s.cfg.Board, selects: selection(req.GetServices()), gather: req.GetGroupByPort(),
		at: position(req), interval: s.streams.Heartbeat,
	})
}

func selection(services []*writerv1.ServiceSelector) deltaset.Filter {
	names := make([]endpoints.Name, 0, len(services))
	for _, s := range services {
		names = append(names, endpoints.Name{Namespace: s.GetNamespace(), Service: s.GetService()})
	}
	return endpoints.Select(names)
}

func position(req *writerv1.WatchEndpointsRequest) *deltaset.Position {
	if req.GetCursor() == nil {
		return nil
	}
	return &deltaset.Position{
		Epoch: req.GetCursor().GetEpoch(), Revision: req.GetCursor().GetRevision(),
		Digest: deltaset.Digest(req.GetDigest()), // its length has been validated
	}
}

// reader is one client: what it is told of, the position that it was led to, and what it was
// told that it is worth.
type reader struct {
	board    *endpoints.Board
	selects  deltaset.Filter
	gather   bool
	at       *deltaset.Position
	word     endpoints.Status
	interval time.Duration // to be stated; 0: it has been

	next endpoints.Update
}

// Changed is that of the board.
func (r *reader) Changed() <-chan struct{} { return r.board.Changed() }

// Next looks up what the client lacks.
func (r *reader) Next() (stream.Kind, iter.Seq[*stream.Message[writerv1.WatchEndpointsResponse]]) {
	r.next = r.board.Since(r.at, r.selects, r.gather)
	kind := kindOf(r.next, r.word)
	if kind == stream.Heartbeat && r.next.Status.Synced {
		r.advance() // what others are told of has changed: that must not push this one out of the window
	}
	return kind, func(yield func(*stream.Message[writerv1.WatchEndpointsResponse]) bool) {
		for chunk := range stream.Chunks(r.next.Removed, r.next.Upserts, wireEntry) {
			m := &writerv1.WatchEndpointsResponse{
				Reset_: r.next.Reset && chunk.First, Status: wireStatus(r.next.Status),
				Removed: chunk.Removed, Upserts: chunk.Upserts,
			}
			if chunk.Last && r.next.Status.Synced {
				m.Synced = true
				m.Cursor = &writerv1.Cursor{Epoch: r.next.At.Epoch, Revision: r.next.At.Revision}
				m.Digest = r.next.At.Digest[:]
				m.Count = uint32(r.next.Count)
			}
			if r.interval > 0 {
				m.HeartbeatInterval, r.interval = durationpb.New(r.interval), 0
			}
			if !yield(&stream.Message[writerv1.WatchEndpointsResponse]{Content: m}) {
				return
			}
		}
	}
}

// Sent leads the client on.
func (r *reader) Sent() {
	if r.next.Status.Synced {
		r.advance()
	}
	r.word, r.next = r.next.Status, endpoints.Update{}
}

func (r *reader) advance() {
	led := r.next.At // not a pointer into the update: that would keep all of it
	r.at = &led
}

func kindOf(u endpoints.Update, word endpoints.Status) stream.Kind {
	switch {
	case u.Reset:
		return stream.Reset
	case !u.Empty():
		return stream.Delta
	case !endpoints.SameWord(u.Status, word):
		return stream.Status
	default:
		return stream.Heartbeat
	}
}

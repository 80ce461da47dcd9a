package endpointserver

import (
	"iter"
	"reflect"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
)

// WatchEndpoints streams the selected entries.
func (s *Server) WatchEndpoints(req *writerv1.WatchEndpointsRequest, to grpc.ServerStreamingServer[writerv1.WatchEndpointsResponse]) error {
	client, err := s.cfg.Identify(to.Context())
	if err != nil {
		return err
	}
	r, err := s.newReader(req)
	if err != nil {
		return err
	}
	release, err := s.streams.Admit(client)
	if err != nil {
		return err
	}
	defer release()
	return stream.Serve(s.streams, to, r)
}

// newReader returns the state of a stream for a request. An error is for the client.
func (s *Server) newReader(req *writerv1.WatchEndpointsRequest) (*endpointReader, error) {
	filter, err := parseSelectors(req.GetServices())
	if err != nil {
		return nil, err
	}
	position, err := stream.ResumePosition(req.GetCursor(), req.GetDigest())
	return &endpointReader{
		store:             s.cfg.Store,
		filter:            filter,
		groupByPort:       req.GetGroupByPort(),
		position:          position,
		heartbeatInterval: stream.HeartbeatInterval,
	}, err
}

// endpointReader is the state of one stream: what it selects, the position that the client has reached,
// and the status it was sent last.
type endpointReader struct {
	store             *endpoints.Store
	filter            deltaset.Filter
	groupByPort       bool
	position          *deltaset.Position
	sentStatus        endpoints.Status
	heartbeatInterval time.Duration // to send with the next message; 0: sent already

	pending endpoints.Update
}

// Changed is the change signal of the store.
func (r *endpointReader) Changed() <-chan struct{} { return r.store.Changed() }

// Next returns the message that brings the client up to date.
func (r *endpointReader) Next() (stream.Kind, iter.Seq[*stream.Message[writerv1.WatchEndpointsResponse]]) {
	r.pending = r.store.Since(r.position, r.filter, r.groupByPort)
	kind := messageKind(r.pending, r.sentStatus)
	if kind == stream.Heartbeat && r.pending.Status.Synced {
		r.advance() // unselected entries have changed: that must not push this client out of the window
	}
	return kind, func(yield func(*stream.Message[writerv1.WatchEndpointsResponse]) bool) {
		for chunk := range stream.Chunks(r.pending.Removed, r.pending.Upserts, encodeEntry) {
			m := &writerv1.WatchEndpointsResponse{
				Reset_: r.pending.Reset && chunk.First, Status: encodeStatus(r.pending.Status),
				Removed: chunk.Removed, Upserts: chunk.Upserts,
			}
			if chunk.Last && r.pending.Status.Synced {
				m.Synced = true
				m.Cursor = &writerv1.Cursor{Epoch: r.pending.At.Epoch, Revision: r.pending.At.Revision}
				m.Digest = r.pending.At.Digest[:]
				m.Count = uint32(r.pending.Count)
			}
			if r.heartbeatInterval > 0 {
				m.HeartbeatInterval, r.heartbeatInterval = durationpb.New(r.heartbeatInterval), 0
			}
			if !yield(&stream.Message[writerv1.WatchEndpointsResponse]{Content: m}) {
				return
			}
		}
	}
}

// Sent advances the position after the message was sent.
func (r *endpointReader) Sent() {
	if r.pending.Status.Synced {
		r.advance()
	}
	r.sentStatus, r.pending = r.pending.Status, endpoints.Update{}
}

func (r *endpointReader) advance() {
	position := r.pending.At // a copy, because a pointer would keep the whole update alive
	r.position = &position
}

func messageKind(u endpoints.Update, sent endpoints.Status) stream.Kind {
	switch {
	case u.Reset:
		return stream.Reset
	case !u.Empty():
		return stream.Delta
	case !reflect.DeepEqual(u.Status, sent):
		return stream.Status
	default:
		return stream.Heartbeat
	}
}

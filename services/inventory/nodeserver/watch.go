package nodeserver

import (
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type watchStream = grpc.ServerStreamingServer[inventoryv1.WatchNodesResponse]

// WatchNodes streams the nodes of the client's view.
func (s *Server) WatchNodes(req *inventoryv1.WatchNodesRequest, stream watchStream) error {
	if err := req.Validate(); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	client, ok := s.cfg.Identify(stream.Context())
	if !ok {
		return errUnknown
	}
	depth := int(req.GetDoubtObservations())
	leave, err := s.admit(client, depth)
	if err != nil {
		s.cfg.Metrics.ended.WithLabelValues(endRefused).Inc()
		return err
	}
	defer leave()
	if req.GetObserveNow() {
		s.cfg.Observer.Doubt(max(1, depth))
	}
	mail := s.post(stream)
	defer mail.close()
	reason, err := s.watch(s.cfg.Stores.For(client.View), position(req), mail)
	s.cfg.Metrics.ended.WithLabelValues(reason).Inc()
	return err
}

func position(req *inventoryv1.WatchNodesRequest) *feed.Position {
	if req.GetCursor() == nil {
		return nil
	}
	return &feed.Position{
		Epoch: req.GetCursor().GetEpoch(), Revision: req.GetCursor().GetRevision(),
		Digest: feed.Digest(req.GetDigest()), // its length has been validated
	}
}

// watch tells one client what it lacks, again and again. All that is kept of the client is
// the position that it was led to; what changes while a message waits for its reader
// is found in the store afterwards, newest state only (rule R10).
func (s *Server) watch(store *feed.Store, at *feed.Position, mail *mail) (reason string, err error) {
	beat := time.NewTimer(s.cfg.Heartbeat)
	defer beat.Stop()
	var told roster.Status
	first, due := true, false
	for {
		changed := store.Changed()
		update := store.Since(at)
		kind := kindOf(update, told)
		if first && kind == kindHeartbeat {
			kind = kindStatus
		}
		if first || due || kind != kindHeartbeat {
			for m := range messages(update, time.Now) {
				if first {
					m.HeartbeatInterval = duration(s.cfg.Heartbeat)
					first = false
				}
				if reason, err := mail.send(m); err != nil {
					return reason, err
				}
				s.cfg.Metrics.messages.WithLabelValues(kind).Inc()
			}
			if update.Synced {
				led := update.At // not a pointer into the update: that would keep all of it
				at = &led
			}
			told, due = update.Status, false
			beat.Reset(s.cfg.Heartbeat)
			continue // what changed meanwhile is told at once
		}
		select {
		case <-changed:
		case <-beat.C:
			due = true
		case <-mail.stream.Context().Done():
			return endClient, status.FromContextError(mail.stream.Context().Err()).Err()
		case <-s.stopping:
			return endStopping, errStopping
		}
	}
}

func kindOf(u feed.Update, told roster.Status) string {
	switch {
	case u.Reset:
		return kindReset
	case !u.Empty():
		return kindDelta
	case !feed.SameWord(u.Status, told):
		return kindStatus
	default:
		return kindHeartbeat
	}
}

// mail sends messages one by one, and does not wait for ever. A Send that the reader does
// not take can be ended in one way alone, by returning from the handler: so another
// goroutine sends, and the handler is free to go. Once it has, grpc makes Send return.
type mail struct {
	stream   watchStream
	stall    time.Duration
	stopping <-chan struct{}
	out      chan *inventoryv1.WatchNodesResponse
	result   chan error
}

func (s *Server) post(stream watchStream) *mail {
	m := &mail{
		stream: stream, stall: s.cfg.Stall, stopping: s.stopping,
		out: make(chan *inventoryv1.WatchNodesResponse), result: make(chan error, 1),
	}
	s.live.Go(func() { // the stream itself is counted, so Stop has not stopped waiting
		for response := range m.out {
			m.result <- stream.Send(response)
		}
	})
	return m
}

func (m *mail) close() { close(m.out) }

var errStalled = status.Error(codes.ResourceExhausted, "nothing was read for too long: resume when there is somebody to read")

func (m *mail) send(response *inventoryv1.WatchNodesResponse) (reason string, err error) {
	stalled := time.NewTimer(m.stall)
	defer stalled.Stop()
	m.out <- response // the one before has been sent
	select {
	case err := <-m.result:
		if err == nil {
			return "", nil
		}
		if ctx := m.stream.Context(); ctx.Err() != nil {
			return endClient, status.FromContextError(ctx.Err()).Err()
		}
		return endFailed, err
	case <-stalled.C:
		return endStalled, errStalled
	case <-m.stream.Context().Done():
		return endClient, status.FromContextError(m.stream.Context().Err()).Err()
	case <-m.stopping:
		return endStopping, errStopping
	}
}

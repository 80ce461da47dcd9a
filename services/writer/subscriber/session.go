package subscriber

import (
	"context"
	"fmt"
	"sync"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"google.golang.org/grpc"
)

// Heartbeat intervals: the default until the first message, and the accepted range (rule R9).
const (
	defaultHeartbeat  = 5 * time.Second
	minHeartbeat      = time.Second
	maxHeartbeat      = time.Minute
	maxIdleHeartbeats = 3
)

// session is one connection to the inventory and its stream.
type session struct {
	heartbeat time.Duration
	received  bool      // the stream has delivered a message
	syncedAt  time.Time // when the stream was first synced
}

// runSession connects to the inventory and applies its messages until the stream ends, violates the
// protocol, or has no message for maxIdleHeartbeats intervals (rule R9).
func (s *Subscriber) runSession(ctx context.Context) sessionEnd {
	s.mirror.BeginStream()
	conn, err := s.cfg.Dial()
	if err != nil {
		return sessionEnd{err: err}
	}
	// Close may take a second: gRPC tries to send GOAWAY to a peer that does not read.
	defer s.closingConns.Go(func() { conn.Close() }) //nolint:errcheck // it can only fail if already closed
	ctx, cancel := context.WithCancel(ctx)
	var requests sync.WaitGroup
	defer requests.Wait()
	defer cancel()
	sess := &session{heartbeat: defaultHeartbeat}
	err = s.followStream(ctx, s.openStream(ctx, conn), sess, func() {
		requests.Go(func() { s.requestObservations(ctx, inventoryv1.NewInventoryServiceClient(conn)) })
	})
	end := sessionEnd{err: err}
	if !sess.syncedAt.IsZero() {
		end.synced = time.Since(sess.syncedAt)
	}
	return end
}

// followStream applies the messages of a stream, and returns why it ended. It calls onFirst once, after the
// first message.
func (s *Subscriber) followStream(ctx context.Context, stream *nodeStream, sess *session, onFirst func()) error {
	defer stream.close()
	idle := time.NewTimer(maxIdleHeartbeats * sess.heartbeat)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-idle.C:
			stream.close()
			if !sess.received { // gRPC's error of the connection attempt is more specific
				return fmt.Errorf("no message from the inventory within %s: %w", maxIdleHeartbeats*sess.heartbeat, stream.err)
			}
			return fmt.Errorf("no message from the inventory for %s", maxIdleHeartbeats*sess.heartbeat)
		case m, ok := <-stream.messages:
			if !ok {
				return stream.err
			}
			first := !sess.received
			if err := s.applyMessage(sess, m); err != nil {
				return err
			}
			if first {
				onFirst()
			}
			idle.Reset(maxIdleHeartbeats * sess.heartbeat)
		}
	}
}

// applyMessage applies a message of the current stream.
func (s *Subscriber) applyMessage(sess *session, m *inventoryv1.WatchNodesResponse) error {
	now := time.Now()
	s.cfg.Metrics.messages.WithLabelValues(s.cfg.Source).Inc()
	s.cfg.Metrics.lastMessage.WithLabelValues(s.cfg.Source).Set(unixSeconds(now))
	if !sess.received {
		sess.received = true
		sess.heartbeat = heartbeatInterval(m)
		s.log.Info("stream opened", "heartbeat", sess.heartbeat)
	}
	synced, err := s.mirror.Apply(now, m)
	if err != nil {
		return err
	}
	if synced && sess.syncedAt.IsZero() {
		sess.syncedAt = now
	}
	s.connected = true
	s.publishSnapshot(now)
	tracepoint.Mark(tracepoint.DeltaApplied)
	s.logDelta(m)
	return nil
}

func heartbeatInterval(m *inventoryv1.WatchNodesResponse) time.Duration {
	if m.GetHeartbeatInterval() == nil {
		return defaultHeartbeat
	}
	return min(max(m.GetHeartbeatInterval().AsDuration(), minHeartbeat), maxHeartbeat)
}

const (
	// minObserveInterval is the minimum time between two requests for observations. It equals the time
	// between two observations of one request.
	minObserveInterval = 5 * time.Second

	observeTimeout     = 5 * time.Second
	maxObserveResponse = 1 << 10 // bytes
)

// requestObservations passes the requests of ObserveNow to the inventory until ctx is done. The stream does
// not depend on it: a request that fails or hangs delays no message and changes no trust.
func (s *Subscriber) requestObservations(ctx context.Context, inventory inventoryv1.InventoryServiceClient) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(minObserveInterval - time.Since(s.observeRequestedAt)):
		}
		select {
		case <-ctx.Done():
			return
		case <-s.observeCh:
		}
		s.observeRequestedAt = time.Now()
		call, cancel := context.WithTimeout(ctx, observeTimeout)
		response, err := inventory.RequestObservations(call, &inventoryv1.RequestObservationsRequest{Observations: s.confirmObservations()},
			grpc.MaxCallRecvMsgSize(maxObserveResponse))
		cancel()
		if err != nil {
			s.log.Warn("request for observations failed", "error", err)
		} else {
			s.log.Info("observations requested", "requested", s.confirmObservations(), "granted", response.GetGranted())
		}
	}
}

func (s *Subscriber) confirmObservations() uint32 {
	return uint32(min(max(s.cfg.ConfirmObservations, 0), contract.MaxConfirmObservations))
}

package subscriber

import (
	"context"
	"errors"
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
	inventory := inventoryv1.NewInventoryServiceClient(conn)
	err = s.followStream(ctx, inventory, sess, func() {
		requests.Go(func() { s.requestObservations(ctx, inventory) })
	})
	end := sessionEnd{err: err}
	if !sess.syncedAt.IsZero() {
		end.synced = time.Since(sess.syncedAt)
	}
	return end
}

// followStream opens a stream and applies its messages, and returns why it ended. It calls onFirst after the
// first message.
func (s *Subscriber) followStream(ctx context.Context, inventory inventoryv1.InventoryServiceClient, sess *session, onFirst func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(maxIdleHeartbeats*sess.heartbeat, func() { cancel(errIdle) })
	defer idle.Stop()
	// Without WaitForReady the call fails with the first connection attempt, instead of waiting for the
	// channel's backoff.
	stream, err := inventory.WatchNodes(ctx, s.newRequest(), grpc.ForceCodecV2(newLimitedCodec()))
	for err == nil {
		var m *inventoryv1.WatchNodesResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		tracepoint.Mark(tracepoint.DeltaReceived)
		first := !sess.received
		if err := s.applyMessage(sess, m); err != nil {
			return err
		}
		if first {
			onFirst()
		}
		idle.Reset(maxIdleHeartbeats * sess.heartbeat)
	}
	if errors.Is(context.Cause(ctx), errIdle) {
		return fmt.Errorf("%w for %s: %w", errIdle, maxIdleHeartbeats*sess.heartbeat, err)
	}
	return err
}

var errIdle = errors.New("no message from the inventory")

// newRequest resumes from the mirror's cursor and digest, or restarts without them (rules R5, R6, R7).
func (s *Subscriber) newRequest() *inventoryv1.WatchNodesRequest {
	req := &inventoryv1.WatchNodesRequest{ConfirmObservations: s.confirmObservations()}
	if cursor, digest, ok := s.mirror.ResumePoint(); ok {
		req.Cursor = &inventoryv1.Cursor{Epoch: cursor.Epoch, Revision: cursor.Revision}
		req.Digest = digest[:]
	}
	return req
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

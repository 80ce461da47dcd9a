package subscriber

import (
	"context"
	"errors"
	"fmt"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
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

var errIdle = errors.New("no message from the inventory")

// session is one connection to the inventory and its stream.
type session struct {
	heartbeat time.Duration
	received  bool      // the stream has delivered a message
	syncedAt  time.Time // when the stream was first synced
}

// runSession connects to the inventory and applies its messages until the stream ends, violates the
// protocol, or has no message for maxIdleHeartbeats intervals (rule R9). It returns how long the stream
// was synced, and why it ended.
func (c *client) runSession(ctx context.Context) (synced time.Duration, err error) {
	c.mirror.BeginStream()
	conn, err := c.dial()
	if err != nil {
		return 0, err
	}
	// Close may take a second: gRPC tries to send GOAWAY to a peer that does not read.
	defer c.closingConns.Go(func() { conn.Close() }) //nolint:errcheck // it can only fail if already closed
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	inventory, sess := inventoryv1.NewInventoryServiceClient(conn), &session{heartbeat: defaultHeartbeat}
	idle := time.AfterFunc(maxIdleHeartbeats*sess.heartbeat, func() { cancel(errIdle) })
	defer idle.Stop()
	// Resume from the cursor and digest, or restart without them (rules R5, R6, R7).
	req := &inventoryv1.WatchNodesRequest{Service: c.service}
	if cursor, digest, ok := c.mirror.ResumePoint(); ok {
		req.Cursor, req.Digest = &inventoryv1.Cursor{Epoch: cursor.Epoch, Revision: cursor.Revision}, digest[:]
	}
	// Without WaitForReady the call fails with the first connection attempt, instead of waiting for the
	// channel's backoff.
	stream, err := inventory.WatchNodes(ctx, req, grpc.ForceCodecV2(newLimitedCodec()))
	for err == nil {
		var m *inventoryv1.WatchNodesResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		tracepoint.Mark(tracepoint.DeltaReceived)
		if err = c.applyMessage(sess, m); err != nil {
			break
		}
		idle.Reset(maxIdleHeartbeats * sess.heartbeat)
	}
	if errors.Is(context.Cause(ctx), errIdle) {
		err = fmt.Errorf("%w for %s: %w", errIdle, maxIdleHeartbeats*sess.heartbeat, err)
	}
	if !sess.syncedAt.IsZero() {
		synced = time.Since(sess.syncedAt)
	}
	return synced, err
}

// applyMessage applies a message of the current stream.
func (c *client) applyMessage(sess *session, m *inventoryv1.WatchNodesResponse) error {
	now := time.Now()
	c.metrics.messages.WithLabelValues(c.feed).Inc()
	c.metrics.lastMessage.WithLabelValues(c.feed).Set(unixSeconds(now))
	if !sess.received {
		if m.GetService() != c.service { // the set of an older inventory, which does not know the field, is another one
			return &Violation{
				Kind:   OtherService,
				Detail: fmt.Sprintf("the stream is of service %.253q, requested %q", m.GetService(), c.service),
			}
		}
		sess.received = true
		if m.GetHeartbeatInterval() != nil {
			sess.heartbeat = min(max(m.GetHeartbeatInterval().AsDuration(), minHeartbeat), maxHeartbeat)
		}
		c.log.Info("stream opened", "heartbeat", sess.heartbeat)
	}
	synced, err := c.mirror.Apply(now, m)
	if err != nil {
		return err
	}
	if synced && sess.syncedAt.IsZero() {
		sess.syncedAt = now
	}
	c.connected, c.denial = true, ""
	c.logDelta(m) // before others see the change, so that their lines follow
	c.publish(now)
	tracepoint.Mark(tracepoint.DeltaApplied)
	return nil
}

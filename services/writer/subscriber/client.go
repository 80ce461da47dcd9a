package subscriber

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// connection is a gRPC connection that can be closed.
type connection interface {
	grpc.ClientConnInterface
	Close() error
}

// client follows one set of an inventory.
type client struct {
	source, service string
	feed            string // the name of the set
	dial            func() (connection, error)
	random          func() float64
	log             *slog.Logger
	metrics         *Metrics
	publish         func(now time.Time) // is called after each change

	// Feeds guards these.
	users     map[string]struct{} // targets
	stop      context.CancelFunc
	published Snapshot

	// Only run uses the fields below.
	mirror       *Mirror
	schedule     Schedule
	closingConns sync.WaitGroup // connections of earlier sessions
	connected    bool
	denial       string         // see Snapshot
	failureLog   rate.Sometimes // limits log lines about an unreachable inventory
}

// failureLogInterval limits log lines about failed connection attempts, one of which fails about every 2 s during an
// outage.
const failureLogInterval = 30 * time.Second

// newClient returns a client without any nodes.
func newClient(cfg Config, service string) *client {
	c := &client{
		source:     cfg.Source,
		service:    service,
		feed:       FeedName(cfg.Source, service),
		dial:       func() (connection, error) { return cfg.Dial() },
		random:     cfg.Random,
		metrics:    cfg.Metrics,
		mirror:     NewMirror(),
		users:      map[string]struct{}{},
		failureLog: rate.Sometimes{First: 1, Interval: failureLogInterval},
	}
	if c.random == nil {
		c.random = rand.Float64
	}
	c.log = cfg.Log.With("source", c.feed)
	c.metrics.initSource(c.feed)
	c.published = c.snapshot()
	return c
}

// snapshot returns the state of the source, without ChangedAt.
func (c *client) snapshot() Snapshot {
	s := c.mirror.Snapshot()
	s.Source, s.Service, s.Connected, s.Denial = c.source, c.service, c.connected, c.denial
	return s
}

// run follows the inventory until ctx is done. The set survives the end of any stream.
func (c *client) run(ctx context.Context) {
	defer c.closingConns.Wait()
	for {
		synced, err := c.runSession(ctx)
		c.connected, c.denial = false, ""
		if isDenial(synced, err) {
			c.denial = display.Truncate(status.Convert(err).Message(), contract.MaxTextLength)
		}
		c.mirror.BeginStream()
		c.publish(time.Now())
		if ctx.Err() != nil {
			return
		}
		wait := c.handleSessionEnd(synced, err)
		c.metrics.reconnects.WithLabelValues(c.feed).Inc()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// handleSessionEnd decides whether the next session keeps the cursor, and returns the delay before it
// (rule R14). synced is how long the stream was synced.
func (c *client) handleSessionEnd(synced time.Duration, err error) time.Duration {
	violation, code := asViolation(err), status.Code(err)
	if violation != nil {
		c.metrics.violations.WithLabelValues(c.feed, string(violation.Kind)).Inc()
	}
	if violation != nil || code == codes.InvalidArgument { // must not be sent again unchanged
		c.mirror.ClearCursor()
	}
	wait := c.schedule.Next(synced, violation != nil, c.random())
	log := c.log.With("error", err, "synced_for", synced, "retry_in", wait)
	repeated := violation == nil && synced == 0
	if repeated {
		c.failureLog.Do(func() { repeated = false })
	}
	switch {
	case repeated:
		log.Debug("stream closed again before it was synced")
	case violation != nil:
		log.Error("protocol violation; keeping current set, resyncing", "kind", string(violation.Kind))
	case code == codes.InvalidArgument:
		log.Error("inventory rejected the request; retrying without a cursor")
	case code == codes.PermissionDenied || code == codes.Unauthenticated:
		log.Error(
			"inventory denied permission; check that its ALLOWED_CLIENTS_FILE has the SAN of this writer, and the Service if it exports Services",
		)
	case code == codes.FailedPrecondition:
		log.Error("inventory is not of the kind that was requested; check whether it exports Services, and the source of the Service")
	case code == codes.Unavailable && synced > 0:
		log.Info("stream closed, reconnecting")
	default:
		log.Warn("stream closed unexpectedly, reconnecting")
	}
	return wait
}

// isDenial reports whether a stream ended because the inventory rejected its request. A stream that was synced was
// not above a limit: RESOURCE_EXHAUSTED then means that this client did not read its messages (rule R10).
func isDenial(synced time.Duration, err error) bool {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.FailedPrecondition, codes.InvalidArgument:
		return true
	case codes.ResourceExhausted:
		return synced == 0 && asViolation(err) == nil
	}
	return false
}

// asViolation returns the protocol violation that an error stands for, or nil. gRPC rejects messages
// that are too large or have too many fields before the mirror gets them. These errors have no code of
// their own, so they are recognized by their text.
func asViolation(err error) *Violation {
	if v := (*Violation)(nil); errors.As(err, &v) {
		return v
	}
	if code := status.Code(err); (code == codes.ResourceExhausted || code == codes.Internal) && isOversized(status.Convert(err).Message()) {
		return &Violation{Kind: LimitExceeded, Detail: status.Convert(err).Message()}
	}
	return nil
}

// logDelta logs a message that changed the set. Others, such as heartbeats, have no line.
func (c *client) logDelta(m *inventoryv1.WatchNodesResponse) {
	if !m.GetReset_() && len(m.GetUpserts())+len(m.GetRemoved()) == 0 || !tracepoint.Enabled(c.log) {
		return
	}
	tracepoint.Log(c.log, tracepoint.DeltaApplied,
		slog.String("epoch", m.GetCursor().GetEpoch()), slog.Uint64("revision", m.GetCursor().GetRevision()),
		slog.Uint64("observation", m.GetStatus().GetObservation()),
		slog.Bool("reset", m.GetReset_()), slog.Int("upserts", len(m.GetUpserts())), slog.Int("removed", len(m.GetRemoved())),
		slog.Int("members", c.mirror.Snapshot().Nodes))
}

// logChanges logs the important changes.
func (c *client) logChanges(old, now Snapshot) {
	if now.SyncedInStream && (!old.SyncedInStream || old.Cursor.Epoch != now.Cursor.Epoch) {
		c.log.Info("synced with inventory", "epoch", now.Cursor.Epoch, "revision", now.Cursor.Revision, "members", now.Nodes)
	}
	for _, p := range []struct {
		name     string
		old, now PartStatus
	}{{"membership", old.Membership, now.Membership}, {"addresses", old.Addresses, now.Addresses}} {
		if p.old.State != p.now.State || p.old.Since.IsZero() != p.now.Since.IsZero() {
			c.log.Info("source status changed", "part", p.name, "state", p.now.StateName(), "reason", p.now.Reason)
		}
	}
}

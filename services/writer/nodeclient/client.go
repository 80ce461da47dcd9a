// Package nodeclient keeps a WatchNodes stream to each inventory open, and publishes what its messages
// say. It guarantees that the last set survives the end of any stream, and that an inventory that returns
// is followed again soon without a storm of calls. Package subscriber checks the messages.
package nodeclient

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Config configures a Client. All fields except Random are required.
type Config struct {
	Source  string // the inventory's name in the configuration
	Service string // that the inventory exports, as namespace/name; empty: it publishes one set
	// Dial returns a connection to the inventory without waiting for it. Each session has its own, or shares one that has
	// not failed, so that rule R14 alone decides when to connect again: the backoff of a long-lived gRPC channel grows
	// during an outage, and its resolver queries DNS at most twice a minute.
	Dial    func() (Conn, error)
	Log     *slog.Logger
	Metrics *Metrics // shared by all clients of the process

	Random func() float64 // uniform in [0, 1); nil: math/rand/v2
}

// Conn is a gRPC connection that can be closed.
type Conn interface {
	grpc.ClientConnInterface
	Close() error
}

// Client follows one inventory. Snapshot, Changed and Retire are safe for concurrent use, also
// before and after Run.
type Client struct {
	cfg       Config
	feed      string // the name of the set
	log       *slog.Logger
	snapshot  atomic.Pointer[subscriber.Snapshot]
	changedCh chan struct{}

	publishing sync.Mutex // held while a snapshot is published
	retired    bool

	// Only Run uses the fields below.
	mirror       *subscriber.Mirror
	schedule     Schedule
	closingConns sync.WaitGroup // connections of earlier sessions
	connected    bool
	denial       string         // see subscriber.Snapshot
	failureLog   rate.Sometimes // limits log lines about an unreachable inventory
}

// failureLogInterval limits log lines about failed connection attempts, one of which fails about every 2 s during an
// outage.
const failureLogInterval = 30 * time.Second

// New returns a client without any nodes.
func New(cfg Config) *Client {
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	s := &Client{
		cfg:        cfg,
		log:        cfg.Log.With("source", subscriber.FeedName(cfg.Source, cfg.Service)),
		mirror:     subscriber.NewMirror(),
		changedCh:  make(chan struct{}, 1),
		failureLog: rate.Sometimes{First: 1, Interval: failureLogInterval},
	}
	s.feed = subscriber.FeedName(cfg.Source, cfg.Service)
	cfg.Metrics.initSource(s.feed)
	s.publishSnapshot(time.Time{})
	return s
}

// Snapshot returns the current state of the source.
func (s *Client) Snapshot() subscriber.Snapshot { return *s.snapshot.Load() }

// Changed is signaled after the snapshot has changed in more than ages and times. Several changes may
// be signaled once.
func (s *Client) Changed() <-chan struct{} { return s.changedCh }

// Retire stops the publication of snapshots and of their metrics: once it returns, another client can publish those of the
// same set. It does not end Run.
func (s *Client) Retire() {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.retired = true
}

// Run follows the inventory until ctx is done, and then returns nil. The set survives the end of any stream.
func (s *Client) Run(ctx context.Context) error {
	defer s.closingConns.Wait()
	for {
		synced, err := s.runSession(ctx)
		s.connected, s.denial = false, ""
		if isDenial(synced, err) {
			s.denial = display.Truncate(status.Convert(err).Message(), contract.MaxTextLength)
		}
		s.mirror.BeginStream()
		s.publishSnapshot(time.Now())
		if ctx.Err() != nil {
			return nil
		}
		wait := s.handleSessionEnd(synced, err)
		s.cfg.Metrics.reconnects.WithLabelValues(s.feed).Inc()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// handleSessionEnd decides whether the next session keeps the cursor, and returns the delay before it
// (rule R14). synced is how long the stream was synced.
func (s *Client) handleSessionEnd(synced time.Duration, err error) time.Duration {
	violation, code := asViolation(err), status.Code(err)
	if violation != nil {
		s.cfg.Metrics.violations.WithLabelValues(s.feed, string(violation.Kind)).Inc()
	}
	if violation != nil || code == codes.InvalidArgument { // must not be sent again unchanged
		s.mirror.ClearCursor()
	}
	wait := s.schedule.Next(synced, violation != nil, s.cfg.Random())
	log := s.log.With("error", err, "synced_for", synced, "retry_in", wait)
	repeated := violation == nil && synced == 0
	if repeated {
		s.failureLog.Do(func() { repeated = false })
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
func asViolation(err error) *subscriber.Violation {
	if v := (*subscriber.Violation)(nil); errors.As(err, &v) {
		return v
	}
	if code := status.Code(err); (code == codes.ResourceExhausted || code == codes.Internal) && isOversized(status.Convert(err).Message()) {
		return &subscriber.Violation{Kind: subscriber.LimitExceeded, Detail: status.Convert(err).Message()}
	}
	return nil
}

// logDelta logs a message that changed the set. Others, such as heartbeats, have no line.
func (s *Client) logDelta(m *inventoryv1.WatchNodesResponse) {
	if !m.GetReset_() && len(m.GetUpserts())+len(m.GetRemoved()) == 0 || !tracepoint.Enabled(s.log) {
		return
	}
	tracepoint.Log(s.log, tracepoint.DeltaApplied,
		slog.String("epoch", m.GetCursor().GetEpoch()), slog.Uint64("revision", m.GetCursor().GetRevision()),
		slog.Uint64("observation", m.GetStatus().GetObservation()),
		slog.Bool("reset", m.GetReset_()), slog.Int("upserts", len(m.GetUpserts())), slog.Int("removed", len(m.GetRemoved())),
		slog.Int("members", len(s.mirror.Snapshot().Members)))
}

// publishSnapshot stores the snapshot of the mirror and signals a change, unless the client is retired.
func (s *Client) publishSnapshot(now time.Time) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	if s.retired {
		return
	}
	snap := s.mirror.Snapshot()
	snap.Source, snap.Service, snap.Connected, snap.Denial, snap.ChangedAt = s.cfg.Source, s.cfg.Service, s.connected, s.denial, now
	old := s.snapshot.Load()
	changed := old == nil || old.Differs(snap)
	if !changed {
		snap.ChangedAt = old.ChangedAt
	}
	s.snapshot.Store(&snap)
	s.cfg.Metrics.setSnapshot(snap)
	if old == nil || !changed {
		return
	}
	s.logChanges(*old, snap)
	select {
	case s.changedCh <- struct{}{}:
	default:
	}
}

// logChanges logs the important changes.
func (s *Client) logChanges(old, now subscriber.Snapshot) {
	if now.SyncedInStream && (!old.SyncedInStream || old.Cursor.Epoch != now.Cursor.Epoch) {
		s.log.Info("synced with inventory", "epoch", now.Cursor.Epoch, "revision", now.Cursor.Revision, "members", len(now.Members))
	}
	for _, p := range []struct {
		name     string
		old, now subscriber.PartStatus
	}{{"membership", old.Membership, now.Membership}, {"addresses", old.Addresses, now.Addresses}} {
		if p.old.State != p.now.State || p.old.Since.IsZero() != p.now.Since.IsZero() {
			s.log.Info("source status changed", "part", p.name, "state", p.now.State.String(), "reason", p.now.Reason)
		}
	}
}

package subscriber

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Config is what a subscriber needs. All fields but Random are mandatory.
type Config struct {
	Source string // the inventory's name in our configuration
	// Dial opens a connection to the inventory, without waiting for it. Each conversation has its own, so
	// that rule R14 alone decides when to connect again: the backoff of a gRPC channel that lives on grows
	// during an outage, and its resolver asks DNS at most twice a minute.
	Dial    func() (Conn, error)
	Log     *slog.Logger
	Metrics *Metrics // shared by all subscribers of the process

	// ConfirmObservations is how many complete observations we need before we act on a
	// doubtful word, at most inventoryv1.MaxConfirmObservations.
	ConfirmObservations int

	Random func() float64 // uniform in [0, 1); nil: math/rand/v2
}

// Conn is a connection that calls can be made on until it is closed.
type Conn interface {
	grpc.ClientConnInterface
	Close() error
}

// Subscriber follows one inventory. Snapshot, Changed and ObserveNow may be used by any
// goroutine, before and after Run too.
type Subscriber struct {
	cfg       Config
	log       *slog.Logger
	snapshot  atomic.Pointer[Snapshot]
	changedCh chan struct{}
	observeCh chan struct{}

	// What follows is Run's alone.
	mirror             *Mirror
	schedule           Schedule
	closing            sync.WaitGroup // connections of earlier conversations
	connected          bool
	observeRequestedAt time.Time      // when we last asked for a series of observations
	logLimiter         *rate.Limiter  // of the log, about what the inventory says: it may say another thing each moment
	failureLog         rate.Sometimes // limits log lines about an inventory that cannot be reached
}

// failureLogInterval is how often an attempt to connect that failed is logged: in an outage one fails every 2 s or so.
const failureLogInterval = 30 * time.Second

// New returns a subscriber that holds nothing yet.
func New(cfg Config) *Subscriber {
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	s := &Subscriber{
		cfg: cfg, log: cfg.Log.With("source", cfg.Source), mirror: NewMirror(),
		changedCh: make(chan struct{}, 1), observeCh: make(chan struct{}, 1), logLimiter: rate.NewLimiter(maxLogRate, maxLogBurst),
		failureLog: rate.Sometimes{First: 1, Interval: failureLogInterval},
	}
	cfg.Metrics.initSource(cfg.Source)
	s.publishSnapshot(time.Time{})
	return s
}

// Snapshot returns what the inventory says, as far as we know now.
func (s *Subscriber) Snapshot() Snapshot { return *s.snapshot.Load() }

// Changed delivers when the snapshot says something else than before; mere ages and
// Snapshot.MembershipSyncedAt do not count. It has room for one: several changes may come as one.
func (s *Subscriber) Changed() <-chan struct{} { return s.changedCh }

// ObserveNow asks the inventory for a series of complete observations, as many as
// Config.ConfirmObservations. It does not wait, and asking again at once asks once.
func (s *Subscriber) ObserveNow() {
	select {
	case s.observeCh <- struct{}{}:
	default:
	}
}

// Run follows the inventory until ctx is done, and then returns nil. It keeps the set
// whatever happens to the streams.
func (s *Subscriber) Run(ctx context.Context) error {
	defer s.closing.Wait()
	for {
		end := s.runSession(ctx)
		s.connected = false
		s.mirror.BeginStream()
		s.publishSnapshot(time.Now())
		if ctx.Err() != nil {
			return nil
		}
		wait := s.handleSessionEnd(end)
		s.cfg.Metrics.reconnects.WithLabelValues(s.cfg.Source).Inc()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// sessionEnd is how a conversation came to its end.
type sessionEnd struct {
	err    error
	synced time.Duration // for how long it had been synced
}

// handleSessionEnd draws the lesson from an end: what to start over with, and after which delay (rule R14).
func (s *Subscriber) handleSessionEnd(end sessionEnd) time.Duration {
	b := asViolation(end.err)
	if b != nil {
		s.mirror.ClearCursor()
		s.cfg.Metrics.violations.WithLabelValues(s.cfg.Source, string(b.Kind)).Inc()
	}
	wait := s.schedule.Next(end.synced, b != nil, s.cfg.Random())
	log := s.log.With("error", end.err, "synced_for", end.synced, "again_in", wait)
	code := status.Code(end.err)
	if code == codes.InvalidArgument { // not to be repeated unchanged
		s.mirror.ClearCursor()
	}
	repeated := b == nil && end.synced == 0
	if repeated {
		s.failureLog.Do(func() { repeated = false })
	}
	switch {
	case repeated:
		log.Debug("stream ended before it was synced, as the one before")
	case b != nil:
		log.Error("inventory broke the contract: its set is kept, the next stream starts over", "kind", string(b.Kind))
	case code == codes.InvalidArgument:
		log.Error("inventory refuses the request, the next one is sent without a cursor")
	case code == codes.PermissionDenied || code == codes.Unauthenticated:
		log.Error("inventory does not let us in")
	case code == codes.Unavailable && end.synced > 0:
		log.Info("stream ended, as each one does")
	default:
		log.Warn("stream ended")
	}
	return wait
}

// asViolation finds the breach in an error. A message that is too large never gets past grpc,
// nor one that has too much in it: their errors have no code of their own, and are known by their text.
func asViolation(err error) *Violation {
	if b := (*Violation)(nil); errors.As(err, &b) {
		return b
	}
	if code := status.Code(err); (code == codes.ResourceExhausted || code == codes.Internal) && isOversized(status.Convert(err).Message()) {
		return violationf(LimitExceeded, "%s", status.Convert(err).Message())
	}
	return nil
}

// Heartbeat intervals: what is assumed until the first message, and what is accepted (rule R9).
const (
	defaultHeartbeat  = 5 * time.Second
	minHeartbeat      = time.Second
	maxHeartbeat      = time.Minute
	maxIdleHeartbeats = 3
)

// minObserveInterval is how far apart two requests for a series are at least: as far
// as two observations of one.
const minObserveInterval = 5 * time.Second

// session is the life of a stream, and of those that took its place without a gap.
type session struct {
	current   *nodeStream
	next      *nodeStream // asks for a series, and takes the place of current with its first message
	heartbeat time.Duration
	received  bool      // current has spoken
	syncedAt  time.Time // when the conversation was synced first
}

func (s *Subscriber) runSession(ctx context.Context) sessionEnd {
	s.mirror.BeginStream()
	conn, err := s.cfg.Dial()
	if err != nil {
		return sessionEnd{err: err}
	}
	// It may take a second, while grpc tries to say goodbye to a peer that reads nothing.
	defer s.closing.Go(func() { conn.Close() }) //nolint:errcheck // all that it can say is that it is closed
	c := &session{heartbeat: defaultHeartbeat, current: s.openStream(ctx, conn, s.takeObserveRequest())}
	defer func() {
		c.current.close()
		c.next.close()
	}()
	end := func(err error) sessionEnd {
		e := sessionEnd{err: err}
		if !c.syncedAt.IsZero() {
			e.synced = time.Since(c.syncedAt)
		}
		return e
	}
	idle := time.NewTimer(maxIdleHeartbeats * c.heartbeat)
	defer idle.Stop()
	for {
		// While the next stream is about to take over, the current one is not read: the
		// next one starts from what we hold now, and that must not move.
		current, next := c.current.messages, (<-chan *inventoryv1.WatchNodesResponse)(nil)
		observe, observeDue := s.observeCh, (<-chan time.Time)(nil)
		switch wait := minObserveInterval - time.Since(s.observeRequestedAt); {
		case c.next != nil:
			current, next, observe = nil, c.next.messages, nil
		case !c.received:
			observe = nil
		case wait > 0:
			observe, observeDue = nil, time.After(wait)
		}
		var m *inventoryv1.WatchNodesResponse
		select {
		case <-ctx.Done():
			return end(ctx.Err())
		case <-idle.C:
			c.current.close()
			if !c.received { // what grpc says of the connection explains it better
				return end(fmt.Errorf("no word from the inventory within %s: %w", maxIdleHeartbeats*c.heartbeat, c.current.err))
			}
			return end(fmt.Errorf("no word from the inventory for %s", maxIdleHeartbeats*c.heartbeat))
		case <-observeDue:
			continue
		case <-observe:
			s.log.Info("asking the inventory for complete observations", "observations", s.cfg.ConfirmObservations)
			c.next = s.openStream(ctx, conn, true)
			continue
		case got, ok := <-next:
			if !ok {
				s.log.Warn("inventory does not answer the request for observations, the present stream goes on", "error", c.next.err)
				c.next.close()
				c.next = nil
				continue
			}
			c.current.close()
			c.current, c.next, c.received, m = c.next, nil, false, got
			s.mirror.BeginStream()
		case got, ok := <-current:
			if !ok {
				return end(c.current.err)
			}
			m = got
		}
		if err := s.applyMessage(c, m); err != nil {
			return end(err)
		}
		idle.Reset(maxIdleHeartbeats * c.heartbeat)
	}
}

// applyMessage applies a message of the current stream.
func (s *Subscriber) applyMessage(c *session, m *inventoryv1.WatchNodesResponse) error {
	now := time.Now()
	s.cfg.Metrics.messages.WithLabelValues(s.cfg.Source).Inc()
	s.cfg.Metrics.lastMessage.WithLabelValues(s.cfg.Source).Set(unixSeconds(now))
	if !c.received {
		c.received = true
		c.heartbeat = heartbeatInterval(m)
		s.log.Info("stream opened", "heartbeat", c.heartbeat)
	}
	synced, err := s.mirror.Apply(now, m)
	if err != nil {
		return err
	}
	if synced && c.syncedAt.IsZero() {
		c.syncedAt = now
	}
	s.connected = true
	s.publishSnapshot(now)
	tracepoint.Log(tracepoint.Applied)
	return nil
}

func heartbeatInterval(m *inventoryv1.WatchNodesResponse) time.Duration {
	if m.GetHeartbeatInterval() == nil {
		return defaultHeartbeat
	}
	return min(max(m.GetHeartbeatInterval().AsDuration(), minHeartbeat), maxHeartbeat)
}

// takeObserveRequest takes the wish for a series of observations, if there is one.
func (s *Subscriber) takeObserveRequest() bool {
	select {
	case <-s.observeCh:
		return true
	default:
		return false
	}
}

// publishSnapshot makes what came at this time known.
func (s *Subscriber) publishSnapshot(now time.Time) {
	snap := s.mirror.Snapshot()
	snap.Source, snap.Connected, snap.ChangedAt = s.cfg.Source, s.connected, now
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

// logChanges logs what people want to know of a change, unless there is one after another.
func (s *Subscriber) logChanges(old, now Snapshot) {
	if now.SyncedInStream && (!old.SyncedInStream || old.Cursor.Epoch != now.Cursor.Epoch) && s.logLimiter.Allow() {
		s.log.Info("in step with the inventory", "epoch", now.Cursor.Epoch, "revision", now.Cursor.Revision, "members", len(now.Members))
	}
	for _, p := range []struct {
		name     string
		old, now PartStatus
	}{{"membership", old.Membership, now.Membership}, {"addresses", old.Addresses, now.Addresses}} {
		if (p.old.State != p.now.State || p.old.Since.IsZero() != p.now.Since.IsZero()) && s.logLimiter.Allow() {
			s.log.Info("inventory's word changed", "part", p.name, "state", p.now.State.String(), "reason", p.now.Reason)
		}
	}
}

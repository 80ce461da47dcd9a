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
	cfg      Config
	log      *slog.Logger
	snapshot atomic.Pointer[Snapshot]
	changed  chan struct{}
	observe  chan struct{}

	// What follows is Run's alone.
	view     *View
	schedule Schedule
	closing  sync.WaitGroup // connections of earlier conversations
	alive    bool
	asked    time.Time      // when we last asked for a series of observations
	lines    *rate.Limiter  // of the log, about what the inventory says: it may say another thing each moment
	failures rate.Sometimes // limits log lines about an inventory that cannot be reached
}

// failuresPace is how often an attempt to connect that failed is logged: in an outage one fails every 2 s or so.
const failuresPace = 30 * time.Second

// New returns a subscriber that holds nothing yet.
func New(cfg Config) *Subscriber {
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	s := &Subscriber{
		cfg: cfg, log: cfg.Log.With("source", cfg.Source), view: NewView(),
		changed: make(chan struct{}, 1), observe: make(chan struct{}, 1), lines: rate.NewLimiter(linesPace, linesBurst),
		failures: rate.Sometimes{First: 1, Interval: failuresPace},
	}
	cfg.Metrics.begin(cfg.Source)
	s.publish(time.Time{})
	return s
}

// Snapshot returns what the inventory says, as far as we know now.
func (s *Subscriber) Snapshot() Snapshot { return *s.snapshot.Load() }

// Changed delivers when the snapshot says something else than before; mere ages and
// Snapshot.WordAt do not count. It has room for one: several changes may come as one.
func (s *Subscriber) Changed() <-chan struct{} { return s.changed }

// ObserveNow asks the inventory for a series of complete observations, as many as
// Config.ConfirmObservations. It does not wait, and asking again at once asks once.
func (s *Subscriber) ObserveNow() {
	select {
	case s.observe <- struct{}{}:
	default:
	}
}

// Run follows the inventory until ctx is done, and then returns nil. It keeps the set
// whatever happens to the streams.
func (s *Subscriber) Run(ctx context.Context) error {
	defer s.closing.Wait()
	for {
		end := s.converse(ctx)
		s.alive = false
		s.view.Begin()
		s.publish(time.Now())
		if ctx.Err() != nil {
			return nil
		}
		wait := s.next(end)
		s.cfg.Metrics.reconnects.WithLabelValues(s.cfg.Source).Inc()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// ended is how a conversation came to its end.
type ended struct {
	err    error
	synced time.Duration // for how long it had been synced
}

// next draws the lesson from an end: what to start over with, and after which delay (rule R14).
func (s *Subscriber) next(end ended) time.Duration {
	b := asBreach(end.err)
	if b != nil {
		s.view.Forget()
		s.cfg.Metrics.breaches.WithLabelValues(s.cfg.Source, string(b.Kind)).Inc()
	}
	wait := s.schedule.Next(end.synced, b != nil, s.cfg.Random())
	log := s.log.With("error", end.err, "synced_for", end.synced, "again_in", wait)
	code := status.Code(end.err)
	if code == codes.InvalidArgument { // not to be repeated unchanged
		s.view.Forget()
	}
	repeated := b == nil && end.synced == 0
	if repeated {
		s.failures.Do(func() { repeated = false })
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

// asBreach finds the breach in an error. A message that is too large never gets past grpc,
// nor one that has too much in it: their errors have no code of their own, and are known by their text.
func asBreach(err error) *Breach {
	if b := (*Breach)(nil); errors.As(err, &b) {
		return b
	}
	if code := status.Code(err); (code == codes.ResourceExhausted || code == codes.Internal) && oversized(status.Convert(err).Message()) {
		return breach(OverLimit, "%s", status.Convert(err).Message())
	}
	return nil
}

// Heartbeat intervals: what is assumed until the first message, and what is accepted (rule R9).
const (
	usualInterval    = 5 * time.Second
	shortestInterval = time.Second
	longestInterval  = time.Minute
	silentIntervals  = 3
)

// observePace is how far apart two requests for a series are at least: as far
// as two observations of one.
const observePace = 5 * time.Second

// conversation is the life of a stream, and of those that took its place without a gap.
type conversation struct {
	current  *stream
	next     *stream // asks for a series, and takes the place of current with its first message
	interval time.Duration
	heard    bool      // current has spoken
	synced   time.Time // when the conversation was synced first
}

func (s *Subscriber) converse(ctx context.Context) ended {
	s.view.Begin()
	conn, err := s.cfg.Dial()
	if err != nil {
		return ended{err: err}
	}
	// It may take a second, while grpc tries to say goodbye to a peer that reads nothing.
	defer s.closing.Go(func() { conn.Close() }) //nolint:errcheck // all that it can say is that it is closed
	c := &conversation{interval: usualInterval, current: s.open(ctx, conn, s.wanted())}
	defer func() {
		c.current.close()
		c.next.close()
	}()
	end := func(err error) ended {
		e := ended{err: err}
		if !c.synced.IsZero() {
			e.synced = time.Since(c.synced)
		}
		return e
	}
	silence := time.NewTimer(silentIntervals * c.interval)
	defer silence.Stop()
	for {
		// While the next stream is about to take over, the current one is not read: the
		// next one starts from what we hold now, and that must not move.
		current, next := c.current.messages, (<-chan *inventoryv1.WatchNodesResponse)(nil)
		observe, pace := s.observe, (<-chan time.Time)(nil)
		switch wait := observePace - time.Since(s.asked); {
		case c.next != nil:
			current, next, observe = nil, c.next.messages, nil
		case !c.heard:
			observe = nil
		case wait > 0:
			observe, pace = nil, time.After(wait)
		}
		var m *inventoryv1.WatchNodesResponse
		select {
		case <-ctx.Done():
			return end(ctx.Err())
		case <-silence.C:
			c.current.close()
			if !c.heard { // what grpc says of the connection explains it better
				return end(fmt.Errorf("no word from the inventory within %s: %w", silentIntervals*c.interval, c.current.err))
			}
			return end(fmt.Errorf("no word from the inventory for %s", silentIntervals*c.interval))
		case <-pace:
			continue
		case <-observe:
			s.log.Info("asking the inventory for complete observations", "observations", s.cfg.ConfirmObservations)
			c.next = s.open(ctx, conn, true)
			continue
		case got, ok := <-next:
			if !ok {
				s.log.Warn("inventory does not answer the request for observations, the present stream goes on", "error", c.next.err)
				c.next.close()
				c.next = nil
				continue
			}
			c.current.close()
			c.current, c.next, c.heard, m = c.next, nil, false, got
			s.view.Begin()
		case got, ok := <-current:
			if !ok {
				return end(c.current.err)
			}
			m = got
		}
		if err := s.take(c, m); err != nil {
			return end(err)
		}
		silence.Reset(silentIntervals * c.interval)
	}
}

// take applies a message of the current stream.
func (s *Subscriber) take(c *conversation, m *inventoryv1.WatchNodesResponse) error {
	now := time.Now()
	s.cfg.Metrics.messages.WithLabelValues(s.cfg.Source).Inc()
	s.cfg.Metrics.lastMessage.WithLabelValues(s.cfg.Source).Set(unix(now))
	if !c.heard {
		c.heard = true
		c.interval = interval(m)
		s.log.Info("stream opened", "heartbeat", c.interval)
	}
	synced, err := s.view.Apply(now, m)
	if err != nil {
		return err
	}
	if synced && c.synced.IsZero() {
		c.synced = now
	}
	s.alive = true
	s.publish(now)
	tracepoint.Log(tracepoint.Applied)
	return nil
}

func interval(m *inventoryv1.WatchNodesResponse) time.Duration {
	if m.GetHeartbeatInterval() == nil {
		return usualInterval
	}
	return min(max(m.GetHeartbeatInterval().AsDuration(), shortestInterval), longestInterval)
}

// wanted takes the wish for a series of observations, if there is one.
func (s *Subscriber) wanted() bool {
	select {
	case <-s.observe:
		return true
	default:
		return false
	}
}

// publish makes what came at this time known.
func (s *Subscriber) publish(now time.Time) {
	snap := s.view.Snapshot()
	snap.Source, snap.Alive, snap.NewsAt = s.cfg.Source, s.alive, now
	old := s.snapshot.Load()
	news := old == nil || old.Differs(snap)
	if !news {
		snap.NewsAt = old.NewsAt
	}
	s.snapshot.Store(&snap)
	s.cfg.Metrics.show(snap)
	if old == nil || !news {
		return
	}
	s.tell(*old, snap)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// tell logs what people want to know of a change, unless there is one after another.
func (s *Subscriber) tell(old, now Snapshot) {
	if now.SyncedEpoch && (!old.SyncedEpoch || old.Cursor.Epoch != now.Cursor.Epoch) && s.lines.Allow() {
		s.log.Info("in step with the inventory", "epoch", now.Cursor.Epoch, "revision", now.Cursor.Revision, "members", len(now.Members))
	}
	for _, p := range []struct {
		name     string
		old, now Part
	}{{"membership", old.Membership, now.Membership}, {"addresses", old.Addresses, now.Addresses}} {
		if (p.old.State != p.now.State || p.old.Since.IsZero() != p.now.Since.IsZero()) && s.lines.Allow() {
			s.log.Info("inventory's word changed", "part", p.name, "state", p.now.State.String(), "reason", p.now.Reason)
		}
	}
}

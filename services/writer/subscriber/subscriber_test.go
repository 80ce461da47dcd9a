package subscriber

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
)

// inventory is a server that says what the test makes it say.
type inventory struct {
	inventoryv1.UnimplementedInventoryServiceServer

	calls chan *call
}

type call struct {
	at   time.Time
	req  *inventoryv1.WatchNodesRequest
	send chan *message
	end  chan error
	over chan struct{} // closed when the client has left
}

func (i *inventory) WatchNodes(req *inventoryv1.WatchNodesRequest, stream grpc.ServerStreamingServer[message]) error {
	c := &call{time.Now(), req, make(chan *message), make(chan error), make(chan struct{})}
	i.calls <- c
	for {
		select {
		case m := <-c.send:
			if err := stream.Send(m); err != nil {
				close(c.over)
				return err
			}
		case err := <-c.end:
			return err
		case <-stream.Context().Done():
			close(c.over)
			return stream.Context().Err()
		}
	}
}

type harness struct {
	*Subscriber

	t         *testing.T
	inventory *inventory
	metrics   *Metrics
}

// follow runs a subscriber against a scripted inventory, in a bubble of its own time. The
// random number is always 0.5.
func follow(t *testing.T, test func(h *harness)) {
	synctest.Test(t, func(t *testing.T) {
		lis := bufconn.Listen(1 << 20)
		inv := &inventory{calls: make(chan *call, 100)}
		srv := grpc.NewServer()
		inventoryv1.RegisterInventoryServiceServer(srv, inv)
		served := make(chan error, 1)
		go func() { served <- srv.Serve(lis) }()
		dial := func() (Conn, error) {
			return grpc.NewClient("passthrough:///inventory",
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(inventoryv1.MaxMessageSize)))
		}
		m := NewMetrics(prometheus.NewRegistry())
		s := New(Config{
			Source: "default", Dial: dial, Log: slog.New(slog.DiscardHandler), Metrics: m,
			ConfirmObservations: 3, Random: func() float64 { return 0.5 },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		test(&harness{s, t, inv, m})
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
		srv.Stop()
		<-served
	})
}

// called waits for the next stream that the subscriber opens.
func (h *harness) called() *call {
	h.t.Helper()
	select {
	case c := <-h.inventory.calls:
		return c
	case <-time.After(10 * time.Minute):
		h.t.Fatal("no stream was opened")
		return nil
	}
}

// say sends messages, and waits until they have been taken in.
func (h *harness) say(c *call, messages ...*message) {
	h.t.Helper()
	for _, m := range messages {
		select {
		case c.send <- m:
		case <-c.over:
			h.t.Fatal("the client has left the stream")
		}
	}
	synctest.Wait()
}

// first is a first message: it states a heartbeat interval of 5 s.
func first(m *message) *message {
	m.HeartbeatInterval = durationpb.New(5 * time.Second)
	return m
}

func (h *harness) woken() bool {
	select {
	case <-h.Changed():
		return true
	default:
		return false
	}
}

func TestR5AsksWithWhatItHolds(t *testing.T) {
	follow(t, func(h *harness) {
		one := h.called()
		if one.req.GetCursor() != nil || one.req.GetDigest() != nil || one.req.GetObserveNow() {
			t.Errorf("first request: %v", one.req)
		}
		want(t, "doubt observations", one.req.GetConfirmObservations(), uint32(3))
		h.say(one, first(whole("e", 10, a, b)))
		one.end <- status.Error(codes.Unavailable, "max age")

		two := h.called()
		want(t, "epoch", two.req.GetCursor().GetEpoch(), "e")
		want(t, "revision", two.req.GetCursor().GetRevision(), uint64(10))
		want(t, "digest", two.req.GetDigest(), digest([]*wireNode{a, b}))
		// Another replica with the same set: nothing is sent, and nothing changes.
		generation := h.Snapshot().Generation
		h.say(two, first(synced("replica", 3, []*wireNode{a, b})))
		want(t, "generation", h.Snapshot().Generation, generation)
		want(t, "synced in the epoch", h.Snapshot().SyncedEpoch, true)
		want(t, "cursor", h.Snapshot().Cursor, Cursor{"replica", 3})
	})
}

func TestR6AppliesWhatChangedSinceItsCursor(t *testing.T) {
	follow(t, func(h *harness) {
		one := h.called()
		h.say(one, first(whole("e", 10, a, b)))
		one.end <- status.Error(codes.Unavailable, "")
		h.say(h.called(), first(synced("e", 12, []*wireNode{b, c}, removed("a"), upserts(c))))
		want(t, "members", members(h.view), []string{"b 10.0.0.2", "c fd00::3"})
	})
}

func TestR7TakesAResetForWhateverItAsked(t *testing.T) {
	follow(t, func(h *harness) {
		one := h.called()
		h.say(one, first(whole("e", 10, a, b)))
		one.end <- status.Error(codes.Unavailable, "")
		h.say(h.called(), first(whole("f", 1, c)))
		want(t, "members", members(h.view), []string{"c fd00::3"})
	})
}

func TestR8BelievesNoSetBeforeItIsSynced(t *testing.T) {
	follow(t, func(h *harness) {
		m := &message{Status: sourceStatus(0)}
		m.Status.Membership = &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_UNSYNCED, Reason: "starting"}
		h.say(h.called(), first(m))
		s := h.Snapshot()
		if s.Synced || s.SyncedEpoch || !s.Alive || s.Membership.State != Unsynced || s.Membership.Reason != "starting" || !s.WordAt.IsZero() {
			t.Errorf("snapshot: %+v", s)
		}
	})
}

func TestR9SilenceOfThreeIntervalsIsADeadStream(t *testing.T) {
	for _, row := range []struct {
		name     string
		interval *durationpb.Duration
		dead     time.Duration
	}{
		{"as stated", durationpb.New(2 * time.Second), 6 * time.Second},
		{"not stated", nil, 15 * time.Second},
		{"too short", durationpb.New(time.Millisecond), 3 * time.Second},
		{"negative", durationpb.New(-time.Hour), 3 * time.Second},
		{"too long", durationpb.New(time.Hour), 3 * time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			follow(t, func(h *harness) {
				c := h.called()
				m := whole("e", 10, a)
				m.HeartbeatInterval = row.interval
				h.say(c, m)
				// Heartbeats just in time keep it alive; a later interval means nothing.
				for range 4 {
					time.Sleep(row.dead - time.Millisecond)
					beat := synced("e", 10, []*wireNode{a})
					beat.HeartbeatInterval = durationpb.New(time.Second)
					h.say(c, beat)
				}
				want(t, "alive with heartbeats", h.Snapshot().Alive, true)
				last := time.Now()
				for h.woken() {
				}
				<-h.Changed()
				want(t, "time of death", time.Since(last), row.dead)
				s := h.Snapshot()
				want(t, "alive", s.Alive, false)
				want(t, "members kept", len(s.Members), 1)
				<-c.over
				want(t, "revision asked with", h.called().req.GetCursor().GetRevision(), uint64(10))
			})
		})
	}
	t.Run("without a first word", func(t *testing.T) {
		follow(t, func(h *harness) {
			c := h.called()
			<-c.over
			want(t, "patience", time.Since(c.at), 15*time.Second)
			h.called()
		})
	})
}

func TestR10And11OrdinaryEndsKeepEverythingAndResume(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.Internal, codes.PermissionDenied} {
		t.Run(code.String(), func(t *testing.T) {
			follow(t, func(h *harness) {
				c := h.called()
				h.say(c, first(whole("e", 10, a, b)))
				time.Sleep(time.Second)
				ended := time.Now()
				c.end <- status.Error(code, "that is it")
				synctest.Wait()
				s := h.Snapshot()
				if s.Alive || s.SyncedEpoch || !s.Synced || len(s.Members) != 2 {
					t.Errorf("between two streams: %+v", s)
				}
				next := h.called()
				want(t, "delay", next.at.Sub(ended), 750*time.Millisecond)
				want(t, "revision asked with", next.req.GetCursor().GetRevision(), uint64(10))
				want(t, "reconnects", testutil.ToFloat64(h.metrics.reconnects.WithLabelValues("default")), 1.0)
			})
		})
	}
}

func TestR13StartsOverWithoutCursorAfterABreach(t *testing.T) {
	follow(t, func(h *harness) {
		c := h.called()
		h.say(c, first(whole("e", 10, a, b)))
		bad := synced("e", 11, []*wireNode{a})
		bad.Count = 2
		at := time.Now()
		h.say(c, bad)
		<-c.over
		want(t, "members", len(h.Snapshot().Members), 2)
		want(t, "breaches", testutil.ToFloat64(h.metrics.breaches.WithLabelValues("default", "digest")), 1.0)
		next := h.called()
		if next.req.GetCursor() != nil || next.req.GetDigest() != nil {
			t.Errorf("request after a breach: %v", next.req)
		}
		want(t, "delay", next.at.Sub(at), 750*time.Millisecond)
		h.say(next, first(whole("e", 1, c1())))
		want(t, "members", members(h.view), []string{"c1 10.0.0.11"})
	})
}

func c1() *wireNode { return node("c1", "10.0.0.11") }

func TestR13AMessageAboveTheLimitIsABreach(t *testing.T) {
	follow(t, func(h *harness) {
		c := h.called()
		h.say(c, first(whole("e", 10, a)))
		c.send <- &message{Status: &inventoryv1.SourceStatus{Membership: &inventoryv1.PartStatus{Reason: strings.Repeat("x", inventoryv1.MaxMessageSize)}}}
		next := h.called()
		if next.req.GetCursor() != nil {
			t.Error("the next stream starts from the cursor, and would get the same message")
		}
		want(t, "breaches", testutil.ToFloat64(h.metrics.breaches.WithLabelValues("default", "limit")), 1.0)
	})
}

func TestR14DelaysGrowUntilAStreamIsStable(t *testing.T) {
	follow(t, func(h *harness) {
		gap := func() time.Duration {
			at := time.Now()
			h.called().end <- status.Error(codes.Unavailable, "down")
			return time.Since(at)
		}
		gap()
		var gaps []time.Duration
		for range 6 {
			gaps = append(gaps, gap())
		}
		second := time.Second
		want(t, "delays", gaps, []time.Duration{
			750 * time.Millisecond, 1250 * time.Millisecond, 2250 * time.Millisecond,
			2250 * time.Millisecond, 2250 * time.Millisecond, 2250 * time.Millisecond,
		})
		c := h.called()
		h.say(c, first(whole("e", 1, a)))
		for range 6 {
			time.Sleep(5 * second)
			h.say(c, synced("e", 1, []*wireNode{a}))
		}
		c.end <- status.Error(codes.Unavailable, "down")
		want(t, "delay after a stable stream", gap(), 750*time.Millisecond)
	})
}

func TestSendsARefusedRequestNotAgainUnchanged(t *testing.T) {
	follow(t, func(h *harness) {
		one := h.called()
		h.say(one, first(whole("e", 10, a)))
		one.end <- status.Error(codes.Unavailable, "")
		h.called().end <- status.Error(codes.InvalidArgument, "your epoch is odd")
		if c := h.called(); c.req.GetCursor() != nil {
			t.Error("the refused cursor was sent again")
		}
		want(t, "members", len(h.Snapshot().Members), 1)
	})
}

func TestAsksForObservationsWithoutAGap(t *testing.T) {
	follow(t, func(h *harness) {
		one := h.called()
		h.say(one, first(whole("e", 10, a, b)))
		h.ObserveNow()
		h.ObserveNow()
		two := h.called()
		want(t, "observe now", two.req.GetObserveNow(), true)
		want(t, "revision", two.req.GetCursor().GetRevision(), uint64(10))
		for h.woken() {
		}
		// What the older stream says in the meantime must not move the ground under the newer one.
		one.send <- synced("e", 11, []*wireNode{a, b, c}, upserts(c))
		synctest.Wait()
		want(t, "members while the newer stream is silent", len(h.Snapshot().Members), 2)
		want(t, "alive meanwhile", h.Snapshot().Alive, true)
		h.say(two, first(synced("e", 11, []*wireNode{a, b, c}, upserts(c))))
		<-one.over
		want(t, "members", len(h.Snapshot().Members), 3)
		want(t, "alive", h.Snapshot().Alive && h.Snapshot().SyncedEpoch, true)
		want(t, "reconnects", testutil.ToFloat64(h.metrics.reconnects.WithLabelValues("default")), 0.0)

		at := time.Now()
		h.ObserveNow()
		want(t, "pace of requests", h.called().at.Sub(at), 5*time.Second)
	})
}

func TestGoesOnWithTheOlderStreamWhenObservationsAreRefused(t *testing.T) {
	follow(t, func(h *harness) {
		one := h.called()
		h.say(one, first(whole("e", 10, a, b)))
		h.ObserveNow()
		two := h.called()
		one.send <- synced("e", 11, []*wireNode{a, b, c}, upserts(c))
		two.end <- status.Error(codes.ResourceExhausted, "too many streams")
		synctest.Wait()
		want(t, "members", len(h.Snapshot().Members), 3)
		want(t, "alive", h.Snapshot().Alive, true)
	})
}

func TestWakesWhenTheWordChangesAndNotForHeartbeats(t *testing.T) {
	follow(t, func(h *harness) {
		c := h.called()
		h.say(c, first(whole("e", 10, a)))
		want(t, "woken by the first set", h.woken(), true)
		word := h.Snapshot().WordAt
		time.Sleep(5 * time.Second)
		h.say(c, synced("e", 10, []*wireNode{a}))
		want(t, "woken by a heartbeat", h.woken(), false)
		want(t, "age of the word", h.Snapshot().WordAt.Sub(word), 5*time.Second)
		h.say(c, synced("e", 10, []*wireNode{a}, observed(2)))
		want(t, "woken by an observation", h.woken(), true)
		m := synced("e", 10, []*wireNode{a}, observed(2))
		m.Status.Addresses = &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_DEGRADED, Reason: "503"}
		h.say(c, m)
		want(t, "woken by a status", h.woken(), true)
		want(t, "gauge", testutil.ToFloat64(h.metrics.addresses.WithLabelValues("default")), 0.0)
		want(t, "messages", testutil.ToFloat64(h.metrics.messages.WithLabelValues("default")), 4.0)
	})
}

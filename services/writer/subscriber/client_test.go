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
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scriptedInventory is a server that sends what the test passes to it.
type scriptedInventory struct {
	inventoryv1.UnimplementedInventoryServiceServer

	calls chan *streamCall
}

type streamCall struct {
	at   time.Time
	req  *inventoryv1.WatchNodesRequest
	send chan *message
	end  chan error
	done chan struct{} // closed when the client has left
}

func (i *scriptedInventory) WatchNodes(req *inventoryv1.WatchNodesRequest, stream grpc.ServerStreamingServer[message]) error {
	c := &streamCall{time.Now(), req, make(chan *message), make(chan error), make(chan struct{})}
	i.calls <- c
	for {
		select {
		case m := <-c.send:
			if err := stream.Send(m); err != nil {
				close(c.done)
				return err
			}
		case err := <-c.end:
			return err
		case <-stream.Context().Done():
			close(c.done)
			return stream.Context().Err()
		}
	}
}

// harness runs Feeds of an inventory that has one set.
type harness struct {
	*Feeds

	t         *testing.T
	inventory *scriptedInventory
	metrics   *Metrics
}

// runClient runs a client against a scripted inventory, in simulated time. The random number
// is always 0.5.
func runClient(t *testing.T, test func(h *harness)) {
	synctest.Test(t, func(t *testing.T) {
		lis := bufconn.Listen(1 << 20)
		inv := &scriptedInventory{calls: make(chan *streamCall, 100)}
		srv := grpc.NewServer()
		inventoryv1.RegisterInventoryServiceServer(srv, inv)
		served := make(chan error, 1)
		go func() { served <- srv.Serve(lis) }()
		dial := func() (*grpc.ClientConn, error) {
			return grpc.NewClient("passthrough:///inventory",
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(contract.MaxMessageSize)))
		}
		m := NewMetrics(prometheus.NewRegistry())
		s := New(Config{
			Source: "default", Dial: dial, Log: slog.New(slog.DiscardHandler), Metrics: m,
			Random: func() float64 { return 0.5 },
		})
		ctx, cancel := context.WithCancel(t.Context())
		s.Use("web/shop", "")
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

func (h *harness) snapshot() Snapshot { return h.Snapshot("") }

// nextCall waits for the next stream that the subscriber opens.
func (h *harness) nextCall() *streamCall {
	h.t.Helper()
	select {
	case c := <-h.inventory.calls:
		return c
	case <-time.After(10 * time.Minute):
		h.t.Fatal("no stream was opened")
		return nil
	}
}

// deliver sends messages, and waits until they have been applied.
func (h *harness) deliver(c *streamCall, messages ...*message) {
	h.t.Helper()
	for _, m := range messages {
		select {
		case c.send <- m:
		case <-c.done:
			h.t.Fatal("the client has left the stream")
		}
	}
	synctest.Wait()
}

// withHeartbeat makes a message the first of a stream: it sets a heartbeat interval of 5 s.
func withHeartbeat(m *message) *message {
	m.HeartbeatInterval = durationpb.New(5 * time.Second)
	return m
}

func (h *harness) takeChanged() bool {
	select {
	case <-h.Changed():
		return true
	default:
		return false
	}
}

func TestR5ResumesFromCursorAndDigest(t *testing.T) {
	runClient(t, func(h *harness) {
		older := h.nextCall()
		if older.req.GetCursor() != nil || older.req.GetDigest() != nil {
			t.Errorf("first request: %v", older.req)
		}
		h.deliver(older, withHeartbeat(completeSet("e", 10, a, b)))
		older.end <- status.Error(codes.Unavailable, "max age")

		newer := h.nextCall()
		checkEqual(t, "epoch", newer.req.GetCursor().GetEpoch(), "e")
		checkEqual(t, "revision", newer.req.GetCursor().GetRevision(), uint64(10))
		checkEqual(t, "digest", newer.req.GetDigest(), digestOf([]*wireNode{a, b}))
		// Another replica with the same set: nothing is sent, and nothing changes.
		before := h.snapshot().Members
		h.deliver(newer, withHeartbeat(synced("replica", 3, []*wireNode{a, b})))
		checkEqual(t, "the same set", SameSet(h.snapshot().Members, before), true)
		checkEqual(t, "synced in the stream", h.snapshot().SyncedInStream, true)
		checkEqual(t, "cursor", h.snapshot().Cursor, Cursor{Epoch: "replica", Revision: 3})
	})
}

func TestR6AppliesDeltaSinceCursor(t *testing.T) {
	runClient(t, func(h *harness) {
		older := h.nextCall()
		h.deliver(older, withHeartbeat(completeSet("e", 10, a, b)))
		older.end <- status.Error(codes.Unavailable, "")
		h.deliver(h.nextCall(), withHeartbeat(synced("e", 12, []*wireNode{b, c}, removed("a"), upserts(c))))
		checkEqual(t, "members", memberLines(h.snapshot()), []string{"b 10.0.0.2", "c fd00::3"})
	})
}

func TestR7AcceptsResetForAnyRequest(t *testing.T) {
	runClient(t, func(h *harness) {
		older := h.nextCall()
		h.deliver(older, withHeartbeat(completeSet("e", 10, a, b)))
		older.end <- status.Error(codes.Unavailable, "")
		h.deliver(h.nextCall(), withHeartbeat(completeSet("f", 1, c)))
		checkEqual(t, "members", memberLines(h.snapshot()), []string{"c fd00::3"})
	})
}

func TestR8IgnoresSetBeforeSynced(t *testing.T) {
	runClient(t, func(h *harness) {
		m := &message{Status: sourceStatus(0)}
		m.Status.Membership = &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_UNSYNCED, Reason: "starting"}
		h.deliver(h.nextCall(), withHeartbeat(m))
		s := h.snapshot()
		if s.EverSynced || s.SyncedInStream || !s.Connected || s.Membership.State != Unsynced ||
			s.Membership.Reason != "starting" ||
			!s.MembershipSyncedAt.IsZero() {
			t.Errorf("snapshot: %+v", s)
		}
	})
}

func TestR9EndsStreamIdleForThreeIntervals(t *testing.T) {
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
			runClient(t, func(h *harness) {
				c := h.nextCall()
				m := completeSet("e", 10, a)
				m.HeartbeatInterval = row.interval
				h.deliver(c, m)
				// Heartbeats just in time keep the stream open; a later interval is ignored.
				for range 4 {
					time.Sleep(row.dead - time.Millisecond)
					beat := synced("e", 10, []*wireNode{a})
					beat.HeartbeatInterval = durationpb.New(time.Second)
					h.deliver(c, beat)
				}
				checkEqual(t, "connected with heartbeats", h.snapshot().Connected, true)
				last := time.Now()
				for h.takeChanged() {
				}
				<-h.Changed()
				checkEqual(t, "time until the stream is closed", time.Since(last), row.dead)
				s := h.snapshot()
				checkEqual(t, "connected", s.Connected, false)
				checkEqual(t, "members kept", len(s.Members), 1)
				<-c.done
				checkEqual(t, "requested revision", h.nextCall().req.GetCursor().GetRevision(), uint64(10))
			})
		})
	}
	t.Run("without a first message", func(t *testing.T) {
		runClient(t, func(h *harness) {
			c := h.nextCall()
			<-c.done
			checkEqual(t, "timeout", time.Since(c.at), 15*time.Second)
			h.nextCall()
		})
	})
}

func TestR10And11ResumeAfterRoutineEnd(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.Internal, codes.PermissionDenied, codes.FailedPrecondition} {
		t.Run(code.String(), func(t *testing.T) {
			runClient(t, func(h *harness) {
				c := h.nextCall()
				h.deliver(c, withHeartbeat(completeSet("e", 10, a, b)))
				time.Sleep(time.Second)
				ended := time.Now()
				c.end <- status.Error(code, "closed")
				synctest.Wait()
				s := h.snapshot()
				if s.Connected || s.SyncedInStream || !s.EverSynced || len(s.Members) != 2 {
					t.Errorf("between two streams: %+v", s)
				}
				next := h.nextCall()
				checkEqual(t, "delay", next.at.Sub(ended), 750*time.Millisecond)
				checkEqual(t, "requested revision", next.req.GetCursor().GetRevision(), uint64(10))
				checkEqual(t, "reconnects", testutil.ToFloat64(h.metrics.reconnects.WithLabelValues("default")), 1.0)
			})
		})
	}
}

func TestR13RestartsWithoutCursorAfterViolation(t *testing.T) {
	runClient(t, func(h *harness) {
		c := h.nextCall()
		h.deliver(c, withHeartbeat(completeSet("e", 10, a, b)))
		bad := synced("e", 11, []*wireNode{a})
		bad.Count = 2
		at := time.Now()
		h.deliver(c, bad)
		<-c.done
		checkEqual(t, "members", len(h.snapshot().Members), 2)
		checkEqual(t, "violations", testutil.ToFloat64(h.metrics.violations.WithLabelValues("default", "digest")), 1.0)
		next := h.nextCall()
		if next.req.GetCursor() != nil || next.req.GetDigest() != nil {
			t.Errorf("request after a violation: %v", next.req)
		}
		checkEqual(t, "delay", next.at.Sub(at), 750*time.Millisecond)
		h.deliver(next, withHeartbeat(completeSet("e", 1, c1())))
		checkEqual(t, "members", memberLines(h.snapshot()), []string{"c1 10.0.0.11"})
	})
}

func c1() *wireNode { return node("c1", "10.0.0.11") }

func TestR13MessageAboveSizeLimitIsViolation(t *testing.T) {
	runClient(t, func(h *harness) {
		c := h.nextCall()
		h.deliver(c, withHeartbeat(completeSet("e", 10, a)))
		c.send <- &message{Status: &inventoryv1.SourceStatus{Membership: &inventoryv1.PartStatus{Reason: strings.Repeat("x", contract.MaxMessageSize)}}}
		next := h.nextCall()
		if next.req.GetCursor() != nil {
			t.Error("the next stream starts with the cursor, so it would get the same message")
		}
		checkEqual(t, "violations", testutil.ToFloat64(h.metrics.violations.WithLabelValues("default", "limit")), 1.0)
	})
}

func TestR14DelaysGrowUntilStreamIsStable(t *testing.T) {
	runClient(t, func(h *harness) {
		gap := func() time.Duration {
			at := time.Now()
			h.nextCall().end <- status.Error(codes.Unavailable, "down")
			return time.Since(at)
		}
		gap()
		var gaps []time.Duration
		for range 6 {
			gaps = append(gaps, gap())
		}
		second := time.Second
		checkEqual(t, "delays", gaps, []time.Duration{
			750 * time.Millisecond, 1250 * time.Millisecond, 2250 * time.Millisecond,
			2250 * time.Millisecond, 2250 * time.Millisecond, 2250 * time.Millisecond,
		})
		c := h.nextCall()
		h.deliver(c, withHeartbeat(completeSet("e", 1, a)))
		for range 6 {
			time.Sleep(5 * second)
			h.deliver(c, synced("e", 1, []*wireNode{a}))
		}
		c.end <- status.Error(codes.Unavailable, "down")
		checkEqual(t, "delay after a stable stream", gap(), 750*time.Millisecond)
	})
}

func TestDropsCursorAfterInvalidArgument(t *testing.T) {
	runClient(t, func(h *harness) {
		older := h.nextCall()
		h.deliver(older, withHeartbeat(completeSet("e", 10, a)))
		older.end <- status.Error(codes.Unavailable, "")
		h.nextCall().end <- status.Error(codes.InvalidArgument, "invalid epoch")
		if c := h.nextCall(); c.req.GetCursor() != nil {
			t.Error("the rejected cursor was sent again")
		}
		checkEqual(t, "members", len(h.snapshot().Members), 1)
	})
}

func TestSnapshotHasTheReasonWhyAStreamIsRejected(t *testing.T) {
	for _, row := range []struct {
		name, want string
		synced     bool
		err        error
	}{
		{"not permitted", "not you", false, status.Error(codes.PermissionDenied, "not you")},
		{"of the other kind", "exports Services", false, status.Error(codes.FailedPrecondition, "exports Services")},
		{"invalid", "invalid epoch", false, status.Error(codes.InvalidArgument, "invalid epoch")},
		{"above a limit", "4096 services are in use", false, status.Error(codes.ResourceExhausted, "4096 services are in use")},
		{"a stalled stream that was synced", "", true, status.Error(codes.ResourceExhausted, "client read nothing for too long")},
		{"a message above the size limit", "", false, status.Error(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 8)")},
		{"unavailable", "", false, status.Error(codes.Unavailable, "server is shutting down")},
	} {
		t.Run(row.name, func(t *testing.T) {
			runClient(t, func(h *harness) {
				c := h.nextCall()
				if row.synced {
					h.deliver(c, withHeartbeat(completeSet("e", 10, a)))
					time.Sleep(time.Second)
				}
				c.end <- row.err
				synctest.Wait()
				checkEqual(t, "denial", h.snapshot().Denial, row.want)
				next := h.nextCall()
				h.deliver(next, withHeartbeat(completeSet("f", 1, a)))
				checkEqual(t, "denial of a stream that is synced", h.snapshot().Denial, "")
			})
		})
	}
}

func TestSignalsChangesButNotHeartbeats(t *testing.T) {
	runClient(t, func(h *harness) {
		c := h.nextCall()
		h.deliver(c, withHeartbeat(completeSet("e", 10, a)))
		checkEqual(t, "signaled by the first set", h.takeChanged(), true)
		syncedAt := h.snapshot().MembershipSyncedAt
		time.Sleep(5 * time.Second)
		h.deliver(c, synced("e", 10, []*wireNode{a}))
		checkEqual(t, "signaled by a heartbeat", h.takeChanged(), false)
		checkEqual(t, "time since membership was synced", h.snapshot().MembershipSyncedAt.Sub(syncedAt), 5*time.Second)
		h.deliver(c, synced("e", 10, []*wireNode{a}, observed(2)))
		checkEqual(t, "signaled by an observation", h.takeChanged(), true)
		m := synced("e", 10, []*wireNode{a}, observed(2))
		m.Status.Addresses = &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_DEGRADED, Reason: "503"}
		h.deliver(c, m)
		checkEqual(t, "signaled by a status", h.takeChanged(), true)
		checkEqual(t, "gauge", testutil.ToFloat64(h.metrics.addresses.WithLabelValues("default")), 0.0)
		checkEqual(t, "messages", testutil.ToFloat64(h.metrics.messages.WithLabelValues("default")), 4.0)
	})
}

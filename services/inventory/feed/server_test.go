package feed

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func checkEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func newNode(name string, i int, state roster.NodeState) *roster.Node {
	return &roster.Node{
		Name: name, UID: "uid-" + name, State: state, Since: time.Now().Add(-time.Minute),
		Addresses:  []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})},
		ProviderID: "ionos://" + name, ServerID: "server-" + name, Labels: map[string]string{"pool": "blue"},
	}
}

func nodeChanges(n int) (changes []roster.Change) {
	for i := range n {
		name := fmt.Sprintf("worker-%05d", i)
		changes = append(changes, roster.Change{Name: name, Node: newNode(name, i, roster.Ready)})
	}
	return changes
}

func publishedStatus(observation uint64) roster.Status {
	now := time.Now()
	part := roster.PartStatus{Sync: roster.Synced, Since: now}
	return roster.Status{Membership: part, Addresses: part, Observation: observation, ObservedAt: now, Publishable: true}
}

type harness struct {
	t      *testing.T
	server *Server
	nodes  *Set
	health *health.Server
	sent   *atomic.Int64 // calls of OnDeltaSent
	dial   func() inventoryv1.InventoryServiceClient
	client inventoryv1.InventoryServiceClient
}

// runServer runs the service in a synctest bubble.
func runServer(t *testing.T, test func(h *harness)) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, nodes: NewSet("", "epoch"), sent: new(atomic.Int64), health: health.NewServer()}
		h.nodes.OnDeltaSent = func() { h.sent.Add(1) }
		h.server = New(Config{
			Sets: h.nodes, Identify: testkit.Identify, Health: h.health, Registerer: prometheus.NewRegistry(),
			MaxStreamsPerClient: 4,
		})
		testkit.Serve(t, h.server, func(dial func() *grpc.ClientConn) {
			h.dial = func() inventoryv1.InventoryServiceClient { return inventoryv1.NewInventoryServiceClient(dial()) }
			h.client = h.dial()
			test(h)
		})
	})
}

// client applies messages by the contract, and fails on any violation of rule R13.
type client struct {
	t        *testing.T
	stream   grpc.ServerStreamingClient[inventoryv1.WatchNodesResponse]
	cancel   context.CancelFunc
	set      map[string]*inventoryv1.Node
	staged   map[string]*inventoryv1.Node
	cursor   *inventoryv1.Cursor
	digest   []byte
	received int
}

func (h *harness) watch(req *inventoryv1.WatchNodesRequest, name string) *client {
	h.t.Helper()
	ctx, cancel := context.WithCancel(testkit.WithClientName(h.t.Context(), name))
	stream, err := h.client.WatchNodes(ctx, req)
	if err != nil {
		h.t.Fatal(err)
	}
	return &client{t: h.t, stream: stream, cancel: cancel, set: map[string]*inventoryv1.Node{}}
}

// resume watches with the set and cursor of an earlier client.
func (h *harness) resume(c *client) *client {
	next := h.watch(&inventoryv1.WatchNodesRequest{Cursor: c.cursor, Digest: c.digest}, "writer")
	next.set, next.cursor, next.digest = c.set, c.cursor, c.digest
	return next
}

func (c *client) next() *inventoryv1.WatchNodesResponse {
	c.t.Helper()
	m, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("message %d: %v", c.received, err)
	}
	c.received++
	if (c.received == 1) != (m.GetHeartbeatInterval() != nil) {
		c.t.Errorf("message %d states the heartbeat interval: %v", c.received, m.GetHeartbeatInterval())
	}
	if len(m.GetUpserts()) > 500 || len(m.GetRemoved()) > 500 || m.GetStatus() == nil {
		c.t.Fatalf("%d upserts, %d removed, status %v", len(m.GetUpserts()), len(m.GetRemoved()), m.GetStatus())
	}
	if m.GetReset_() {
		c.staged = map[string]*inventoryv1.Node{}
	} else if c.staged == nil {
		c.staged = map[string]*inventoryv1.Node{}
		maps.Copy(c.staged, c.set)
	}
	for _, name := range m.GetRemoved() {
		if c.staged[name] == nil {
			c.t.Fatalf("removal of %s, which is not in the set", name)
		}
		delete(c.staged, name)
	}
	for _, n := range m.GetUpserts() {
		if slices.Contains(m.GetRemoved(), n.GetName()) || n.GetName() == "" || len(n.GetAddresses()) == 0 ||
			len(n.GetFingerprint()) != 16 {
			c.t.Fatalf("upsert %v", n)
		}
		c.staged[n.GetName()] = n
	}
	if !m.GetSynced() {
		if m.GetCursor() != nil {
			c.t.Error("a cursor without synced")
		}
		return m
	}
	var sum [16]byte
	for _, n := range c.staged {
		for i := range sum {
			sum[i] ^= n.GetFingerprint()[i]
		}
	}
	if !slices.Equal(sum[:], m.GetDigest()) || len(c.staged) != int(m.GetCount()) {
		c.t.Fatalf("%d nodes and digest %x, the message has %d and %x", len(c.staged), sum, m.GetCount(), m.GetDigest())
	}
	if c.cursor.GetEpoch() == m.GetCursor().GetEpoch() && c.cursor.GetRevision() > m.GetCursor().GetRevision() {
		c.t.Fatalf("revision from %d to %d", c.cursor.GetRevision(), m.GetCursor().GetRevision())
	}
	c.set, c.staged, c.cursor, c.digest = c.staged, nil, m.GetCursor(), m.GetDigest()
	return m
}

func (c *client) untilSynced() (messages int) {
	c.t.Helper()
	for messages = 1; !c.next().GetSynced(); {
		messages++
	}
	return messages
}

func (c *client) endCode() codes.Code {
	for {
		if _, err := c.stream.Recv(); err != nil {
			return status.Code(err)
		}
	}
}

var emptyRequest = &inventoryv1.WatchNodesRequest{}

func TestR1To4SendsLargeSetInChunks(t *testing.T) {
	runServer(t, func(h *harness) {
		apply(h.nodes, nodeChanges(1201))
		h.nodes.Publish(publishedStatus(1), nil)
		c := h.watch(emptyRequest, "writer")
		m := c.next()
		checkEqual(t, "first chunk", []bool{m.GetReset_(), m.GetSynced()}, []bool{true, false})
		checkEqual(t, "interval", m.GetHeartbeatInterval().AsDuration(), 5*time.Second)
		checkEqual(t, "reset in the second chunk", c.next().GetReset_(), false)
		more := c.untilSynced()
		checkEqual(t, "nodes", len(c.set), 1201)
		n := c.set["worker-00007"]
		checkEqual(t, "age", n.GetStateAge().AsDuration(), time.Minute)

		var removals []roster.Change
		for _, change := range nodeChanges(700) {
			removals = append(removals, roster.Change{Name: change.Name})
		}
		apply(h.nodes, removals)
		checkEqual(t, "messages for 700 removals", c.untilSynced(), 2)
		checkEqual(t, "nodes", len(c.set), 501)
		synctest.Wait() // until the last message is counted
		checkEqual(t, "resets sent", testutil.ToFloat64(h.server.Metrics.Messages.WithLabelValues(string(stream.Reset))), float64(2+more))
		checkEqual(t, "deltas sent", testutil.ToFloat64(h.server.Metrics.Messages.WithLabelValues(string(stream.Delta))), 2.0)
	})
}

func TestR5ReconnectWithSameSetGetsNoReset(t *testing.T) {
	runServer(t, func(h *harness) {
		apply(h.nodes, nodeChanges(501))
		h.nodes.Publish(publishedStatus(1), nil)
		c := h.watch(emptyRequest, "writer")
		resets := float64(c.untilSynced())
		synctest.Wait() // until the last message is counted
		c.cancel()
		c.cursor = &inventoryv1.Cursor{Epoch: "another replica", Revision: 999}
		for range 20 {
			next := h.resume(c)
			next.cursor = nil
			m := next.next()
			if !m.GetSynced() || m.GetReset_() || len(m.GetUpserts())+len(m.GetRemoved()) > 0 {
				t.Fatalf("response to the digest of the current set: %v", m)
			}
			next.cancel()
			synctest.Wait()
		}
		checkEqual(t, "resets sent", testutil.ToFloat64(h.server.Metrics.Messages.WithLabelValues(string(stream.Reset))), resets)
	})
}

func TestInitialSyncIsNotMeasuredAsPropagation(t *testing.T) {
	runServer(t, func(h *harness) {
		apply(h.nodes, nodeChanges(5))
		h.nodes.Publish(publishedStatus(1), nil)
		c := h.watch(emptyRequest, "writer")
		c.untilSynced()
		c.cancel()
		synctest.Wait() // until the server has noticed it
		apply(h.nodes, []roster.Change{{Name: "worker-00001"}})
		time.Sleep(time.Hour)
		c = h.resume(c)
		c.next()
		synctest.Wait()
		checkEqual(t, "live deltas sent", h.sent.Load(), 0)
		apply(h.nodes, []roster.Change{{Name: "worker-00002"}})
		c.next()
		synctest.Wait()
		checkEqual(t, "live deltas sent", h.sent.Load(), 1)
		time.Sleep(time.Minute) // heartbeats
		synctest.Wait()
		checkEqual(t, "live deltas sent", h.sent.Load(), 1)
	})
}

func TestR6ResumesByCursorAndR7Resets(t *testing.T) {
	runServer(t, func(h *harness) {
		apply(h.nodes, nodeChanges(5))
		h.nodes.Publish(publishedStatus(1), nil)
		c := h.watch(emptyRequest, "writer")
		c.untilSynced()
		c.cancel()
		apply(h.nodes, []roster.Change{{Name: "worker-00001"}, {Name: "new", Node: newNode("new", 99, roster.Draining)}})

		m := h.resume(c).next()
		checkEqual(t, "reset", m.GetReset_(), false)
		checkEqual(t, "removed", m.GetRemoved(), []string{"worker-00001"})
		checkEqual(t, "upserts", m.GetUpserts()[0].GetName(), "new")
		checkEqual(t, "state", m.GetUpserts()[0].GetState(), inventoryv1.NodeState_NODE_STATE_DRAINING)

		c.cursor.Revision = 1 << 40
		future := h.watch(&inventoryv1.WatchNodesRequest{Cursor: c.cursor, Digest: c.digest}, "writer")
		checkEqual(t, "reset for a revision of the future", future.next().GetReset_(), true)
		checkEqual(t, "nodes", len(future.set), 5)
	})
}

func TestR8SendsStatusBeforeFirstPublication(t *testing.T) {
	runServer(t, func(h *harness) {
		c := h.watch(emptyRequest, "writer")
		m := c.next()
		checkEqual(t, "synced before the first publication", m.GetSynced() || m.GetReset_(), false)
		checkEqual(t, "membership", m.GetStatus().GetMembership().GetState(), inventoryv1.SyncState_SYNC_STATE_UNSYNCED)
		checkEqual(t, "observation age", m.GetStatus().GetObservationAge() == nil, true)
		check := func() grpc_health_v1.HealthCheckResponse_ServingStatus {
			synctest.Wait()
			r, err := h.health.Check(h.t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "slicefeed.inventory.v1.InventoryService"})
			if err != nil {
				t.Fatal(err)
			}
			return r.GetStatus()
		}
		checkEqual(t, "health before the first observation", check(), grpc_health_v1.HealthCheckResponse_NOT_SERVING)

		at := time.Now()
		apply(h.nodes, nodeChanges(2))
		h.nodes.Publish(publishedStatus(1), nil)
		c.untilSynced()
		checkEqual(t, "nodes", len(c.set), 2)
		checkEqual(t, "health after it", check(), grpc_health_v1.HealthCheckResponse_SERVING)

		degraded := publishedStatus(1)
		degraded.Addresses = roster.PartStatus{Sync: roster.Degraded, Reason: "IONOS API: 503", Since: time.Now()}
		h.nodes.Publish(degraded, nil)
		m = c.next()
		checkEqual(t, "addresses", m.GetStatus().GetAddresses().GetReason(), "IONOS API: 503")
		checkEqual(t, "nodes while degraded", m.GetCount(), uint32(2))
		checkEqual(t, "health while degraded", check(), grpc_health_v1.HealthCheckResponse_SERVING)
		h.nodes.Publish(publishedStatus(2), nil)
		checkEqual(t, "observation", c.next().GetStatus().GetObservation(), uint64(2))
		checkEqual(t, "total time", time.Since(at), 0)

		withdrawn := publishedStatus(2)
		withdrawn.Publishable = false
		h.nodes.Publish(withdrawn, nil)
		checkEqual(t, "synced while nothing is published", c.next().GetSynced(), false)
	})
}

func TestR9SendsHeartbeatsWhenIdle(t *testing.T) {
	runServer(t, func(h *harness) {
		c := h.watch(emptyRequest, "writer")
		c.next()
		at := time.Now()
		checkEqual(t, "heartbeat before the first publication is synced", c.next().GetSynced(), false)
		checkEqual(t, "its time", time.Since(at), 5*time.Second)
		apply(h.nodes, nodeChanges(3))
		h.nodes.Publish(publishedStatus(1), nil)
		c.untilSynced()
		cursor := c.cursor
		at = time.Now()
		for range 3 {
			m := c.next()
			if !m.GetSynced() || len(m.GetUpserts())+len(m.GetRemoved()) > 0 || m.GetCursor().GetRevision() != cursor.GetRevision() {
				t.Errorf("heartbeat: %v", m)
			}
		}
		checkEqual(t, "three heartbeats later", time.Since(at), 15*time.Second)
		time.Sleep(3 * time.Second)
		apply(h.nodes, nodeChanges(4)[3:])
		c.next()
		at = time.Now()
		c.next()
		checkEqual(t, "a heartbeat after a change", time.Since(at), 5*time.Second)
	})
}

// A client that stops reading receives the current state when it reads again, and none of the states in
// between. Other clients are not delayed. The stream of a client that reads nothing is ended.
func TestR10SlowReadersSkipStates(t *testing.T) {
	runServer(t, func(h *harness) {
		apply(h.nodes, nodeChanges(3000)) // more than flow control lets through unread
		h.nodes.Publish(publishedStatus(1), nil)
		quick, slow, asleep := h.watch(emptyRequest, "writer"), h.watch(emptyRequest, "slow"), h.watch(emptyRequest, "asleep")
		quick.untilSynced()
		synctest.Wait()
		for i := range 25 {
			at := time.Now()
			batch := []roster.Change{{Name: fmt.Sprintf("worker-%05d", i)}, {Name: "busy", Node: newNode("busy", 70000+i, roster.Ready)}}
			apply(h.nodes, batch)
			quick.next()
			checkEqual(t, "delay of the fast client", time.Since(at), 0)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		slow.untilSynced() // the reset that was in flight
		checkEqual(t, "messages about 50 changes", slow.untilSynced(), 1)
		checkEqual(t, "nodes", len(slow.set), 2976)
		checkEqual(t, "the node that changed often", slow.set["busy"].GetAddresses(), []string{"10.1.17.136"})

		synctest.Wait()
		time.Sleep(31 * time.Second)
		synctest.Wait()
		checkEqual(t, "stalled", testutil.ToFloat64(h.server.Metrics.Ended.WithLabelValues("stalled")), 1.0)
		checkEqual(t, "subscribers", testutil.ToFloat64(h.server.Metrics.Subscribers), 2.0)
		checkEqual(t, "code of the stalled stream", asleep.endCode(), codes.ResourceExhausted)
		for range 4 { // the maximum: the stalled stream was released
			release, err := h.server.Admit("asleep")
			if err != nil {
				t.Fatal(err)
			}
			defer release()
		}
	})
}

func TestR11StopEndsStreamsWithUnavailable(t *testing.T) {
	runServer(t, func(h *harness) {
		apply(h.nodes, nodeChanges(3000))
		h.nodes.Publish(publishedStatus(1), nil)
		c, asleep := h.watch(emptyRequest, "writer"), h.watch(emptyRequest, "asleep")
		c.untilSynced()
		synctest.Wait()
		at := time.Now()
		h.server.Stop() // even while a message is not being read
		checkEqual(t, "time to stop", time.Since(at), 0)
		checkEqual(t, "code", c.endCode(), codes.Unavailable)
		checkEqual(t, "code of the stalled stream", asleep.endCode(), codes.Unavailable)
		checkEqual(t, "a new stream", h.watch(emptyRequest, "writer").endCode(), codes.Unavailable)
		r, err := h.health.Check(h.t.Context(), &grpc_health_v1.HealthCheckRequest{})
		checkEqual(t, "health", r.GetStatus(), grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		checkEqual(t, "error", err, nil)
		h.nodes.Publish(publishedStatus(2), nil)
		synctest.Wait()
		r, _ = h.health.Check(h.t.Context(), &grpc_health_v1.HealthCheckRequest{})
		checkEqual(t, "health after another observation", r.GetStatus(), grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	})
}

func TestRejectsInvalidAndExcessStreams(t *testing.T) {
	runServer(t, func(h *harness) {
		checkEqual(t, "an unknown client", h.watch(emptyRequest, "unknown").endCode(), codes.PermissionDenied)
		checkEqual(
			t,
			"a digest without a cursor",
			h.watch(&inventoryv1.WatchNodesRequest{Digest: make([]byte, 16)}, "writer").endCode(),
			codes.InvalidArgument,
		)
		checkEqual(
			t,
			"a Service of an inventory that exports none",
			h.watch(&inventoryv1.WatchNodesRequest{Service: "shop/web"}, "writer").endCode(),
			codes.FailedPrecondition,
		)
		var streams []*client
		for range 4 {
			c := h.watch(emptyRequest, "writer")
			c.next()
			streams = append(streams, c)
		}
		checkEqual(t, "a fifth stream", h.watch(emptyRequest, "writer").endCode(), codes.ResourceExhausted)
		other := h.watch(emptyRequest, "red")
		other.next()
		streams[0].cancel()
		synctest.Wait()
		again := h.watch(emptyRequest, "writer")
		again.next()
		checkEqual(t, "rejected", testutil.ToFloat64(h.server.Metrics.Ended.WithLabelValues("too_many_streams")), 1.0)
	})
}

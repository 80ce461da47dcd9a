package endpoints

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func allServices() *writerv1.WatchEndpointsRequest { return &writerv1.WatchEndpointsRequest{} }

func oneService(service string) *writerv1.WatchEndpointsRequest {
	return &writerv1.WatchEndpointsRequest{Services: []*writerv1.ServiceSelector{{Namespace: "web", Service: service}}}
}

func TestR1To4SnapshotArrivesInChunks(t *testing.T) {
	runTestServer(t, func(r *testServer) {
		r.store.Put(readyTarget("a", 1201))
		r.store.MarkSynced()
		c := r.watchEndpoints(allServices(), "proxy")
		m := c.nextMessage()
		checkEqual(t, "first chunk", []bool{m.GetReset_(), m.GetSynced()}, []bool{true, false})
		checkEqual(t, "interval", m.GetHeartbeatInterval().AsDuration(), 5*time.Second)
		checkEqual(t, "reset in the second chunk", c.nextMessage().GetReset_(), false)
		c.untilSynced()
		checkEqual(t, "entries", len(c.set), 1202)
		checkEqual(t, "target", c.set["web/a"].GetTarget().GetState(), writerv1.TargetState_TARGET_STATE_MANAGED)
		b := c.set["web/a/http/10.0.0.7"].GetEndpoint()
		checkEqual(t, "endpoint", b.GetBackend().GetSource()+b.GetPort().GetProtocol(), "defaultTCP")

		r.store.Put(readyTarget("a", 501))
		if n := c.untilSynced(); n < 2 {
			t.Errorf("700 removals came in %d messages", n)
		}
		checkEqual(t, "entries", len(c.set), 502)
	})
}

func TestR5ReconnectWithSameSetSendsNothing(t *testing.T) {
	runTestServer(t, func(r *testServer) {
		r.store.Put(readyTarget("a", 501))
		r.store.MarkSynced()
		c := r.watchEndpoints(allServices(), "proxy")
		resets := float64(c.untilSynced())
		synctest.Wait() // the last is counted
		c.cancel()
		c.cursor = &writerv1.Cursor{Epoch: "another writer", Revision: 999}
		for range 20 {
			next := r.resume(c, allServices())
			next.cursor = nil
			m := next.nextMessage()
			if !m.GetSynced() || m.GetReset_() || len(m.GetUpserts())+len(m.GetRemoved()) > 0 {
				t.Fatalf("answer to the digest of the present set: %v", m)
			}
			next.cancel()
			synctest.Wait()
		}
		checkEqual(t, "resets sent", testutil.ToFloat64(r.server.Metrics.Messages.WithLabelValues(string(stream.Reset))), resets)
	})
}

func TestR6ResumesByCursorR7ResetsOtherwise(t *testing.T) {
	runTestServer(t, func(r *testServer) {
		r.store.Put(readyTarget("a", 5))
		r.store.Put(readyTarget("b", 2))
		r.store.MarkSynced()
		c := r.watchEndpoints(oneService("a"), "proxy")
		c.untilSynced()
		c.cancel()
		synctest.Wait() // until its stream is no longer counted
		altered := readyTarget("a", 4)
		altered.Decision.Endpoints[0].Conditions = verdict.Conditions{Serving: true, Terminating: true}
		r.store.Put(altered)
		r.store.Put(readyTarget("b", 1))

		m := r.resume(c, oneService("a")).nextMessage()
		checkEqual(t, "reset", m.GetReset_(), false)
		checkEqual(t, "removed", m.GetRemoved(), []string{"web/a/http/10.0.0.4"})
		checkEqual(t, "upserts", len(m.GetUpserts()), 1)
		checkEqual(t, "conditions", m.GetUpserts()[0].GetEndpoint().GetBackend().GetTerminating(), true)

		other := r.resume(c, oneService("b"))
		checkEqual(t, "reset for another selection", other.nextMessage().GetReset_(), true)
		checkEqual(t, "its set", other.entryKeys(), []string{"web/b", "web/b/http/10.0.0.0"})
		gathered := r.resume(c, &writerv1.WatchEndpointsRequest{Services: oneService("a").GetServices(), GroupByPort: true})
		checkEqual(t, "reset when grouping changes", gathered.nextMessage().GetReset_(), true)
		checkEqual(t, "its set", gathered.entryKeys(), []string{"web/a", "web/a/http"})
		checkEqual(t, "its backends", len(gathered.set["web/a/http"].GetGroup().GetBackends()), 4)
		future := r.watchEndpoints(&writerv1.WatchEndpointsRequest{
			Services: oneService(
				"a",
			).GetServices(),
			Cursor: &writerv1.Cursor{Epoch: c.cursor.GetEpoch(), Revision: 1 << 40},
			Digest: c.digest,
		}, "proxy")
		checkEqual(t, "reset for a revision of the future", future.nextMessage().GetReset_(), true)
	})
}

func TestR6IdleClientStaysInsideWindow(t *testing.T) {
	runTestServer(t, func(r *testServer) {
		r.store.Put(readyTarget("a", 1))
		r.store.MarkSynced()
		c := r.watchEndpoints(oneService("a"), "proxy")
		c.untilSynced()
		for i := range 3 * stream.Window / 2 {
			r.store.Put(readyTarget("b", 1+i%2))
			if i%1000 == 0 {
				synctest.Wait() // it has seen that none of this is for it
			}
		}
		r.store.Put(readyTarget("a", 2))
		m := c.nextMessage()
		checkEqual(t, "a reset", m.GetReset_(), false)
		checkEqual(t, "upserts", len(m.GetUpserts()), 1)
	})
}

func TestR8SendsOnlyStatusBeforeInitialSync(t *testing.T) {
	runTestServer(t, func(r *testServer) {
		c := r.watchEndpoints(allServices(), "proxy")
		m := c.nextMessage()
		checkEqual(t, "synced before the first decisions", m.GetSynced() || m.GetReset_(), false)
		checkEqual(t, "why", m.GetStatus().GetReason() != "", true)
		check := func() grpc_health_v1.HealthCheckResponse_ServingStatus {
			synctest.Wait()
			h, err := r.health.Check(r.t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "slicefeed.writer.v1.WriterService"})
			if err != nil {
				t.Fatal(err)
			}
			return h.GetStatus()
		}
		checkEqual(t, "health before them", check(), grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		at := time.Now()
		r.store.Put(readyTarget("a", 2))
		checkEqual(t, "synced after one of them", c.nextMessage().GetSynced(), false)
		r.store.MarkSynced()
		c.untilSynced()
		checkEqual(t, "entries", len(c.set), 3)
		checkEqual(t, "health after them", check(), grpc_health_v1.HealthCheckResponse_SERVING)

		held := readyTarget("a", 2)
		held.Leading = false
		held.Decision.Endpoints[0].Held, held.Decision.Endpoints[1].Held = true, true
		r.store.Put(held)
		m = c.nextMessage()
		checkEqual(t, "held back", m.GetStatus().GetHeld(), uint32(2))
		checkEqual(t, "leading", m.GetStatus().GetLeading(), false)
		checkEqual(t, "entries sent again", len(m.GetUpserts()), 0)
		checkEqual(t, "time that all of this took", time.Since(at), 0)
	})
}

func TestR8RejectionNeverShrinksSet(t *testing.T) {
	runTestServer(t, func(r *testServer) {
		r.store.Put(readyTarget("a", 2))
		r.store.MarkSynced()
		c := r.watchEndpoints(allServices(), "proxy")
		c.untilSynced()
		rejected := readyTarget("a", 0)
		rejected.State, rejected.Reason, rejected.Message, rejected.ManagedBy = Rejected, "ServiceHasSelector", "Remove it.", "slicefeed-default"
		rejected.Slices = append(rejected.Slices, ownedSlice(2))
		r.store.Put(rejected)
		c.untilSynced()
		checkEqual(t, "entries", c.entryKeys(), []string{"web/a", "web/a/http/10.0.0.0", "web/a/http/10.0.0.1"})
		target := c.set["web/a"].GetTarget()
		checkEqual(t, "state", target.GetState(), writerv1.TargetState_TARGET_STATE_REJECTED)
		checkEqual(t, "reason", target.GetReason()+": "+target.GetMessage(), "ServiceHasSelector: Remove it.")
	})
}

func TestR9SendsHeartbeatsWhenIdle(t *testing.T) {
	runTestServer(t, func(r *testServer) {
		c := r.watchEndpoints(oneService("a"), "proxy")
		c.nextMessage()
		at := time.Now()
		checkEqual(t, "a heartbeat before the first decisions is synced", c.nextMessage().GetSynced(), false)
		checkEqual(t, "its time", time.Since(at), 5*time.Second)
		r.store.Put(readyTarget("a", 3))
		r.store.MarkSynced()
		c.untilSynced()
		cursor := c.cursor
		r.store.Put(readyTarget("b", 1)) // which it does not select
		at = time.Now()
		for range 3 {
			m := c.nextMessage()
			if !m.GetSynced() || len(m.GetUpserts())+len(m.GetRemoved()) > 0 || m.GetCount() != 4 {
				t.Errorf("heartbeat: %v", m)
			}
		}
		checkEqual(t, "three heartbeats later", time.Since(at), 15*time.Second)
		if c.cursor.GetRevision() <= cursor.GetRevision() {
			t.Errorf("the cursor stays at %d while others change", cursor.GetRevision())
		}
	})
}

// A reader that pauses gets only the current state when it resumes, without the states in between. It
// delays no others, and is disconnected if it never resumes.
func TestR10SlowReadersSkipStatesAndDelayNoOthers(t *testing.T) {
	runTestServer(t, func(r *testServer) {
		r.store.Put(readyTarget("a", 3000)) // more than flow control lets through unread
		r.store.MarkSynced()
		quick, slow, asleep := r.watchEndpoints(
			allServices(),
			"proxy",
		), r.watchEndpoints(
			allServices(),
			"slow",
		), r.watchEndpoints(
			allServices(),
			"asleep",
		)
		quick.untilSynced()
		synctest.Wait()
		for i := range 25 {
			at := time.Now()
			r.store.Put(readyTarget(fmt.Sprintf("b%d", i%2), i+1))
			quick.untilSynced()
			checkEqual(t, "delay of the quick one", time.Since(at), 0)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		slow.untilSynced() // the reset that was under way
		checkEqual(t, "messages about 25 changes", slow.untilSynced(), 1)
		checkEqual(t, "entries", len(slow.set), len(quick.set))

		synctest.Wait()
		time.Sleep(31 * time.Second)
		synctest.Wait()
		checkEqual(t, "stalled", testutil.ToFloat64(r.server.Metrics.Ended.WithLabelValues("stalled")), 1.0)
		checkEqual(t, "what it finds when it wakes", asleep.waitForEnd(), codes.ResourceExhausted)
	})
}

func TestR11StopEndsStreamsWithUnavailable(t *testing.T) {
	runTestServer(t, func(r *testServer) {
		r.store.Put(readyTarget("a", 3000))
		r.store.MarkSynced()
		c, asleep := r.watchEndpoints(allServices(), "proxy"), r.watchEndpoints(allServices(), "asleep")
		c.untilSynced()
		synctest.Wait()
		r.server.Stop() // even with an unread message under way
		checkEqual(t, "end", c.waitForEnd(), codes.Unavailable)
		checkEqual(t, "end of the sleeper", asleep.waitForEnd(), codes.Unavailable)
		checkEqual(t, "a new stream", r.watchEndpoints(allServices(), "proxy").waitForEnd(), codes.Unavailable)
		h, err := r.health.Check(r.t.Context(), &grpc_health_v1.HealthCheckRequest{})
		checkEqual(t, "health", h.GetStatus(), grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		checkEqual(t, "error", err, nil)
	})
}

func TestRejectsInvalidRequests(t *testing.T) {
	runTestServer(t, func(r *testServer) {
		checkEqual(t, "a stranger", r.watchEndpoints(allServices(), "unknown").waitForEnd(), codes.PermissionDenied)
		checkEqual(
			t,
			"a digest without a cursor",
			r.watchEndpoints(&writerv1.WatchEndpointsRequest{Digest: make([]byte, 16)}, "proxy").waitForEnd(),
			codes.InvalidArgument,
		)
		checkEqual(
			t,
			"a cursor without a digest",
			r.watchEndpoints(&writerv1.WatchEndpointsRequest{Cursor: &writerv1.Cursor{Epoch: "e"}}, "proxy").waitForEnd(),
			codes.InvalidArgument,
		)
		long := &writerv1.ServiceSelector{Namespace: "web", Service: strings.Repeat("n", maxServiceLength+1)}
		checkEqual(
			t,
			"a name longer than that of a ServiceImport",
			r.watchEndpoints(&writerv1.WatchEndpointsRequest{Services: []*writerv1.ServiceSelector{long}}, "proxy").waitForEnd(),
			codes.InvalidArgument,
		)
		checkEqual(
			t,
			"a Service without a namespace",
			r.watchEndpoints(&writerv1.WatchEndpointsRequest{Services: []*writerv1.ServiceSelector{{Service: "a"}}}, "proxy").waitForEnd(),
			codes.InvalidArgument,
		)
		many := make([]*writerv1.ServiceSelector, 101)
		for i := range many {
			many[i] = &writerv1.ServiceSelector{Namespace: "web"}
		}
		checkEqual(
			t,
			"too many Services",
			r.watchEndpoints(&writerv1.WatchEndpointsRequest{Services: many}, "proxy").waitForEnd(),
			codes.InvalidArgument,
		)
		for range 4 {
			r.watchEndpoints(allServices(), "proxy").nextMessage()
		}
		checkEqual(t, "a fifth stream", r.watchEndpoints(allServices(), "proxy").waitForEnd(), codes.ResourceExhausted)
		r.watchEndpoints(allServices(), "another").nextMessage()
	})
}

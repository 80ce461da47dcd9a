package subscriber

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

// exporter is an inventory that exports Services without endpoints. It denies shop/secret. If it is old, it does not know
// the field service.
type exporter struct {
	inventoryv1.UnimplementedInventoryServiceServer

	old bool

	mu      sync.Mutex
	streams map[string]int // open ones, by Service
	conns   atomic.Int32   // opened so far
}

func (x *exporter) WatchNodes(req *inventoryv1.WatchNodesRequest, to grpc.ServerStreamingServer[inventoryv1.WatchNodesResponse]) error {
	service := req.GetService()
	switch service {
	case "shop/secret":
		return status.Error(codes.PermissionDenied, "client may not see service shop/secret")
	case "":
		return status.Error(codes.FailedPrecondition, "this inventory exports Services")
	}
	x.count(service, 1)
	defer x.count(service, -1)
	synced := &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_SYNCED}
	m := &inventoryv1.WatchNodesResponse{
		Cursor: &inventoryv1.Cursor{Epoch: "epoch of " + service}, Synced: true, Digest: make([]byte, 16), Service: service,
		Status: &inventoryv1.SourceStatus{Membership: synced, Addresses: synced, Observation: 1},
	}
	if x.old {
		m.Service = ""
	}
	for {
		if err := to.Send(m); err != nil {
			return err
		}
		select {
		case <-to.Context().Done():
			return nil
		case <-time.After(5 * time.Second):
		}
	}
}

func (x *exporter) count(service string, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.streams[service] += n; x.streams[service] == 0 {
		delete(x.streams, service)
	}
}

// feedsHarness runs Feeds of an exporter.
type feedsHarness struct {
	*Feeds

	exporter *exporter
	registry *prometheus.Registry
	restart  func()
}

func runFeeds(t *testing.T, x *exporter, test func(h *feedsHarness)) {
	runFeedsWithLog(t, x, slog.DiscardHandler, test)
}

func runFeedsWithLog(t *testing.T, x *exporter, log slog.Handler, test func(h *feedsHarness)) {
	synctest.Test(t, func(t *testing.T) {
		x.streams = map[string]int{}
		var lis *bufconn.Listener
		var server *grpc.Server
		start := func() {
			lis, server = bufconn.Listen(64<<10), grpc.NewServer()
			inventoryv1.RegisterInventoryServiceServer(server, x)
			go server.Serve(lis)
		}
		start()
		dial := func() (*grpc.ClientConn, error) {
			x.conns.Add(1)
			return grpc.NewClient("passthrough:///inventory", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
		}
		h := &feedsHarness{exporter: x, registry: prometheus.NewRegistry()}
		h.restart = func() { server.Stop(); time.Sleep(10 * time.Second); start() }
		h.Feeds = New(Config{Source: "blue", Log: slog.New(log), Metrics: NewMetrics(h.registry), Dial: dial})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		test(h)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second) // until an unused connection is closed
		server.Stop()
	})
}

// wait lets streams open and close, and returns those that are open.
func (h *feedsHarness) wait() map[string]int {
	time.Sleep(time.Second)
	synctest.Wait()
	h.exporter.mu.Lock()
	defer h.exporter.mu.Unlock()
	return maps.Clone(h.exporter.streams)
}

func TestAServiceIsSubscribedToWhileTargetsUseIt(t *testing.T) {
	runFeeds(t, &exporter{}, func(h *feedsHarness) {
		h.Use("a/one", "shop/web")
		h.Use("a/two", "shop/web")
		h.Use("a/three", "shop/api")
		want := func(want map[string]int) {
			t.Helper()
			if got := h.wait(); !maps.Equal(got, want) {
				t.Errorf("streams %v, want %v", got, want)
			}
			if n, err := testutil.GatherAndCount(h.registry, "slicefeed_writer_source_connected"); err != nil || n != len(want) {
				t.Errorf("metrics of %d Services, want %d (%v)", n, len(want), err)
			}
		}
		want(map[string]int{"shop/web": 1, "shop/api": 1})
		if s := h.Snapshot("shop/web"); !s.SyncedInStream || s.Cursor.Epoch != "epoch of shop/web" || s.FeedName() != "blue/shop/web" {
			t.Errorf("not the set of shop/web: %+v", s)
		}
		h.Use("a/one", "shop/api")
		want(map[string]int{"shop/web": 1, "shop/api": 1})
		h.Leave("a/two")
		want(map[string]int{"shop/api": 1})
		h.Leave("a/one")
		h.Leave("a/three")
		want(map[string]int{})
		if h.exporter.conns.Load() != 1 || len(h.Snapshots()) != 0 {
			t.Errorf("%d connections, want one for all Services", h.exporter.conns.Load())
		}
	})
}

// slowAtFirst holds up the client whose stream opens first.
type slowAtFirst struct {
	slog.Handler

	opened atomic.Bool
}

func (*slowAtFirst) Enabled(context.Context, slog.Level) bool { return true }
func (s *slowAtFirst) WithAttrs([]slog.Attr) slog.Handler     { return s }
func (s *slowAtFirst) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "stream opened" && !s.opened.Swap(true) {
		time.Sleep(2 * time.Second)
	}
	return nil
}

func TestAStoppedClientLeavesTheMetricsToItsSuccessor(t *testing.T) {
	runFeedsWithLog(t, &exporter{}, &slowAtFirst{Handler: slog.DiscardHandler}, func(h *feedsHarness) {
		h.Use("a/one", "shop/web")
		h.wait()
		h.Leave("a/one")
		h.Use("a/one", "shop/web")
		want := strings.NewReader(`# HELP slicefeed_writer_source_connected 1 if the inventory is connected.
# TYPE slicefeed_writer_source_connected gauge
slicefeed_writer_source_connected{source="blue/shop/web"} 1
`)
		time.Sleep(2 * time.Second) // the first client ends; the second one is between two heartbeats
		if got := h.wait(); got["shop/web"] != 1 || !h.Snapshot("shop/web").Connected {
			t.Fatalf("the second client is not connected: streams %v", got)
		}
		if err := testutil.GatherAndCompare(h.registry, want, "slicefeed_writer_source_connected"); err != nil {
			t.Error(err)
		}
	})
}

func TestChangesNameTheTargets(t *testing.T) {
	runFeeds(t, &exporter{}, func(h *feedsHarness) {
		changed := func(want ...string) {
			t.Helper()
			h.wait()
			if got := slices.Sorted(maps.Keys(h.TakeChanged())); !slices.Equal(got, want) {
				t.Errorf("changed: %v, want %v", got, want)
			}
		}
		h.Use("a/one", "shop/web")
		h.Use("a/two", "shop/api")
		h.Use("a/three", "shop/api")
		h.wait()
		<-h.Changed()
		changed("a/one", "a/three", "a/two")
		changed()
		h.Leave("a/two")
		h.Use("a/one", "shop/api") // it has that set at once
		h.restart()
		changed("a/one", "a/three")
	})
}

// Snapshot returns what is published about a Service.
func (f *Feeds) Snapshot(service string) Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.clients[service]; c != nil {
		return c.published
	}
	return Snapshot{}
}

func TestServicesConnectWhileTheOnlyOtherOneIsDenied(t *testing.T) {
	runFeeds(t, &exporter{}, func(h *feedsHarness) {
		h.Use("a/one", "shop/secret")
		synctest.Wait() // its stream has ended, and the connection has no user
		h.Use("a/two", "shop/web")
		synctest.Wait()
		if !h.Snapshot("shop/web").SyncedInStream {
			t.Error("shop/web has to wait")
		}
		time.Sleep(5 * time.Second)
		h.Leave("a/two")
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			if got := h.Snapshot("shop/secret").Denial; got == "" {
				t.Error("the reason of the denial is lost")
				break
			}
		}
	})
}

func TestADeniedServiceConcernsNoOther(t *testing.T) {
	runFeeds(t, &exporter{}, func(h *feedsHarness) {
		h.Use("a/one", "shop/secret")
		h.Use("a/two", "shop/web")
		h.Use("a/three", "") // names none
		h.wait()
		for service, want := range map[string]string{
			"shop/secret": "client may not see service shop/secret", "": "this inventory exports Services",
		} {
			if s := h.Snapshot(service); s.EverSynced || s.NotSyncedReason() != "request rejected: "+want {
				t.Errorf("%q: %s", service, s.NotSyncedReason())
			}
		}
		if !h.Snapshot("shop/web").SyncedInStream {
			t.Error("shop/web is not synced")
		}
	})
}

// An inventory that is older than the field, or of another kind, has one set, which is not that of the Service.
func TestTheSetOfAnotherServiceIsAViolation(t *testing.T) {
	runFeeds(t, &exporter{old: true}, func(h *feedsHarness) {
		h.Use("a/one", "shop/web")
		h.wait()
		if h.Snapshot("shop/web").EverSynced {
			t.Error("a set was taken for that of shop/web")
		}
		if n := testutil.ToFloat64(violations(t, h.registry, OtherService)); n == 0 {
			t.Error("no violation is counted")
		}
	})
}

// violations returns the metric of violations of a kind as a collector.
func violations(t *testing.T, registry *prometheus.Registry, kind ViolationKind) prometheus.Collector {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := prometheus.NewCounter(prometheus.CounterOpts{Name: "total"})
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "slicefeed_writer_source_protocol_violations_total" && l.GetValue() == string(kind) {
					total.Add(m.GetCounter().GetValue())
				}
			}
		}
	}
	return total
}

func TestStreamsShareANewConnectionAfterAnOutage(t *testing.T) {
	runFeeds(t, &exporter{}, func(h *feedsHarness) {
		services := map[string]int{}
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			h.Use("x/"+name, "shop/"+name)
			services["shop/"+name] = 1
		}
		if got := h.wait(); !maps.Equal(got, services) {
			t.Fatalf("streams %v", got)
		}
		h.restart()
		time.Sleep(5 * time.Second)
		if got := h.wait(); !maps.Equal(got, services) {
			t.Errorf("streams after the outage: %v", got)
		}
		// The outage takes 10 s, in which each stream tries to connect about every 2 s.
		if n := h.exporter.conns.Load(); n < 2 || n > 12 {
			t.Errorf("%d connections, want at most one per second", n)
		}
	})
}

package exports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// growing is a source that has one endpoint, and two after 30 s. If err is set, it cannot be verified.
type growing struct {
	err     error
	start   time.Time
	taken   int
	changed chan struct{}
}

func (s *growing) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (s *growing) Changed() <-chan struct{}      { return s.changed }

func (s *growing) Verify(context.Context, source.Verification) (uint64, error) { return 1, s.err }

func (s *growing) Take() source.Update {
	update := source.Update{LastContact: time.Now(), Verified: 1}
	if s.taken == 0 || s.taken == 1 && time.Since(s.start) >= 30*time.Second {
		address := netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + s.taken)})
		update.Changed = []source.Candidate{{Name: address.String(), InternalIPs: []netip.Addr{address}, State: source.Ready}}
		s.taken++
	}
	return update
}

// harness runs Exports. The Service shop/secret is not exported.
type harness struct {
	*Exports

	registry *prometheus.Registry
	started  []string
}

func run(t *testing.T, test func(h *harness)) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{registry: prometheus.NewRegistry()}
		propagation := collector.NewPropagation(h.registry)
		reachable := errors.New("connection refused")
		h.Exports = New(Config{
			NewPipeline: func(service ServiceRef, registerer prometheus.Registerer) *collector.Pipeline {
				h.started = append(h.started, service.String())
				src := &growing{start: time.Now(), changed: make(chan struct{}, 1)}
				if service.Name == "secret" {
					src.err = errors.New("not exported")
				}
				return collector.NewPipeline(collector.Config{
					Source:      src,
					Roster:      roster.Config{Method: resolve.ByRecord, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
					Set:         feed.NewSet(service.String()),
					Registerer:  registerer,
					Propagation: propagation,
					Log:         slog.New(slog.DiscardHandler),
				})
			},
			CheckReachable: func(context.Context) error { err := reachable; reachable = nil; return err },
			Registerer:     h.registry, Log: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		synctest.Wait()
		test(h)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

var shopClient = nodeserver.Client{Name: "writer", AllowsService: func(service string) bool { return service != "pay/web" }}

func TestRequestsNameAServiceThatTheClientMaySee(t *testing.T) {
	run(t, func(h *harness) {
		for service, want := range map[string]codes.Code{
			"": codes.InvalidArgument, "web": codes.InvalidArgument, "shop/Web": codes.InvalidArgument, "shop/web/x": codes.InvalidArgument,
			"pay/web": codes.PermissionDenied, "shop/web": codes.OK,
		} {
			_, release, err := h.Acquire(shopClient, service)
			if got := status.Code(err); got != want {
				t.Errorf("a request for %q: %v, want %v", service, err, want)
			}
			if err == nil {
				release()
			}
		}
		if _, _, err := h.Acquire(nodeserver.Client{Name: "other"}, "shop/web"); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a client without services: %v", err)
		}
		if !slices.Equal(h.started, []string{"shop/web"}) {
			t.Errorf("started %v, want only what was allowed", h.started)
		}
	})
}

func TestEachServiceIsASetOfItsOwn(t *testing.T) {
	run(t, func(h *harness) {
		web, _, err := h.Acquire(shopClient, "shop/web")
		if err != nil {
			t.Fatal(err)
		}
		again, _, _ := h.Acquire(shopClient, "shop/web")
		secret, _, _ := h.Acquire(shopClient, "shop/secret")
		if again != web || secret == web {
			t.Error("clients of one Service do not share its set, or those of two share one")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if now, _ := web.Nodes.Status(); now.Observation == 0 || web.Nodes.Revision() != 2 {
			t.Errorf("shop/web is not published: %+v", now)
		}
		if now, _ := secret.Nodes.Status(); now.Observation != 0 || now.Membership.Sync != source.Unsynced {
			t.Errorf("shop/secret is published: %+v", now)
		}
		if h.TotalRevisions() != 2 {
			t.Errorf("%d changes, want 2", h.TotalRevisions())
		}
	})
}

func TestServicesAreFreedSomeTimeAfterTheLastClient(t *testing.T) {
	run(t, func(h *harness) {
		_, releaseWeb, _ := h.Acquire(shopClient, "shop/web")
		_, releaseAgain, _ := h.Acquire(shopClient, "shop/web")
		_, releaseSecret, _ := h.Acquire(shopClient, "shop/secret")
		inUse := func(want ...string) {
			t.Helper()
			if got := h.InUse(); !slices.Equal(got, want) {
				t.Errorf("in use: %v, want %v", got, want)
			}
			series, err := testutil.GatherAndCount(h.registry, "slicefeed_inventory_observations_total")
			if err != nil || series != len(want) {
				t.Errorf("metrics of %d Services, want %d (%v)", series, len(want), err)
			}
		}
		releaseWeb()
		releaseSecret()
		time.Sleep(unusedTimeout + freeInterval)
		synctest.Wait()
		inUse("shop/web") // one client is left; what was never published is not kept
		releaseAgain()
		time.Sleep(unusedTimeout - freeInterval)
		synctest.Wait()
		inUse("shop/web")
		time.Sleep(2 * freeInterval)
		synctest.Wait()
		inUse()
		if h.TotalRevisions() != 2 {
			t.Errorf("%d changes, want those of the freed Service too", h.TotalRevisions())
		}
		if _, _, err := h.Acquire(shopClient, "shop/web"); err != nil {
			t.Fatal(err)
		}
		inUse("shop/web")
	})
}

func TestServicesThatWereNeverPublishedMakeRoom(t *testing.T) {
	run(t, func(h *harness) {
		unpublished := h.cfg.NewPipeline
		h.cfg.NewPipeline = func(_ ServiceRef, registerer prometheus.Registerer) *collector.Pipeline {
			return unpublished(ServiceRef{"shop", "secret"}, registerer)
		}
		h.max = 8
		for i := range h.max {
			_, release, err := h.Acquire(shopClient, fmt.Sprintf("shop/s%d", i))
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				release()
			}
		}
		if _, _, err := h.Acquire(shopClient, "shop/web"); err != nil || len(h.InUse()) != 2 {
			t.Errorf("%v with %d Services in use, want room for another", err, len(h.InUse()))
		}
	})
}

func TestReadyOnceTheAPIServerResponds(t *testing.T) {
	run(t, func(h *harness) {
		ready, changed := h.Ready()
		if err := h.CheckReachable(); ready || err == nil {
			t.Errorf("ready before the API server has responded: %v", err)
		}
		<-changed
		if ready, _ = h.Ready(); !ready || h.CheckReachable() != nil {
			t.Error("not ready although the API server responds")
		}
	})
}

package exports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// growing is a source that has one endpoint, and two after 30 s.
type growing struct {
	start   time.Time
	taken   int
	changed chan struct{}
}

func (s *growing) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (s *growing) Changed() <-chan struct{}      { return s.changed }

func (s *growing) Verify(context.Context, roster.Verification) (uint64, error) { return 1, nil }

func (s *growing) Take() roster.Update {
	update := roster.Update{LastContact: time.Now(), Verified: 1}
	if s.taken == 0 || s.taken == 1 && time.Since(s.start) >= 30*time.Second {
		address := netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + s.taken)})
		update.Changed = []roster.Node{{Name: address.String(), InternalIPs: []netip.Addr{address}, State: roster.Ready}}
		s.taken++
	}
	return update
}

// exported is the catalog of a namespace.
type exported struct {
	changed   chan struct{}
	names     map[string]bool
	unsettled []string // changes that were not taken yet
	problem   string
}

func (c *exported) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (c *exported) Changed() <-chan struct{}      { return c.changed }
func (c *exported) Has(name string) bool          { return c.names[name] }
func (c *exported) Problem() string               { return c.problem }

func (c *exported) Take() (names []string) {
	names, c.unsettled = c.unsettled, nil
	return names
}

// harness runs Exports.
type harness struct {
	*Exports

	registry  *prometheus.Registry
	catalogs  map[string]*exported
	started   []string
	rechecked []string
}

// setExported adds a Service to a catalog, or removes it.
func (h *harness) setExported(namespace, service string, is bool) {
	c := h.catalogs[namespace]
	h.mu.Lock()
	c.names[service], c.unsettled = is, append(c.unsettled, service)
	h.mu.Unlock()
	c.changed <- struct{}{}
	synctest.Wait()
}

func run(t *testing.T, test func(h *harness)) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{registry: prometheus.NewRegistry(), catalogs: map[string]*exported{}}
		propagation := collector.NewPropagation(h.registry)
		reachable := errors.New("connection refused")
		h.Exports = New(Config{
			NewCollector: func(service types.NamespacedName, set *feed.Set, registerer prometheus.Registerer) (*collector.Collector, func()) {
				h.started = append(h.started, service.String())
				return collector.New(collector.Config{
					Source:      &growing{start: time.Now(), changed: make(chan struct{}, 1)},
					Roster:      roster.Config{Method: roster.ByRecord, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
					Set:         set,
					Registerer:  registerer,
					Propagation: propagation,
					Log:         slog.New(slog.DiscardHandler),
				}), func() { h.rechecked = append(h.rechecked, service.String()) }
			},
			NewCatalog: func(namespace string) Catalog {
				c := &exported{changed: make(chan struct{}, 1), names: map[string]bool{"shop/web": true, "shop/api": true}}
				h.catalogs[namespace] = c
				return c
			},
			Selector:       labels.SelectorFromSet(labels.Set{"export": "yes"}),
			CheckReachable: func(context.Context) error { err := reachable; reachable = nil; return err },
			Registerer:     h.registry,
			Log:            slog.New(slog.DiscardHandler),
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

var shopClient = feed.Client{SAN: "writer", Services: []string{"shop/*"}}

func TestRequestsNameAServiceThatTheClientMaySee(t *testing.T) {
	run(t, func(h *harness) {
		for service, want := range map[string]codes.Code{
			"": codes.FailedPrecondition, "web": codes.InvalidArgument, "shop/Web": codes.InvalidArgument, "shop/web/x": codes.InvalidArgument,
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
		if _, _, err := h.Acquire(feed.Client{SAN: "other"}, "shop/web"); status.Code(err) != codes.PermissionDenied {
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
		api, _, _ := h.Acquire(shopClient, "shop/api")
		if again != web || api == web {
			t.Error("clients of one Service do not share its set, or those of two share one")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if now, _ := web.Status(); now.Observation == 0 || web.Revision() != 2 {
			t.Errorf("shop/web is not published: %+v", now)
		}
		if h.Revision() != 4 {
			t.Errorf("%d changes, want 4", h.Revision())
		}
	})
}

func (h *harness) expectInUse(t *testing.T, want ...string) {
	t.Helper()
	if got := h.InUse(); !slices.Equal(got, want) {
		t.Errorf("in use: %v, want %v", got, want)
	}
	series, err := testutil.GatherAndCount(h.registry, "slicefeed_inventory_observations_total")
	if err != nil || series != len(want) {
		t.Errorf("metrics of %d Services, want %d (%v)", series, len(want), err)
	}
}

// A client can make up any number of names.
func TestNothingIsBuiltForAServiceThatIsNotExported(t *testing.T) {
	run(t, func(h *harness) {
		wildcard := feed.Client{SAN: "wildcard", Services: []string{"*/*"}}
		var releases []func()
		for i := range 2 * maxUnexported {
			_, release, err := h.Acquire(wildcard, fmt.Sprintf("ns-%d/web", i))
			switch {
			case i < maxUnexported && err == nil:
				releases = append(releases, release)
			case i < maxUnexported || status.Code(err) != codes.ResourceExhausted:
				t.Fatalf("request %d: %v", i, err)
			}
		}
		if len(h.started) > 0 || len(h.catalogs) != 1 || len(h.services) != maxUnexported {
			t.Errorf("started %v, with %d catalogs and %d sets", h.started, len(h.catalogs), len(h.services))
		}
		h.expectInUse(t)
		if _, release, err := h.Acquire(wildcard, "shop/web"); err != nil {
			t.Errorf("an exported one: %v", err)
		} else {
			release()
		}
		if _, release, err := h.Acquire(shopClient, "shop/later"); err != nil {
			t.Errorf("another client: %v", err)
		} else {
			release()
		}
		for _, release := range releases {
			release()
		}
		if h.expectInUse(t, "shop/web"); len(h.services) != 1 {
			t.Errorf("%d sets are left", len(h.services))
		}
	})
}

func TestAServiceStartsWhenItIsExportedAndIsReadAgainWhenItIsNot(t *testing.T) {
	run(t, func(h *harness) {
		later, _, err := h.Acquire(shopClient, "shop/later")
		if err != nil {
			t.Fatal(err)
		}
		if now := later.Since(nil, nil); now.Synced ||
			!strings.Contains(now.Status.Membership.Reason, "service shop/later is not exported") {
			t.Errorf("published %+v", now)
		}
		if state := later.Since(nil, nil).Status.Membership.Sync; state != roster.Withheld {
			t.Errorf("it is %s", state)
		}
		h.catalogs["shop"].problem = "no permission"
		h.setExported("shop", "shop/later", false)
		if state := later.Since(nil, nil).Status.Membership.Sync; state != roster.Unsynced {
			t.Errorf("it is %s while nothing is known of it", state)
		}
		h.catalogs["shop"].problem = ""
		h.setExported("shop", "shop/later", true)
		if now := later.Since(nil, nil); !now.Synced || now.Count != 1 {
			t.Errorf("published %+v", now)
		}
		h.setExported("shop", "shop/later", false)
		if h.expectInUse(t, "shop/later"); !slices.Equal(h.rechecked, []string{"shop/later"}) {
			t.Errorf("read again: %v", h.rechecked)
		}
	})
}

func TestServicesAreFreedSomeTimeAfterTheLastClient(t *testing.T) {
	run(t, func(h *harness) {
		_, releaseWeb, _ := h.Acquire(shopClient, "shop/web")
		_, releaseAgain, _ := h.Acquire(shopClient, "shop/web")
		releaseWeb()
		time.Sleep(unusedTimeout + freeInterval)
		synctest.Wait()
		h.expectInUse(t, "shop/web") // one client is left
		releaseAgain()
		time.Sleep(unusedTimeout - freeInterval)
		synctest.Wait()
		h.expectInUse(t, "shop/web")
		time.Sleep(2 * freeInterval)
		synctest.Wait()
		h.expectInUse(t)
		if h.Revision() != 2 {
			t.Errorf("%d changes, want those of the freed Service too", h.Revision())
		}
		if _, _, err := h.Acquire(shopClient, "shop/web"); err != nil {
			t.Fatal(err)
		}
		h.expectInUse(t, "shop/web")
	})
}

func TestServicesWithoutClientsMakeRoom(t *testing.T) {
	run(t, func(h *harness) {
		h.max = 1
		_, releaseWeb, _ := h.Acquire(shopClient, "shop/web")
		api, _, err := h.Acquire(shopClient, "shop/api")
		if now, _ := api.Status(); err != nil || !strings.Contains(now.Membership.Reason, "1 services are in use") {
			t.Errorf("%v, %+v", err, now)
		}
		releaseWeb()
		time.Sleep(2 * freeInterval)
		synctest.Wait()
		h.expectInUse(t, "shop/api")
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

func TestACallMayComeWhileItEnds(t *testing.T) {
	for range 300 {
		e := New(Config{
			NewCatalog:     func(string) Catalog { return &exported{} },
			Selector:       labels.Everything(),
			CheckReachable: func(context.Context) error { return nil },
			Registerer:     prometheus.NewRegistry(),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		calls.Go(func() {
			if err := e.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		calls.Go(func() {
			if _, release, err := e.Acquire(shopClient, "shop/later"); err == nil {
				release()
			}
		})
		cancel()
		calls.Wait()
	}
}

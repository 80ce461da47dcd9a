package probes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/reconciler"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	writertargets "github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Hostile sources report as many nodes as are used of one (MAX_ENDPOINTS), and as many as have blinded a writer, for each
// of so many Services.
const (
	hostileNodes    = 10_000
	blindingNodes   = 32_000
	hostileServices = 9
	podMemory       = 256 << 20 // of the chart
)

// fixedSource reports the same nodes all the time.
type fixedSource struct{ snapshot subscriber.Snapshot }

func newFixedSource(name string, addresses ...netip.Addr) *fixedSource {
	part := subscriber.PartStatus{State: subscriber.Synced, Since: time.Now()}
	s := &fixedSource{
		subscriber.Snapshot{
			Source:                name,
			Connected:             true,
			SyncedInStream:        true,
			EverSynced:            true,
			Membership:            part,
			Addresses:             part,
			MembershipSyncedAt:    time.Now(),
			ObservationEpoch:      "e",
			Observation:           1,
			ObservationReceivedAt: time.Now(),
			ChangedAt:             time.Now(),
		},
	}
	for _, a := range addresses {
		s.snapshot.Members = append(s.snapshot.Members, &verdict.Member{
			Name: a.String(), Address: a, State: verdict.Ready, Since: time.Now(),
		})
	}
	s.snapshot.TrustedMembers = s.snapshot.Members
	return s
}

func (s *fixedSource) Use(string, string) subscriber.Snapshot { return s.snapshot }
func (s *fixedSource) Leave(string)                           {}
func (s *fixedSource) TakeChanged() map[string]struct{}       { return nil }
func (s *fixedSource) Changed() <-chan struct{}               { return nil }

// cluster has Services and their slices, and is what the writer reads and writes. Its writer always leads.
type cluster struct {
	changed chan struct{}

	mu      sync.Mutex
	views   map[writertargets.Key]writertargets.Resolution
	taken   bool
	version int
}

func (c *cluster) add(name, source string, port uint16) {
	key := writertargets.Key{Namespace: "web", Name: name}
	c.views[key] = writertargets.Resolution{
		ResourceVersion: "0",
		Target: writertargets.Target{
			Key:        key,
			State:      writertargets.Managed,
			Owner:      metav1.OwnerReference{Kind: "Service", Name: name, UID: types.UID(name)},
			ManagedBy:  "slicefeed-default",
			FirstName:  name + "-slicefeed",
			Families:   []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
			Configured: []sources.Source{{Name: source, Ports: []sources.PortRange{{First: 1, Last: 65535}}}},
			ProbePort:  port,
			Ports:      []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(port)), Protocol: new(corev1.ProtocolTCP)}},
			Settings: writertargets.Settings{
				Sources:     []string{source},
				Probe:       probe.Spec{Mode: probe.TCP}.Canonical(),
				ListUnready: true,
			},
		},
	}
}

func (c *cluster) Get(key writertargets.Key, _ time.Time) writertargets.Resolution {
	c.mu.Lock()
	defer c.mu.Unlock()
	view := c.views[key]
	view.ResourceVersion = strconv.Itoa(c.version)
	return view
}

func (c *cluster) TakeChanged() (keys []writertargets.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.views {
		if !c.taken {
			keys = append(keys, key)
		}
	}
	c.taken = true
	return keys
}

func (c *cluster) Changed() <-chan struct{} { return c.changed }
func (c *cluster) Synced() error            { return nil }

// slicesOf is what the writer needs of the API server.
type slicesOf struct {
	applier.Store

	*cluster
}

// Get is not needed: nothing conflicts.
func (slicesOf) Get(context.Context, string, string) (*discoveryv1.EndpointSlice, error) {
	return nil, errors.ErrUnsupported
}

func (s slicesOf) List(_ context.Context, namespace string, with map[string]string) ([]*discoveryv1.EndpointSlice, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views[writertargets.Key{Namespace: namespace, Name: with[discoveryv1.LabelServiceName]}].Slices, strconv.Itoa(s.version), nil
}

func (s slicesOf) Create(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	return s.Update(ctx, slice)
}

func (s slicesOf) Update(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	now := slice.DeepCopy()
	now.ResourceVersion, now.UID = strconv.Itoa(s.version), types.UID(slice.Name)
	key := writertargets.Key{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	view := s.views[key]
	all := []*discoveryv1.EndpointSlice{now}
	for _, other := range view.Slices {
		if other.Name != slice.Name {
			all = append(all, other)
		}
	}
	view.Slices = all
	s.views[key] = view
	return now, nil
}

func (s slicesOf) Delete(context.Context, *discoveryv1.EndpointSlice) error {
	return errors.ErrUnsupported
}

// ready returns how many endpoints of a Service are ready.
func (c *cluster) ready(name string) (n int) {
	for _, slice := range c.Get(writertargets.Key{Namespace: "web", Name: name}, time.Time{}).Slices {
		for i := range slice.Endpoints {
			if *slice.Endpoints[i].Conditions.Ready {
				n++
			}
		}
	}
	return n
}

type alwaysLeading struct{}

func (alwaysLeading) LeadingSince() time.Time  { return time.Unix(0, 0) }
func (alwaysLeading) Changed() <-chan struct{} { return nil }
func (alwaysLeading) Release() func()          { return func() {} }

// listen accepts connections until it is closed.
func listen(t *testing.T, at string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_ = conn.Close()
		}
	}()
	return l
}

func TestASourceOfRefusingNodesDoesNotDelayAnotherService(t *testing.T) {
	skipUnlessLoad(t)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(podMemory * 9 / 10)) // GOMEMLIMIT of the chart
	const honestPort = 20080
	honest := []netip.Addr{netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("10.2.0.2")}
	var refusing []netip.Addr
	for i := range blindingNodes {
		refusing = append(refusing, netip.AddrFrom4([4]byte{10, 3, byte(i >> 8), byte(i)}))
	}
	for _, a := range slices.Concat(honest, refusing[:hostileNodes]) {
		if err := netns.AddAddr(a); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{changed: make(chan struct{}, 1), views: map[writertargets.Key]writertargets.Resolution{}}
	c.add("honest", "honest", honestPort)
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	prober := probe.NewProber(log, registry)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { _ = prober.Run(ctx) })
	running.Go(func() {
		_ = reconciler.Run(ctx, reconciler.Config{
			Sources: []reconciler.Source{
				{Name: "honest", Feeds: newFixedSource("honest", honest...), CIDRs: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}},
				{
					Name:  "hostile",
					Feeds: newFixedSource("hostile", refusing[:hostileNodes]...),
					CIDRs: []netip.Prefix{netip.MustParsePrefix("10.3.0.0/16")},
				},
				{
					Name:  "blinding",
					Feeds: newFixedSource("blinding", refusing...),
					CIDRs: []netip.Prefix{netip.MustParsePrefix("10.3.0.0/16")},
				},
			},
			Targets: c, Prober: prober, Lease: alwaysLeading{}, MaxEndpoints: hostileNodes, Logger: log, Registerer: registry,
			Limits:   verdict.Limits{MaxStaleness: 15 * time.Minute, EmptyThreshold: 3, ShrinkWindow: time.Minute},
			Reporter: events.NewReporter(events.Config{Logger: log}), Endpoints: endpoints.NewStore("life"),
			Applier: func() *applier.Applier {
				return applier.New(applier.Config{Store: slicesOf{cluster: c}, Leading: func() bool { return true }, Logger: log})
			},
		})
	})
	until := func(what string, n int) time.Duration {
		t.Helper()
		start := time.Now()
		for c.ready("honest") != n {
			if time.Since(start) > time.Minute {
				t.Fatalf("not in a minute: %s", what)
			}
			time.Sleep(5 * time.Millisecond)
		}
		return time.Since(start)
	}
	first, second := listen(
		t,
		netip.AddrPortFrom(honest[0], honestPort).String(),
	), listen(t, netip.AddrPortFrom(honest[1], honestPort).String())
	defer func() { _, _ = first.Close(), second.Close() }()
	c.changed <- struct{}{}
	noticed := func() (slowest time.Duration) {
		for range 3 {
			until("both are ready", 2)
			_ = first.Close()
			slowest = max(slowest, until("the dead one is not", 1))
			first = listen(t, first.Addr().String())
		}
		until("both are ready", 2)
		return slowest
	}
	clock := newClock(t)
	alone := noticed()
	busy := clock.measured() // without the source: what it costs must not extend the bound
	follow := func(source string) {
		c.mu.Lock()
		c.taken = false
		for i := range hostileServices {
			c.add(fmt.Sprint(source, "-", i), source, uint16(30000+i))
		}
		c.mu.Unlock()
		c.changed <- struct{}{}
	}
	follow("blinding")
	blinded := noticed()
	follow("hostile")
	coming := noticed() // while they all are pending: this has no bound
	beside := noticed()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	used := memory.Sys - memory.HeapReleased
	t.Logf("the slowest of 3 deaths: %v alone, %v beside %d nodes, %v while %d come, %v beside them; %d MB",
		alone, blinded, blindingNodes, coming, hostileNodes, beside, used>>20)
	if limit := 12*max(alone, Refuses)/10 + busy; max(blinded, beside) > limit {
		t.Errorf("noticed after %v, want %v", max(blinded, beside), limit)
	}
	if used > podMemory {
		t.Errorf("%d MB are used", used>>20)
	}
}

package reconciler

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// herd is a source of many nodes, one of which changes at a time.
type herd struct {
	view   *subscriber.Mirror
	nodes  []*inventoryv1.Node
	digest [16]byte
	at     uint64
}

func newHerd(b testing.TB, nodes int) *herd {
	b.Helper()
	h := &herd{view: subscriber.NewMirror()}
	h.view.BeginStream()
	for i := range nodes {
		h.nodes = append(h.nodes, &inventoryv1.Node{
			Name: fmt.Sprintf("herd-%06d", i), Uid: strconv.Itoa(i), Addresses: []string{address(i).String()},
		})
		h.state(i, inventoryv1.NodeState_NODE_STATE_READY)
	}
	for from := 0; from < nodes; from += contract.MaxChunk {
		to := min(from+contract.MaxChunk, nodes)
		h.tell(b, from == 0, to == nodes, h.nodes[from:to]...)
	}
	return h
}

func address(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}) }

func (h *herd) state(i int, state inventoryv1.NodeState) {
	n := h.nodes[i]
	toggle := func() {
		for i, b := range n.GetFingerprint() {
			h.digest[i] ^= b
		}
	}
	toggle()
	n.State = state
	sum := sha256.Sum256(fmt.Append(nil, n.GetName(), state))
	n.Fingerprint = sum[:16]
	toggle()
}

func (h *herd) tell(b testing.TB, reset, synced bool, nodes ...*inventoryv1.Node) {
	b.Helper()
	part := &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_SYNCED}
	m := &inventoryv1.WatchNodesResponse{
		Reset_: reset, Upserts: nodes, Status: &inventoryv1.SourceStatus{Membership: part, Addresses: part, Observation: 1},
	}
	if synced {
		h.at++
		m.Synced, m.Count, m.Digest = true, uint32(len(h.nodes)), h.digest[:]
		m.Cursor = &inventoryv1.Cursor{Epoch: "life", Revision: h.at}
	}
	if _, err := h.view.Apply(time.Now(), m); err != nil {
		b.Fatal(err)
	}
}

func (*herd) Leave(string)                     {}
func (*herd) TakeChanged() map[string]struct{} { return nil }
func (h *herd) Use(string, string) subscriber.Snapshot {
	s := h.view.Snapshot()
	s.Source, s.Connected = "default", true
	return s
}
func (*herd) Changed() <-chan struct{} { return nil }

// shelf is an API server that has one Service and its slices.
type shelf struct {
	applier.Store

	view    targets.Resolution
	version int
	writes  int
	looks   int // at the cache
}

// abreast is a cache that has seen all that was written.
type abreast struct {
	Targets

	of *shelf
}

func (a abreast) Get(targets.Key, time.Time) targets.Resolution {
	a.of.looks++
	return a.of.view
}

func (s *shelf) List(context.Context, string, map[string]string) ([]*discoveryv1.EndpointSlice, string, error) {
	return s.view.Slices, strconv.Itoa(s.version), nil
}

func (s *shelf) Create(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	s.view.Slices = append(s.view.Slices, nil)
	return s.Update(ctx, slice)
}

func (s *shelf) Update(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	s.version++
	s.writes++
	now := slice.DeepCopy()
	now.ResourceVersion, now.UID = strconv.Itoa(s.version), types.UID(slice.Name)
	all := append([]*discoveryv1.EndpointSlice(nil), s.view.Slices...)
	for i, one := range all {
		if one == nil || one.Name == slice.Name {
			all[i] = now
			break
		}
	}
	s.view.Slices, s.view.ResourceVersion = all, now.ResourceVersion
	return now.DeepCopy(), nil
}

// answered says that every probe passes, since always.
type answered struct{ Prober }

func (answered) Set(string, []probe.Request) {}
func (answered) Statuses(requests []probe.Request) []probe.Status {
	return statuses(probe.Status{Health: probe.Passing}, requests)
}

// BenchmarkOneChange is all that the writer does about one node of a Service with many endpoints,
// apart from what goes over the network: the source's word, the decision, the plan, the write, and
// the decisions after its answer and after the watch has told of it.
func BenchmarkOneChange(b *testing.B) {
	for _, mode := range []probe.Mode{probe.Off, probe.TCP} {
		for _, nodes := range []int{10, 100, 1000, 5000} {
			b.Run(fmt.Sprintf("probe=%s/endpoints=%d", mode, nodes), func(b *testing.B) { oneChange(b, mode, nodes) })
		}
	}
}

// shop is a Service that follows a herd, and has been written.
type shop struct {
	*Reconciler

	decided, written recordedQueue

	from *herd
	api  *shelf
}

var shopKey = targets.Key{Namespace: "web", Name: "shop"}

func newShop(b testing.TB, mode probe.Mode, nodes int) *shop {
	b.Helper()
	key := shopKey
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	port, protocol, name := int32(30080), corev1.ProtocolTCP, "http"
	from := newHerd(b, nodes)
	api := &shelf{view: targets.Resolution{
		ResourceVersion: "0",
		Target: targets.Target{
			Key:        key,
			State:      targets.Managed,
			Owner:      metav1.OwnerReference{UID: "uid"},
			ManagedBy:  "slicefeed-default",
			FirstName:  "shop-slicefeed",
			Configured: anyPort,
			Families:   []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
			Ports:      []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
			Settings:   targets.Settings{Sources: []string{"default"}, Probe: probe.Spec{Mode: mode}, ListUnready: true},
		},
	}}
	reporter := events.NewReporter(events.Config{Logger: log})
	hooks := report.NewHooks(registry, reporter, &report.Writes{})
	one := &shop{from: from, api: api}
	one.Reconciler = New(Config{
		Sources: []Source{{Name: "default", Feeds: from, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}},
		Targets: abreast{
			of: api,
		},
		Prober:     answered{},
		Lease:      &fakeLease{since: time.Now()},
		Reporter:   reporter,
		Logger:     log,
		Registerer: registry,
		Endpoints:  endpoints.NewStore("life"),
		Applier: func() *applier.Applier {
			return applier.New(applier.Config{
				Store: api, Leading: func() bool { return true }, Hooks: hooks, Logger: log,
			})
		},
	}, &one.decided, &one.written)
	for range 4 {
		one.settle()
	}
	if got := len(planner.CurrentEndpoints(api.view.Desired(), api.view.Slices)); got != nodes {
		b.Fatalf("%d endpoints are written", got)
	}
	return one
}

// settle decides and writes until there is nothing more to do.
func (s *shop) settle() {
	s.decided.added++
	for s.decided.added+s.written.added > 0 {
		if decisions, _ := s.decided.take(); decisions > 0 {
			s.Decide(shopKey, time.Now())
		}
		if writes, _ := s.written.take(); writes > 0 {
			s.Write(context.Background(), shopKey, time.Now())
		}
	}
}

// turn has a node drain, or be ready again.
func (s *shop) turn(b testing.TB, i int) {
	b.Helper()
	state := inventoryv1.NodeState_NODE_STATE_DRAINING
	if s.from.nodes[i].GetState() == state {
		state = inventoryv1.NodeState_NODE_STATE_READY
	}
	s.from.state(i, state)
	s.from.tell(b, false, true, s.from.nodes[i])
}

func oneChange(b *testing.B, mode probe.Mode, nodes int) {
	s := newShop(b, mode, nodes)
	before, changes := s.api.writes, 0
	b.ReportAllocs()
	for b.Loop() {
		s.turn(b, changes*37%nodes)
		s.settle() // the word, and the answer
		s.settle() // the watch
		changes++
	}
	b.ReportMetric(float64(s.api.writes-before)/float64(changes), "writes/op")
}

func TestEmptyPlanCausesNoDecision(t *testing.T) {
	s := newShop(t, probe.Off, 3)
	looks := func(do func()) int {
		before := s.api.looks
		do()
		return s.api.looks - before
	}
	if n := looks(func() { s.turn(t, 1); s.settle() }); n != 2 {
		t.Errorf("after a change: %d decisions, want one before its write and one after it", n)
	}
	if n := looks(func() { s.settle() }); n != 1 {
		t.Errorf("when the watch has told of it: %d decisions, want one", n)
	}
}

package skew

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
	"github.com/slicefeed/slicefeed/services/writer/nodeclient"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// peer is what an end meets: requests are those of a subscriber, answers those of an inventory.
type peer struct {
	name              string
	requests, answers Alter
	lost              func(*subscriber.Snapshot) // what the subscriber is not told; nil: nothing
}

func lose(from func(m *subscriber.Member)) func(*subscriber.Snapshot) {
	return func(s *subscriber.Snapshot) {
		for _, members := range []*[]*subscriber.Member{&s.Members, &s.TrustedMembers} {
			*members = slices.Clone(*members)
			for i, m := range *members {
				less := *m
				from(&less)
				(*members)[i] = &less
			}
		}
	}
}

// unknownState is an inventory that tells a state which nobody knows.
func unknownState(n protoreflect.EnumNumber) peer {
	return peer{
		name:    fmt.Sprintf("an inventory with a state of nodes numbered %d", n),
		answers: Alter{Enums: map[protoreflect.FullName]protoreflect.EnumNumber{"slicefeed.inventory.v1.NodeState": n}},
		lost: lose(func(m *subscriber.Member) {
			m.State, m.WorkloadStates = subscriber.Unknown, map[string]subscriber.NodeState{"web": subscriber.Unknown}
		}),
	}
}

// unknownWorth is an inventory that tells another worth of its set.
func unknownWorth(n protoreflect.EnumNumber) peer {
	return peer{
		name:    fmt.Sprintf("an inventory with a state of its source numbered %d", n),
		answers: Alter{Enums: map[protoreflect.FullName]protoreflect.EnumNumber{"slicefeed.inventory.v1.SyncState": n}},
		lost: func(s *subscriber.Snapshot) {
			s.Membership.State, s.Addresses.State, s.MembershipSyncedAt = subscriber.Degraded, subscriber.Degraded, time.Time{}
			s.TrustedMembers, s.TrustedGeneration = nil, 0 // membership was never SYNCED
		},
	}
}

var peers = []peer{
	{name: "the same version"},
	{name: "both ends newer", requests: Alter{Unknown: true}, answers: Alter{Unknown: true}},
	{name: "a newer subscriber", requests: Alter{Unknown: true}},
	{name: "a newer inventory", answers: Alter{Unknown: true}},
	unknownState(4),
	unknownState(99),
	unknownState(-1),
	unknownState(math.MaxInt32),
	unknownState(0),
	unknownWorth(4),
	unknownWorth(-1),
	unknownWorth(0),
	{
		name:    "an inventory that knows no ports",
		answers: Alter{Without: []protoreflect.FullName{"slicefeed.inventory.v1.SourceStatus.ports"}},
		lost:    func(s *subscriber.Snapshot) { s.Ports = nil },
	},
	{
		name: "an inventory that knows no named workloads", answers: Alter{Without: []protoreflect.FullName{
			"slicefeed.inventory.v1.Node.workload_states", "slicefeed.inventory.v1.SourceStatus.workloads",
		}},
		lost: func(s *subscriber.Snapshot) {
			lose(func(m *subscriber.Member) { m.WorkloadStates = nil })(s)
			s.Workloads = nil
		},
	},
	{
		name:    "an inventory that knows no hostname",
		answers: Alter{Without: []protoreflect.FullName{"slicefeed.inventory.v1.Node.hostname"}},
		lost:    lose(func(m *subscriber.Member) { m.Hostname = "" }),
	},
	{
		name: "an inventory that knows neither uid, zone, region nor labels", answers: Alter{Without: []protoreflect.FullName{
			"slicefeed.inventory.v1.Node.uid",
			"slicefeed.inventory.v1.Node.zone",
			"slicefeed.inventory.v1.Node.region",
			"slicefeed.inventory.v1.Node.labels",
		}},
		lost: lose(func(m *subscriber.Member) { m.UID, m.Zone, m.Region, m.Labels = "", "", "", nil }),
	},
	{name: "an inventory that states no interval of heartbeats", answers: Alter{Without: []protoreflect.FullName{
		"slicefeed.inventory.v1.WatchNodesResponse.heartbeat_interval",
	}}},
	{
		name: "an inventory that knows no ages and gives no reasons", answers: Alter{Without: []protoreflect.FullName{
			"slicefeed.inventory.v1.Node.state_age", "slicefeed.inventory.v1.PartStatus.age",
			"slicefeed.inventory.v1.PartStatus.reason", "slicefeed.inventory.v1.SourceStatus.observation_age",
		}},
		lost: func(s *subscriber.Snapshot) { s.Membership.Reason, s.Addresses.Reason = "", "" },
	},
	{name: "a subscriber that never doubts", requests: Alter{Without: []protoreflect.FullName{
		"slicefeed.inventory.v1.WatchNodesRequest.confirm_observations",
	}}},
	{
		name:     "a newer subscriber of an older inventory",
		requests: Alter{Unknown: true}, answers: Alter{Without: []protoreflect.FullName{"slicefeed.inventory.v1.SourceStatus.ports"}},
		lost: func(s *subscriber.Snapshot) { s.Ports = nil },
	},
}

// link is a real server of nodes with two real subscribers: one meets it as it is, one through
// the in-between.
type link struct {
	t        *testing.T
	stores   *feed.Stores
	direct   *nodeclient.Client
	through  *nodeclient.Client
	between  *Between
	breaches func() float64
	ask      func(question) (direct, through proto.Message)
}

type observations struct{}

func (observations) RequestObservations(n int) int { return n }
func (observations) SetConfirmations(int)          {}

func linked(t *testing.T, p peer, test func(l *link)) {
	synctest.Test(t, func(t *testing.T) {
		l := &link{t: t, stores: feed.NewStores("epoch")}
		set := nodeserver.NewSet(nodeserver.SetConfig{
			Stores: l.stores, Observer: observations{},
			Omitted: func() []roster.Omission {
				return []roster.Omission{{Name: "cp", Reason: source.ControlPlane, Advice: "It is one.", ProviderID: "ionos://cp"}}
			},
			Explain: func(name string) (roster.Explanation, bool) {
				step := source.Step{Stage: source.StageSource, Question: "is it there", Result: source.Passed, Detail: name}
				return roster.Explanation{Steps: []source.Step{step}, Conclusion: "It is " + name + "."}, true
			},
		})
		server := nodeserver.New(nodeserver.Config{
			Sets: nodeserver.OnlySet(set), Health: health.NewServer(), Log: slog.New(slog.DiscardHandler),
			Metrics: nodeserver.NewMetrics(prometheus.NewRegistry(), l.stores.TotalRevisions),
			Identify: func(context.Context) (nodeserver.Client, bool) {
				return nodeserver.Client{Name: "writer", Operator: true, View: feed.View{Labels: []string{"pool"}}}, true
			},
		})
		conn := host(t, server.Register)
		l.between = NewBetween(conn)
		l.between.Alter(p.requests, p.answers)
		altered := host(t, nil, l.between.Options()...)

		registry := prometheus.NewRegistry()
		l.direct = follow(t, nodeclient.Config{Dial: keep(conn), Metrics: nodeclient.NewMetrics(prometheus.NewRegistry())})
		l.through = follow(t, nodeclient.Config{Dial: keep(altered), Metrics: nodeclient.NewMetrics(registry)})
		l.breaches = func() float64 { return total(t, registry, "slicefeed_writer_source_protocol_violations_total") }
		l.ask = func(q question) (direct, through proto.Message) {
			direct, err := q(t.Context(), conn)
			if err != nil {
				t.Fatal(err)
			}
			through, err = q(t.Context(), altered)
			if err != nil {
				t.Fatal(err)
			}
			return direct, through
		}
		test(l)
	})
}

// kept is a connection that others use too, so that a subscriber does not close it.
type kept struct{ *grpc.ClientConn }

func (kept) Close() error { return nil }

func keep(conn *grpc.ClientConn) func() (nodeclient.Conn, error) {
	return func() (nodeclient.Conn, error) { return kept{conn}, nil }
}

func follow(t *testing.T, cfg nodeclient.Config) *nodeclient.Client {
	cfg.Source, cfg.Log, cfg.ConfirmObservations = "default", slog.New(slog.DiscardHandler), 3
	cfg.Random = func() float64 { return 0 }
	s := nodeclient.New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s
}

// same holds what came through against what was told.
func (l *link) same(when string, p peer) {
	l.t.Helper()
	synctest.Wait()
	want, got := l.direct.Snapshot(), l.through.Snapshot()
	if p.lost != nil {
		p.lost(&want)
	}
	for _, s := range []*subscriber.Snapshot{&want, &got} {
		s.ChangedAt = time.Time{}           // a stream that was broken brings news at another moment
		if !s.MembershipSyncedAt.IsZero() { // heartbeats of two streams are at different moments
			s.MembershipSyncedAt = time.Unix(0, 0)
		}
		if slices.Contains(p.answers.Without, "slicefeed.inventory.v1.Node.state_age") { // what is not told is unknown
			lose(func(m *subscriber.Member) { m.Since = time.Time{} })(s)
			s.Membership.Since, s.Addresses.Since, s.ObservedAt = time.Time{}, time.Time{}, time.Time{}
		}
	}
	// cmp.Diff is slow: it compares only lists that differ.
	if reflect.DeepEqual(want.Members, got.Members) {
		want.Members, got.Members = nil, nil
	}
	if reflect.DeepEqual(want.TrustedMembers, got.TrustedMembers) {
		want.TrustedMembers, got.TrustedMembers = nil, nil
	}
	if diff := cmp.Diff(
		want,
		got,
		cmp.AllowUnexported(subscriber.Member{}),
		cmpopts.EquateComparable(netip.Addr{}),
		cmpopts.EquateEmpty(),
	); diff != "" {
		l.t.Errorf("%s: through the in-between comes another set (-told +came):\n%.2000s", when, diff)
	}
	if n := l.breaches(); n != 0 {
		l.t.Errorf("%s: %v breaches", when, n)
	}
}

func worker(i int, state source.NodeState) *roster.Node {
	name := fmt.Sprintf("worker-%05d", i)
	return &roster.Node{
		Name: name, UID: "uid-" + name, State: state, Since: time.Now().Add(-time.Minute),
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})},
		Zone:      "zone-1", Region: "de/fra", Hostname: "db-0", Labels: map[string]string{"pool": "blue"},
		Workloads:  map[string]source.NodeState{"web": source.Draining},
		ProviderID: "ionos://" + name, ServerID: "server-" + name,
	}
}

func (l *link) apply(nodes ...*roster.Node) {
	var changes []roster.Change
	for _, n := range nodes {
		changes = append(changes, roster.Change{Name: n.Name, Node: n})
	}
	l.stores.Apply(changes)
}

func (l *link) worth(sync source.SyncState, observation uint64) {
	part := source.PartStatus{Sync: sync, Since: time.Now()}
	if sync != source.Synced {
		part.Reason = "it does not answer"
	}
	l.stores.SetStatus(source.Status{
		Membership: part, Addresses: part, Observation: observation, ObservedAt: time.Now(), Publishable: true,
		Ports: []source.Port{{Name: "http", Protocol: "TCP", Number: 30080}},
	})
}

func TestWhatTheSubscriberHoldsIsWhatTheInventoryTellsWhateverTheirVersions(t *testing.T) {
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			linked(t, p, func(l *link) {
				time.Sleep(7 * time.Second)
				l.same("before the first complete look", p)
				const size = 510
				var fleet []*roster.Node
				for i := range size { // more than fits into one message
					fleet = append(fleet, worker(i, source.Ready))
				}
				l.apply(fleet...)
				l.worth(source.Synced, 1)
				l.same("the first set", p)
				if n := len(l.through.Snapshot().Members); n != size {
					l.t.Fatalf("%d nodes came, want %d", n, size)
				}
				replaced := worker(3, source.Ready)
				replaced.UID, replaced.Addresses = "another", []netip.Addr{netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("fd00::9")}
				changes := []roster.Change{{Name: fleet[4].Name}, {Name: fleet[5].Name}}
				for _, n := range []*roster.Node{worker(1, source.Draining), worker(2, source.NotReady), replaced, worker(size, source.Ready)} {
					changes = append(changes, roster.Change{Name: n.Name, Node: n})
				}
				l.stores.Apply(changes) // at once, so that both subscribers take it as one
				l.same("changes", p)
				l.worth(source.Degraded, 1)
				l.same("degraded", p)
				l.worth(source.Synced, 2)
				time.Sleep(time.Minute)
				l.same("a minute of heartbeats", p)
				l.between.Break()
				time.Sleep(20 * time.Second)
				l.same("a new stream, which has to resume where the old one was", p)
				l.between.Break()
				synctest.Wait()
				l.apply(worker(6, source.Draining))
				time.Sleep(20 * time.Second)
				l.same("another, after changes", p)
				if p.name != peers[0].name && l.between.Altered() == 0 {
					l.t.Error("no message was altered: this row tests nothing")
				}
			})
		})
	}
}

// question is a call of an inventory.
type question func(context.Context, grpc.ClientConnInterface) (proto.Message, error)

func listNodes(ctx context.Context, conn grpc.ClientConnInterface) (proto.Message, error) {
	return inventoryv1.NewInventoryServiceClient(conn).ListNodes(ctx, &inventoryv1.ListNodesRequest{})
}

func listDetails(ctx context.Context, conn grpc.ClientConnInterface) (proto.Message, error) {
	return inventoryv1.NewInventoryOperatorServiceClient(conn).ListNodeDetails(ctx, &inventoryv1.ListNodeDetailsRequest{})
}

// explainNodes asks about one that is published and one that is omitted.
func explainNodes(ctx context.Context, conn grpc.ClientConnInterface) (proto.Message, error) {
	return inventoryv1.NewInventoryOperatorServiceClient(conn).
		ExplainNodes(ctx, &inventoryv1.ExplainNodesRequest{Names: []string{"worker-00001", "cp"}})
}

func requestObservations(ctx context.Context, conn grpc.ClientConnInterface) (proto.Message, error) {
	return inventoryv1.NewInventoryServiceClient(conn).RequestObservations(ctx, &inventoryv1.RequestObservationsRequest{Observations: 2})
}

// inventoryQuestions are ways in which a question of people and its answer differ between versions.
var inventoryQuestions = []struct {
	name              string
	requests, answers Alter
	ask               question
	lost              func(proto.Message)
}{
	{"both ends newer", Alter{Unknown: true}, Alter{Unknown: true}, listNodes, nil},
	{"both ends newer, details", Alter{Unknown: true}, Alter{Unknown: true}, listDetails, nil},
	{"both ends newer, explained", Alter{Unknown: true}, Alter{Unknown: true}, explainNodes, nil},
	{"both ends newer, observations", Alter{Unknown: true}, Alter{Unknown: true}, requestObservations, nil},
	{
		"a reason for leaving out that nobody knows", Alter{}, Alter{Enums: map[protoreflect.FullName]protoreflect.EnumNumber{
			"slicefeed.inventory.v1.OmissionReason": 99,
		}}, listDetails, func(m proto.Message) {
			for _, n := range m.(*inventoryv1.ListNodeDetailsResponse).GetNodes() {
				if n.GetOmitted() != nil {
					n.GetOmitted().Reason = 99
				}
			}
		},
	},
	{
		"a stage and a result of a step that nobody knows", Alter{}, Alter{Enums: map[protoreflect.FullName]protoreflect.EnumNumber{
			"slicefeed.inventory.v1.ExplanationStage": 99, "slicefeed.inventory.v1.StepResult": 99,
		}}, explainNodes, func(m proto.Message) {
			for _, e := range m.(*inventoryv1.ExplainNodesResponse).GetExplanations() {
				for _, step := range e.GetSteps() {
					step.Stage, step.Result = 99, 99
				}
			}
		},
	},
}

func TestWhatIsAskedOnceIsAnsweredWhateverTheVersions(t *testing.T) {
	for _, row := range inventoryQuestions {
		t.Run(row.name, func(t *testing.T) {
			linked(t, peer{requests: row.requests, answers: row.answers}, func(l *link) {
				l.apply(worker(0, source.Ready), worker(1, source.Draining))
				l.worth(source.Synced, 1)
				want, got := l.ask(row.ask)
				if row.lost != nil {
					row.lost(want)
				}
				if !proto.Equal(want, known(l.t, got)) {
					l.t.Errorf("the answer is %v, want %v", got, want)
				}
			})
		})
	}
}

// TestR12AnUnknownStateLeavesAnEndpointAsItIs goes on to the writer's decision: how it puts
// the words of a snapshot to the verdict is repeated here, and tested where it is (services/writer/reconciler).
func TestR12AnUnknownStateLeavesAnEndpointAsItIs(t *testing.T) {
	linked(t, peer{}, func(l *link) {
		states := map[subscriber.NodeState]verdict.State{
			subscriber.Ready: verdict.Ready, subscriber.Draining: verdict.Draining, subscriber.NotReady: verdict.NotReady,
		}
		var memory verdict.Memory
		var held []verdict.CurrentEndpoint
		leading := time.Now()
		decide := func() map[string]verdict.Conditions {
			synctest.Wait()
			s := l.through.Snapshot()
			in := verdict.Input{Current: held, LeadingSince: leading, Limits: verdict.Limits{ListUnready: true}, Sources: []verdict.Source{
				{
					Name:               s.Source,
					EverSynced:         s.EverSynced,
					Connected:          s.Connected && s.SyncedInStream,
					MembershipSynced:   s.Membership.State == subscriber.Synced,
					MembershipSyncedAt: s.MembershipSyncedAt,
					Epoch:              s.ObservationEpoch,
					Observation:        s.Observation,
					ObservationAt:      s.ObservationReceivedAt,
					Allowlist:          verdict.Allowlist{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}},
				},
			}}
			for _, m := range s.Members {
				in.Sources[0].Members = append(
					in.Sources[0].Members,
					verdict.Member{Address: m.Addresses[0], Name: m.Name, State: states[m.State], Since: m.Since},
				)
			}
			var decision verdict.Decision
			memory, decision = verdict.Decide(memory, in, time.Now())
			held = nil
			listed := map[string]verdict.Conditions{}
			for _, e := range decision.Endpoints {
				if e.Listed {
					held = append(held, verdict.CurrentEndpoint{Address: e.Address, Conditions: e.Conditions, Source: e.Source})
					listed[e.Address.String()] = e.Conditions
				}
			}
			return listed
		}
		ready := verdict.Conditions{Ready: true, Serving: true}
		drained := verdict.Conditions{Serving: true, Terminating: true}
		expect := func(when string, want map[string]verdict.Conditions) {
			l.t.Helper()
			if diff := cmp.Diff(want, decide()); diff != "" {
				l.t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}

		l.apply(worker(1, source.Ready), worker(2, source.Ready), worker(3, source.Ready), worker(4, source.Ready))
		l.worth(source.Synced, 1)
		decide()
		l.apply(worker(2, source.Draining))
		before := map[string]verdict.Conditions{"10.0.0.1": ready, "10.0.0.2": drained, "10.0.0.3": ready, "10.0.0.4": ready}
		expect("before", before)

		l.between.Alter(Alter{}, unknownState(99).answers)
		moved := []*roster.Node{worker(1, source.Draining), worker(2, source.Ready), worker(3, source.NotReady), worker(4, source.Ready)}
		for _, n := range moved {
			n.Zone = "zone-2" // so that each is told anew
		}
		l.apply(append(moved, worker(5, source.Ready))...)
		expect("with states that nobody knows, and a new node in one", before)
		for _, m := range l.through.Snapshot().Members {
			if m.State != subscriber.Unknown {
				l.t.Errorf("%s is %v: this tests nothing", m.Name, m.State)
			}
		}

		l.between.Alter(Alter{}, Alter{})
		for i, n := range moved {
			again := *n
			again.Zone = fmt.Sprint("zone-", i+3)
			moved[i] = &again
		}
		l.apply(moved...)
		now := decide()
		if now["10.0.0.1"] != drained || now["10.0.0.2"] != ready {
			l.t.Errorf("with states that we know again: %v", now)
		}
		if n := l.breaches(); n != 0 {
			l.t.Errorf("%v breaches", n)
		}
	})
}

package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/writer/config"
	"github.com/slicefeed/slicefeed/services/writer/control"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// newService returns the Service web/shop.
func newService(labels map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", UID: "1", Labels: labels},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(30080)}}},
	}
}

// fakeInventory publishes these addresses as ready; with nil it sends nothing.
type fakeInventory struct {
	inventoryv1.UnimplementedInventoryServiceServer

	ready []string
}

func (i fakeInventory) WatchNodes(_ *inventoryv1.WatchNodesRequest, stream grpc.ServerStreamingServer[inventoryv1.WatchNodesResponse]) error {
	if i.ready != nil {
		var nodes []*inventoryv1.Node
		for _, a := range i.ready {
			nodes = append(nodes, newNode(a, inventoryv1.NodeState_NODE_STATE_READY))
		}
		if err := stream.Send(newReset(nodes...)); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

// newNode returns a node of one address. Its fingerprint depends on its address and state.
func newNode(address string, state inventoryv1.NodeState) *inventoryv1.Node {
	sum := sha256.Sum256([]byte(address + state.String()))
	return &inventoryv1.Node{
		Name: "node-" + address, Addresses: []string{address}, State: state, StateAge: durationpb.New(0), Fingerprint: sum[:16],
	}
}

func digestOf(nodes ...*inventoryv1.Node) []byte {
	digest := make([]byte, 16)
	for _, n := range nodes {
		for i, b := range n.GetFingerprint() {
			digest[i] ^= b
		}
	}
	return digest
}

// newReset returns the first message of a stream, at revision 1, with a complete set.
func newReset(nodes ...*inventoryv1.Node) *inventoryv1.WatchNodesResponse {
	synced := &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_SYNCED}
	return &inventoryv1.WatchNodesResponse{
		Cursor: &inventoryv1.Cursor{Epoch: "e", Revision: 1}, Reset_: true, Upserts: nodes, Synced: true,
		Status: &inventoryv1.SourceStatus{Membership: synced, Addresses: synced, Observation: 1, ObservationAge: durationpb.New(0)},
		Count:  uint32(len(nodes)), Digest: digestOf(nodes...), HeartbeatInterval: durationpb.New(time.Minute),
	}
}

// serveInventory serves an inventory in memory until the test ends, and returns how to connect to it.
func serveInventory(t *testing.T, inventory inventoryv1.InventoryServiceServer) func() (subscriber.Conn, error) {
	t.Helper()
	pipe := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	inventoryv1.RegisterInventoryServiceServer(server, inventory)
	var serving errgroup.Group
	serving.Go(func() error { return server.Serve(pipe) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return func() (subscriber.Conn, error) {
		return grpc.NewClient("passthrough:///inventory", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	}
}

// planFixture is what a plan is made from. Its prober does not run, so all probes stay pending.
type planFixture struct {
	inventory fakeInventory
	probe     prober.Spec
	window    time.Duration
	cidr      string
}

// planOutput returns what plan prints for a fixture.
func planOutput(t *testing.T, fixture planFixture, objects ...runtime.Object) (string, error) {
	t.Helper()
	dial := serveInventory(t, fixture.inventory)
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	client := fake.NewClientset(objects...)
	watched, err := targets.New(targets.Config{
		Client: client, Class: "default", Writer: "web", Namespaces: []string{"web"},
		NamedTarget: targets.NamedTarget{Namespace: "web", Service: "shop", ManagedBy: "slicefeed-default", FirstName: "shop-slicefeed"},
		Defaults:    targets.Settings{Probe: fixture.probe, ShrinkWindow: fixture.window, ListUnready: true},
		Sources:     []targets.Source{{Name: config.DefaultSource}}, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	sub := subscriber.New(subscriber.Config{Source: config.DefaultSource, Dial: dial, Log: log, Metrics: subscriber.NewMetrics(registry), ConfirmObservations: 1})
	source := control.Source{Feed: sub, Name: config.DefaultSource, CIDRs: []netip.Prefix{netip.MustParsePrefix(fixture.cidr)}}
	config := control.Config{
		Sources: []control.Source{source}, Targets: watched, Prober: prober.New(prober.Config{Log: log, Registerer: registry}),
		Logger: log, Registerer: registry,
	}
	ctx, stop := context.WithCancel(t.Context())
	running, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{sub.Run, watched.Run} {
		running.Go(func() error { return run(ctx) })
	}
	results, err := control.Rehearse(ctx, config, control.Patience{
		Caches: time.Second, Probes: func(prober.Spec) time.Duration { return 300 * time.Millisecond },
	})
	stop()
	if runErr := running.Wait(); runErr != nil {
		t.Error(runErr)
	}
	for _, a := range client.Actions() {
		if v := a.GetVerb(); v != "list" && v != "watch" {
			t.Errorf("not a read: %v", a)
		}
	}
	var out bytes.Buffer
	if err == nil {
		err = printPlans(&out, results)
	}
	return out.String(), err
}

// ownedSlice is an owned slice in which these addresses are ready.
func ownedSlice(all ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop-slicefeed", UID: "2", Labels: map[string]string{
			discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: "slicefeed-default", "slicefeed.dev/source": "default", "slicefeed.dev/writer": "web",
		}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "shop", UID: types.UID("1")}}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(30080))}},
	}
	for _, a := range all {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		})
	}
	return slice
}

func TestPlanOutput(t *testing.T) {
	mislabeled := ownedSlice("10.0.1.1")
	mislabeled.OwnerReferences = nil // would be written if writes were not blocked
	for _, tt := range []struct {
		name    string
		stand   planFixture
		objects []runtime.Object
		want    []string
		err     string
	}{
		{
			"create",
			planFixture{inventory: fakeInventory{ready: []string{"10.0.1.1"}}},
			[]runtime.Object{newService(nil)},
			[]string{"create EndpointSlice shop-slicefeed\n", "  + endpoint 10.0.1.1 ready\n", "10.0.1.1  serve    ready    table  source default: READY"},
			"",
		},
		{
			"nothing",
			planFixture{inventory: fakeInventory{ready: []string{"10.0.1.1"}}},
			[]runtime.Object{newService(nil), ownedSlice("10.0.1.1")},
			[]string{"nothing to write\n", "10.0.1.1"},
			"",
		},
		{
			"guards",
			planFixture{inventory: fakeInventory{ready: []string{"10.0.1.1"}}, window: time.Minute},
			[]runtime.Object{newService(nil), ownedSlice("10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4")},
			[]string{"nothing to write\n", "held by guards\n  shrink: ", "in the first 1m0s of a new leader"},
			"",
		},
		{
			"removal without a guard",
			planFixture{inventory: fakeInventory{ready: []string{"10.0.1.1"}}},
			[]runtime.Object{newService(nil), ownedSlice("10.0.1.1", "10.0.1.2")},
			[]string{"update EndpointSlice shop-slicefeed\n  - endpoint 10.0.1.2 ready\n", "10.0.1.2  remove   not listed"},
			"",
		},
		{
			"writes blocked by the allowlist",
			planFixture{inventory: fakeInventory{ready: []string{"10.0.1.1"}}, cidr: "10.9.0.0/24"},
			[]runtime.Object{newService(nil), mislabeled},
			[]string{"Service web/shop\n\nwrites blocked by a guard, see below\n\nADDRESS", "10.0.1.1  hold"},
			"",
		},
		{
			"pending probes",
			planFixture{inventory: fakeInventory{ready: []string{"10.0.1.1"}}, probe: prober.Spec{Mode: prober.TCP}},
			[]runtime.Object{newService(nil)},
			[]string{"Probes still pending after 300ms: 1."},
			"",
		},
		{
			"a foreign slice",
			planFixture{inventory: fakeInventory{ready: []string{"10.0.1.1"}}},
			[]runtime.Object{newService(nil), ownedSlice("10.0.1.1"), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
				Namespace: "web", Name: "theirs", Labels: map[string]string{discoveryv1.LabelServiceName: "shop"},
			}}},
			[]string{"warnings\n  ForeignSlices: ", "theirs"},
			"",
		},
		{"a rejected Service", planFixture{inventory: fakeInventory{ready: []string{}}}, nil, nil, "Service shop does not exist"},
		{"an inventory that sends nothing", planFixture{}, []runtime.Object{newService(nil)}, nil, "source default did not sync"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.stand.cidr == "" {
				tt.stand.cidr = "10.0.1.0/24"
			}
			start := time.Now()
			out, err := planOutput(t, tt.stand, tt.objects...)
			if tt.err == "" && err != nil || tt.err != "" && !strings.Contains(fmt.Sprint(err), tt.err) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
			if waited := time.Since(start); tt.stand.probe.Mode != prober.Off && waited < 300*time.Millisecond {
				t.Errorf("waited for probes for %s, want at least 300ms", waited)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("got no %q in:\n%s", want, out)
				}
			}
		})
	}
}

func TestFormatVerdictsSanitizesReasons(t *testing.T) {
	got := formatVerdicts([]verdict.Endpoint{
		{Address: netip.MustParseAddr("10.0.1.1"), Verdict: verdict.Serve, Listed: true, Conditions: verdict.Conditions{Ready: true, Serving: true}, Rule: verdict.RuleTable, Reason: "one\ntwo\x1b"},
		{Address: netip.MustParseAddr("10.0.1.20"), Verdict: verdict.Gone, Rule: verdict.RuleTable, Reason: "absent"},
	})
	want := `ADDRESS    VERDICT  DESIRED     RULE   REASON
10.0.1.1   serve    ready       table  one two 
10.0.1.20  remove   not listed  table  absent
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

package skew

import (
	"context"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

type registrar = grpc.ServiceRegistrar

// host runs a server until the test is over, and returns a connection to it.
func host(t *testing.T, register func(registrar), options ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	srv := grpc.NewServer(append(options, grpc.WaitForHandlers(true))...)
	if register != nil {
		register(srv)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:///peer", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		srv.Stop()
		<-served
	})
	return conn
}

// total sums all series of a counter.
func total(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum, series := 0.0, 0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
				series++
			}
		}
	}
	if series == 0 {
		t.Fatalf("%s is not counted", name)
	}
	return sum
}

// known is a message without what nobody knows.
func known[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	encoded, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	less := m.ProtoReflect().New().Interface()
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(encoded, less); err != nil {
		t.Fatal(err)
	}
	return less.(M)
}

// Guards the tests beside this one, which would pass for nothing if nothing were added.
func TestEveryMessageAtEveryDepthGetsWhatNobodyKnows(t *testing.T) {
	m := &inventoryv1.WatchNodesResponse{
		Cursor: &inventoryv1.Cursor{Epoch: "e", Revision: 1},
		Upserts: []*inventoryv1.Node{
			{Name: "a", State: inventoryv1.NodeState_NODE_STATE_READY},
			{Name: "b", Labels: map[string]string{"pool": "blue"}},
		},
		Status: &inventoryv1.SourceStatus{
			Membership: &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_SYNCED},
			Ports:      []*inventoryv1.SourcePort{{Port: 80}},
		},
	}
	encoded, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	altered, err := (&Alter{Unknown: true}).message(m.ProtoReflect().Descriptor(), encoded)
	if err != nil {
		t.Fatal(err)
	}
	got := &inventoryv1.WatchNodesResponse{}
	if err := proto.Unmarshal(altered, got); err != nil {
		t.Fatal(err)
	}
	for _, part := range []protoreflect.ProtoMessage{
		got, got.GetCursor(), got.GetUpserts()[0], got.GetUpserts()[1], got.GetStatus(), got.GetStatus().GetMembership(), got.GetStatus().GetPorts()[0],
	} {
		want := 2 * len(foreign(part.ProtoReflect().Descriptor()))
		if n := len(part.ProtoReflect().GetUnknown()); n != want {
			t.Errorf("%s has %d bytes of what nobody knows, want %d", part.ProtoReflect().Descriptor().FullName(), n, want)
		}
	}
	if !proto.Equal(m, known(t, got)) {
		t.Errorf("without it, it is %v, want %v", known(t, got), m)
	}
}

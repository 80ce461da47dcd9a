package targets

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"os"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// impostor is an inventory with a valid certificate that says what a test has it say. It
// hands each stream to the test.
type impostor struct {
	inventoryv1.UnimplementedInventoryServiceServer

	streams chan *impostorStream
}

type impostorStream struct {
	grpc.ServerStreamingServer[inventoryv1.WatchNodesResponse]

	over chan struct{}
}

// WatchNodes lasts until the client ends it.
func (i *impostor) WatchNodes(_ *inventoryv1.WatchNodesRequest, stream grpc.ServerStreamingServer[inventoryv1.WatchNodesResponse]) error {
	one := &impostorStream{stream, make(chan struct{})}
	defer close(one.over)
	select {
	case i.streams <- one:
		<-stream.Context().Done()
	case <-stream.Context().Done():
	}
	return nil
}

// impostor listens where the inventory would, with its certificate.
func newImpostor(s *e2e.Setup) *impostor {
	s.T.Helper()
	dir := s.Inventory.Dir()
	leaf, err := tls.LoadX509KeyPair(dir+"/tls.crt", dir+"/tls.key")
	s.Must(err)
	ca, err := os.ReadFile(dir + "/peer-ca.crt")
	s.Must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	listener, err := (&net.ListenConfig{}).Listen(s.Ctx(), "tcp", e2e.InventoryEndpoint())
	s.Must(err)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{leaf}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	})))
	i := &impostor{streams: make(chan *impostorStream)}
	inventoryv1.RegisterInventoryServiceServer(server, i)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	s.T.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			s.T.Error(err)
		}
	})
	return i
}

// next is the next stream that the writer begins.
func next(s *e2e.Setup, i *impostor) *impostorStream {
	s.T.Helper()
	select {
	case stream := <-i.streams:
		return stream
	case <-s.Ctx().Done():
		s.T.Fatal("the writer begins no stream")
		return nil
	}
}

func aNode(name, address string) *inventoryv1.Node {
	sum := sha256.Sum256([]byte(name + address))
	return &inventoryv1.Node{
		Name: name, Addresses: []string{address}, State: inventoryv1.NodeState_NODE_STATE_READY,
		StateAge: durationpb.New(0), Fingerprint: sum[:16],
	}
}

// whole is a message that resets the set to these nodes, and keeps the contract.
func whole(revision uint64, nodes ...*inventoryv1.Node) *inventoryv1.WatchNodesResponse {
	digest := make([]byte, 16)
	for _, n := range nodes {
		for i, b := range n.GetFingerprint() {
			digest[i] ^= b
		}
	}
	synced := &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_SYNCED}
	return &inventoryv1.WatchNodesResponse{
		Cursor: &inventoryv1.Cursor{Epoch: "impostor", Revision: revision}, Reset_: true, Upserts: nodes, Synced: true,
		Status: &inventoryv1.SourceStatus{Membership: synced, Addresses: synced, Observation: 1, ObservationAge: durationpb.New(0)},
		Count:  uint32(len(nodes)), Digest: digest, HeartbeatInterval: durationpb.New(20e9),
	}
}

func TestAnInventoryThatBreaksTheContractIsCountedAndNotActedUpon(t *testing.T) {
	s := e2e.New(t, e2e.Options{Writer: map[string]string{"HEALTH_CHECK_MODE": "off"}})
	i := newImpostor(s)
	a, b := aNode("a", "10.0.1.1"), aNode("b", "10.0.1.2")
	fine := func() *inventoryv1.WatchNodesResponse { return whole(7, a, b) }
	serve := pair.AreJust(pair.Ready, netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("10.0.1.2"))
	writer := s.Writers[0]
	breaches := func(kind string) string {
		return `slicefeed_writer_source_protocol_violations_total{kind="` + kind + `",source="default"}`
	}
	for _, one := range []struct {
		name, kind string
		message    func() *inventoryv1.WatchNodesResponse
	}{
		{"a wrong digest", "digest", func() *inventoryv1.WatchNodesResponse {
			m := whole(8, a)
			m.Digest = make([]byte, 16)
			return m
		}},
		{"a node without a name", "name", func() *inventoryv1.WatchNodesResponse { return whole(8, aNode("", "10.0.1.3")) }},
		{"two nodes of one address", "duplicate_address", func() *inventoryv1.WatchNodesResponse { return whole(8, a, aNode("c", "10.0.1.1")) }},
		{"a revision that goes back", "revision", func() *inventoryv1.WatchNodesResponse { return whole(6, a) }},
		{"a message above the limit", "limit", func() *inventoryv1.WatchNodesResponse {
			m := whole(8, a)
			m.Status.Membership.Reason = string(make([]byte, 5<<20))
			return m
		}},
	} {
		s.Step(one.name, func(s *e2e.Setup) {
			s.Must(writer.Start(s.Ctx())) // anew, since the pauses after breaches grow
			stream := next(s, i)
			s.Must(stream.Send(fine()))
			s.Await("what it says is believed while it keeps the contract", serve)
			s.AwaitMetric(writer, e2e.Leads, e2e.Equals(1))
			s.ExpectNoWrites(func() {
				s.Must(stream.Send(one.message()))
				s.AwaitMetric(writer, breaches(one.kind), e2e.Equals(1))
				select {
				case <-stream.over:
				case <-s.Ctx().Done():
					s.T.Error("the writer does not end the stream")
				}
				again := next(s, i)
				s.Must(again.Send(fine()))
				s.AwaitMetric(writer, e2e.SourceSynced, e2e.Equals(1))
			})
			s.Await("nothing has changed", serve)
			s.Must(writer.Terminate(e2e.Patience))
		})
	}
	s.Step("a newer dialect is no breach", func(s *e2e.Setup) {
		s.Must(writer.Start(s.Ctx()))
		stream := next(s, i)
		s.Must(stream.Send(fine()))
		s.AwaitMetric(writer, e2e.SourceSynced, e2e.Equals(1))
		s.AwaitMetric(writer, e2e.Leads, e2e.Equals(1))
		odd, c := aNode("b", "10.0.1.2"), aNode("c", "10.0.1.3")
		odd.State = 99
		odd.Fingerprint[0]++
		for _, m := range []*inventoryv1.Node{odd, c} {
			m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
		}
		s.Must(stream.Send(whole(8, a, odd, c)))
		s.Await("the new node serves, and the one of an unknown state stays as it is", pair.AreJust(pair.Ready,
			netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("10.0.1.2"), netip.MustParseAddr("10.0.1.3")))
		for _, kind := range []string{"digest", "name", "limit", "incomplete"} {
			s.AwaitMetric(writer, breaches(kind), e2e.Equals(0))
		}
	})
}

package e2e

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
func (s *stage) impostor() *impostor {
	s.t.Helper()
	dir := s.Inventory.Dir()
	leaf, err := tls.LoadX509KeyPair(dir+"/tls.crt", dir+"/tls.key")
	s.must(err)
	ca, err := os.ReadFile(dir + "/peer-ca.crt")
	s.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	listener, err := (&net.ListenConfig{}).Listen(s.ctx(), "tcp", inventoryAt())
	s.must(err)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{leaf}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	})))
	i := &impostor{streams: make(chan *impostorStream)}
	inventoryv1.RegisterInventoryServiceServer(server, i)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	s.t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			s.t.Error(err)
		}
	})
	return i
}

// next is the next stream that the writer begins.
func (s *stage) next(i *impostor) *impostorStream {
	s.t.Helper()
	select {
	case stream := <-i.streams:
		return stream
	case <-s.ctx().Done():
		s.t.Fatal("the writer begins no stream")
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
	s := enter(t, script{writer: map[string]string{"HEALTH_CHECK_MODE": "off"}})
	i := s.impostor()
	a, b := aNode("a", "10.0.1.1"), aNode("b", "10.0.1.2")
	fine := func() *inventoryv1.WatchNodesResponse { return whole(7, a, b) }
	serve := pair.AreJust(pair.Ready, netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("10.0.1.2"))
	writer := s.writers[0]
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
		s.step(one.name, func(s *stage) {
			s.must(writer.Start(s.ctx())) // anew, since the pauses after breaches grow
			stream := s.next(i)
			s.must(stream.Send(fine()))
			s.slices("what it says is believed while it keeps the contract", serve)
			s.metric(writer, leads, equals(1))
			s.quiet(func() {
				s.must(stream.Send(one.message()))
				s.metric(writer, breaches(one.kind), equals(1))
				select {
				case <-stream.over:
				case <-s.ctx().Done():
					s.t.Error("the writer does not end the stream")
				}
				again := s.next(i)
				s.must(again.Send(fine()))
				s.metric(writer, sourceSynced, equals(1))
			})
			s.slices("nothing has changed", serve)
			s.must(writer.Terminate(patience))
		})
	}
	s.step("a newer dialect is no breach", func(s *stage) {
		s.must(writer.Start(s.ctx()))
		stream := s.next(i)
		s.must(stream.Send(fine()))
		s.metric(writer, sourceSynced, equals(1))
		s.metric(writer, leads, equals(1))
		odd, c := aNode("b", "10.0.1.2"), aNode("c", "10.0.1.3")
		odd.State = 99
		odd.Fingerprint[0]++
		for _, m := range []*inventoryv1.Node{odd, c} {
			m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
		}
		s.must(stream.Send(whole(8, a, odd, c)))
		s.slices("the new node serves, and the one of an unknown state stays as it is", pair.AreJust(pair.Ready,
			netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("10.0.1.2"), netip.MustParseAddr("10.0.1.3")))
		for _, kind := range []string{"digest", "name", "limit", "incomplete"} {
			s.metric(writer, breaches(kind), equals(0))
		}
	})
}

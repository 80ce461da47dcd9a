package watchfeed

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

// script is a server that says on each stream what it is told, and ends it.
type script struct {
	inventoryv1.UnimplementedInventoryServiceServer

	streams [][]*inventoryv1.WatchNodesResponse
	asked   []*inventoryv1.WatchNodesRequest
	over    chan struct{} // closed when all was said
}

// WatchNodes plays the next stream; after the last, it says nothing more.
func (s *script) WatchNodes(r *inventoryv1.WatchNodesRequest, stream grpc.ServerStreamingServer[inventoryv1.WatchNodesResponse]) error {
	s.asked = append(s.asked, r)
	for _, m := range s.streams[len(s.asked)-1] {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	if len(s.asked) == len(s.streams) {
		close(s.over)
		<-stream.Context().Done()
	}
	return status.Error(codes.Unavailable, "to be resumed")
}

// record plays the streams to a recorder and returns it with its error.
func record(t *testing.T, s *script) (*Recorder, error) {
	t.Helper()
	s.over = make(chan struct{})
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	inventoryv1.RegisterInventoryServiceServer(server, s)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///feed", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	said := 0
	for _, stream := range s.streams {
		said += len(stream)
	}
	r := New(conn)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		r.Wait(ctx, said-1, func(Word) bool { return true })
	}()
	select {
	case err := <-ended:
		cancel()
		<-heard
		return r, err
	case <-heard:
		cancel()
		return r, <-ended
	}
}

func node(name, address string, mint byte) *inventoryv1.Node {
	return &inventoryv1.Node{Name: name, Addresses: []string{address}, Fingerprint: append(make([]byte, 15), mint)}
}

// message has a status, and is synced if it has a digest.
func message(m *inventoryv1.WatchNodesResponse) *inventoryv1.WatchNodesResponse {
	m.Status = &inventoryv1.SourceStatus{
		Membership: &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_DEGRADED, Reason: "why"},
	}
	return m
}

func synced(revision uint64, count uint32, digest byte, m *inventoryv1.WatchNodesResponse) *inventoryv1.WatchNodesResponse {
	m.Synced, m.Count, m.Digest = true, count, append(make([]byte, 15), digest)
	m.Cursor = &inventoryv1.Cursor{Epoch: "one", Revision: revision}
	return message(m)
}

func TestABreachIsAnError(t *testing.T) {
	a := node("a", "10.0.0.1", 1)
	for name, m := range map[string]*inventoryv1.WatchNodesResponse{
		"a wrong digest":                   synced(2, 1, 9, &inventoryv1.WatchNodesResponse{}),
		"a wrong count":                    synced(2, 3, 1, &inventoryv1.WatchNodesResponse{}),
		"the removal of what is not there": synced(2, 1, 1, &inventoryv1.WatchNodesResponse{Removed: []string{"b"}}),
		"two nodes of one address":         synced(2, 2, 3, &inventoryv1.WatchNodesResponse{Upserts: []*inventoryv1.Node{node("b", "10.0.0.1", 2)}}),
		"a node without an address":        synced(2, 2, 3, &inventoryv1.WatchNodesResponse{Upserts: []*inventoryv1.Node{{Name: "b", Fingerprint: make([]byte, 16)}}}),
		"a fingerprint that is none":       synced(2, 2, 3, &inventoryv1.WatchNodesResponse{Upserts: []*inventoryv1.Node{{Name: "b", Addresses: []string{"10.0.0.2"}}}}),
		"a message without a status":       {},
	} {
		t.Run(name, func(t *testing.T) {
			first := synced(1, 1, 1, &inventoryv1.WatchNodesResponse{Reset_: true, Upserts: []*inventoryv1.Node{a}})
			r, err := record(t, &script{streams: [][]*inventoryv1.WatchNodesResponse{{first, m}}})
			if err == nil || !strings.Contains(err.Error(), "breach") {
				t.Errorf("it ended with %v", err)
			}
			if last := r.Since(r.Count())[0]; len(last.Set) != 1 {
				t.Errorf("its set is now %q", last.Names())
			}
		})
	}
}

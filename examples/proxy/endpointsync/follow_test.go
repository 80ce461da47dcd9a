package endpointsync

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	discoveryv1 "k8s.io/api/discovery/v1"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop is the target web/shop with these addresses, all of them ready.
func shop(addresses ...string) endpoints.Target {
	t := endpoints.Target{
		Namespace: "web", Service: "shop", State: endpoints.Managed, Leading: true,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(30080))}},
	}
	for _, a := range addresses {
		t.Decision.Endpoints = append(t.Decision.Endpoints, verdict.Endpoint{
			Address: netip.MustParseAddr(a), Listed: true, Conditions: verdict.Conditions{Ready: true, Serving: true},
		})
	}
	return t
}

// rig is a follower and the way to its writer, in a bubble of its own time.
type rig struct {
	t *testing.T

	mu       sync.Mutex
	listener *bufconn.Listener
	requests []*writerv1.WatchEndpointsRequest // of the follower's streams
	resets   int
	told     [][]netip.AddrPort // what the proxy was programmed with
}

func (r *rig) programmed() []netip.AddrPort {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told) == 0 {
		return nil
	}
	return r.told[len(r.told)-1]
}

// begun are the requests of all streams so far.
func (r *rig) begun() []*writerv1.WatchEndpointsRequest {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// serve lets the follower meet a service from now on; stop ends it.
func (r *rig) serve(service writerv1.WriterServiceServer) (stop func()) {
	lis := bufconn.Listen(1 << 16)
	r.mu.Lock()
	r.listener = lis
	r.mu.Unlock()
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	writerv1.RegisterWriterServiceServer(srv, service)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	return func() { srv.Stop(); <-served }
}

// writer is the real service on a board.
func (r *rig) writer(board *endpoints.Store) (stop func()) {
	service := endpoints.NewServer(endpoints.ServerConfig{
		Store: board, Health: health.NewServer(), Registerer: prometheus.NewRegistry(),
		Identify: func(context.Context) (endpoints.Client, error) { return endpoints.Client{SAN: "proxy"}, nil },
	})
	end := r.serve(service)
	return func() { service.Stop(); end() }
}

// noted notes what the follower asks and is told.
type noted struct {
	grpc.ClientStream

	rig *rig
}

func (n *noted) SendMsg(m any) error {
	n.rig.mu.Lock()
	defer n.rig.mu.Unlock()
	n.rig.requests = append(n.rig.requests, m.(*writerv1.WatchEndpointsRequest))
	return n.ClientStream.SendMsg(m)
}

func (n *noted) RecvMsg(m any) error {
	err := n.ClientStream.RecvMsg(m)
	n.rig.mu.Lock()
	defer n.rig.mu.Unlock()
	if m.(*writerv1.WatchEndpointsResponse).GetReset_() {
		n.rig.resets++
	}
	return err
}

// follow runs a follower of web/shop while the test does its part.
func follow(t *testing.T, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t}
		conn, err := grpc.NewClient(
			"passthrough:///writer",
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				r.mu.Lock()
				lis := r.listener
				r.mu.Unlock()
				if lis == nil {
					return nil, net.ErrClosed
				}
				return lis.DialContext(ctx)
			}),
			grpc.WithStreamInterceptor(
				func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
					s, err := streamer(ctx, desc, cc, method, opts...)
					return &noted{s, r}, err
				},
			),
		)
		if err != nil {
			t.Fatal(err)
		}
		f := &Follower{
			Client: writerv1.NewWriterServiceClient(conn), Log: slog.New(slog.DiscardHandler),
			Services: []*writerv1.ServiceSelector{{Namespace: "web", Service: "shop"}},
			Synced: func(s *Set) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.told = append(r.told, s.Backends("web", "shop", "http"))
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- f.Run(ctx) }()
		test(r)
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
		_ = conn.Close()
	})
}

func TestFollowsWhatTheWriterDecides(t *testing.T) {
	follow(t, func(r *rig) {
		board := endpoints.NewStore("life")
		defer r.writer(board)()
		board.Put(shop("10.0.0.1"))
		time.Sleep(20 * time.Second)
		want(t, "before the first decisions are complete", len(r.told), 0)
		board.MarkSynced()
		want(t, "then", r.programmed(), at("10.0.0.1:30080"))
		board.Put(shop("10.0.0.1", "10.0.0.2"))
		want(t, "one more", r.programmed(), at("10.0.0.1:30080", "10.0.0.2:30080"))
		other := shop("10.0.0.9")
		other.Service = "other"
		board.Put(other)
		board.Put(shop("10.0.0.2"))
		want(t, "one fewer", r.programmed(), at("10.0.0.2:30080"))
		time.Sleep(time.Hour)
		want(t, "streams within an hour at rest", len(r.begun()), 1)
	})
}

func TestR5AndR6ResumesWhereItWas(t *testing.T) {
	follow(t, func(r *rig) {
		board := endpoints.NewStore("life")
		board.MarkSynced()
		board.Put(shop("10.0.0.1"))
		stop := r.writer(board)
		time.Sleep(time.Minute)
		stop()
		want(t, "while the writer is away", r.programmed(), at("10.0.0.1:30080"))
		board.Put(shop("10.0.0.2"))
		stop = r.writer(board)
		time.Sleep(time.Minute)
		want(t, "when it is back", r.programmed(), at("10.0.0.2:30080"))
		stop()
		another := endpoints.NewStore("another life")
		another.MarkSynced()
		another.Put(shop("10.0.0.2"))
		defer r.writer(another)()
		time.Sleep(time.Minute)
		want(t, "of another writer", r.programmed(), at("10.0.0.2:30080"))
		want(t, "resets", r.resets, 1)
		for _, req := range r.begun()[1:] {
			if req.GetCursor() == nil || len(req.GetDigest()) != 16 {
				t.Errorf("a later stream began with %v", req)
			}
		}
	})
}

// scripted is a server that says one thing, and then is silent.
type scripted struct {
	writerv1.UnimplementedWriterServiceServer

	says func(n int) *writerv1.WatchEndpointsResponse // to the nth stream
	ends error

	mu sync.Mutex
	n  int
}

func (s *scripted) WatchEndpoints(_ *writerv1.WatchEndpointsRequest, to grpc.ServerStreamingServer[writerv1.WatchEndpointsResponse]) error {
	s.mu.Lock()
	n := s.n
	s.n++
	s.mu.Unlock()
	if s.ends != nil {
		return s.ends
	}
	if err := to.Send(s.says(n)); err != nil {
		return err
	}
	<-to.Context().Done()
	return nil
}

func TestR9EndsASilentStreamAndKeepsItsSet(t *testing.T) {
	follow(t, func(r *rig) {
		defer r.serve(&scripted{says: func(int) *writerv1.WatchEndpointsResponse { return whole(1, entry(1)) }})()
		time.Sleep(time.Minute)
		streams := r.begun()
		if n := len(streams); n < 2 || streams[1].GetCursor().GetRevision() != 1 {
			t.Errorf("within a minute of silence there were %d streams: %v", n, streams)
		}
		want(t, "backends", r.programmed(), at("10.0.0.1:30080"))
	})
}

func TestR13StartsOverAfterABreach(t *testing.T) {
	follow(t, func(r *rig) {
		defer r.serve(&scripted{says: func(n int) *writerv1.WatchEndpointsResponse {
			m := whole(1, entry(1))
			if n == 0 {
				m.Digest[3] ^= 1
			}
			return m
		}})()
		time.Sleep(time.Minute)
		want(t, "backends", r.programmed(), at("10.0.0.1:30080"))
		want(t, "cursor after the breach", r.begun()[1].GetCursor() == nil, true)
	})
}

// picky is a scripted writer that takes no cursor.
type picky struct{ *scripted }

func (p picky) WatchEndpoints(req *writerv1.WatchEndpointsRequest, to grpc.ServerStreamingServer[writerv1.WatchEndpointsResponse]) error {
	if req.GetCursor() != nil {
		return status.Error(codes.InvalidArgument, "no cursor")
	}
	return p.scripted.WatchEndpoints(req, to)
}

func TestR14StartsOverWhenItsCursorIsMalformed(t *testing.T) {
	follow(t, func(r *rig) {
		defer r.serve(picky{&scripted{says: func(int) *writerv1.WatchEndpointsResponse { return whole(1, entry(1)) }}})()
		time.Sleep(time.Minute)
		streams := r.begun()
		if n := len(streams); n < 3 || streams[1].GetCursor() == nil || streams[2].GetCursor() != nil {
			t.Errorf("within a minute of silence there were %d streams: %v", n, streams)
		}
		want(t, "backends", r.programmed(), at("10.0.0.1:30080"))
	})
}

func TestDoesNotRepeatARequestThatIsMalformed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t}
		stop := r.serve(&scripted{ends: status.Error(codes.InvalidArgument, "no")})
		conn, err := grpc.NewClient("passthrough:///writer", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.listener.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		f := &Follower{Client: writerv1.NewWriterServiceClient(conn), Synced: func(*Set) {}, Log: slog.New(slog.DiscardHandler)}
		want(t, "end", status.Code(f.Run(t.Context())), codes.InvalidArgument)
		_ = conn.Close()
		stop()
	})
}

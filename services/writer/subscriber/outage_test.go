package subscriber

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// steadyInventory sends one synced set, and heartbeats.
type steadyInventory struct {
	inventoryv1.UnimplementedInventoryServiceServer
}

func (steadyInventory) WatchNodes(_ *inventoryv1.WatchNodesRequest, stream grpc.ServerStreamingServer[message]) error {
	m := withHeartbeat(completeSet("e", 10, a))
	for {
		if err := stream.Send(m); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-time.After(5 * time.Second):
		}
		m = synced("e", 10, []*wireNode{a})
	}
}

// inventoryHost is a host on which an inventory runs or not.
type inventoryHost struct {
	mu       sync.Mutex
	listener *bufconn.Listener // nil: the inventory does not run
	silent   bool              // the host is down too: a SYN gets no answer
}

// start runs the inventory until stop is called.
func (s *inventoryHost) start() (stop func()) {
	listener, server := bufconn.Listen(1<<16), grpc.NewServer()
	inventoryv1.RegisterInventoryServiceServer(server, steadyInventory{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	s.set(listener)
	return func() {
		s.set(nil)
		server.Stop()
		<-served
	}
}

func (s *inventoryHost) set(listener *bufconn.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = listener
}

func (s *inventoryHost) get() *bufconn.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener
}

// dial connects as TCP does: without an answer the SYN is repeated after 1, 2 and 4 s.
func (s *inventoryHost) dial(ctx context.Context, _ string) (net.Conn, error) {
	for wait := time.Second; ; wait *= 2 {
		if listener := s.get(); listener != nil {
			return listener.DialContext(ctx)
		}
		if !s.silent {
			return nil, errors.New("connection refused")
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

func TestR14SyncsWithinFiveSecondsAfterOutage(t *testing.T) {
	const writers = 100
	for _, tt := range []struct {
		name   string
		silent bool
	}{{"port closed", false}, {"host down", true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := &inventoryHost{silent: tt.silent}
				stop := host.start()
				ctx, end := context.WithCancel(t.Context())
				var all []*Feeds
				var running sync.WaitGroup
				for n := range writers {
					s := New(Config{
						Source: "default", Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
						Random: rand.New(rand.NewPCG(uint64(n), 14)).Float64,
						Dial: func() (*grpc.ClientConn, error) {
							return grpc.NewClient(
								"passthrough:///inventory",
								grpc.WithContextDialer(host.dial),
								grpc.WithTransportCredentials(insecure.NewCredentials()),
								grpc.WithConnectParams(
									grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 4 * time.Second},
								),
							) // as package link
						},
					})
					s.Use("web/shop", "")
					all = append(all, s)
					running.Go(func() {
						if err := s.Run(ctx); err != nil {
							t.Error(err)
						}
					})
				}
				for _, outage := range []time.Duration{time.Second, 17 * time.Second, 2 * time.Minute} {
					waitSynced(t, all)
					time.Sleep(time.Minute) // each stream is stable
					stop()
					time.Sleep(outage)
					stop = host.start()
					took := waitSynced(t, all)
					p99 := took[writers*99/100-1]
					t.Logf("after an outage of %s: p50 %s, p99 %s, slowest %s", outage, took[writers/2-1], p99, took[writers-1])
					if p99 > 5*time.Second {
						t.Errorf("after an outage of %s the 99th of 100 writers is synced after %s, want 5s at most", outage, p99)
					}
				}
				end()
				running.Wait()
				stop()
			})
		})
	}
}

// waitSynced waits until all are synced, and returns how long each took, sorted.
func waitSynced(t *testing.T, all []*Feeds) (took []time.Duration) {
	t.Helper()
	start := time.Now()
	synced := map[*Feeds]bool{}
	for len(synced) < len(all) {
		for _, s := range all {
			if snap := s.Snapshot(""); !synced[s] && snap.Connected && snap.SyncedInStream {
				synced[s] = true
				took = append(took, time.Since(start))
			}
		}
		if time.Since(start) > 5*time.Minute {
			t.Fatalf("%d of %d are not synced", len(all)-len(synced), len(all))
		}
		time.Sleep(10 * time.Millisecond)
	}
	slices.Sort(took)
	return took
}

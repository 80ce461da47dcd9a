// Package feed implements InventoryService: it publishes the nodes of a roster as a set, and sends each client what it
// lacks. It guarantees the rules of slicefeed.inventory.v1 for servers, and that a slow client neither delays others nor
// makes the server queue messages. It does not know where nodes come from, nor which clients may call which service:
// package link does.
package feed

import (
	"context"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
)

// Client is an authenticated client and what it may see.
type Client struct {
	Name string // its SAN; the number of streams is limited per name

	// FindService reports whether the client may see an exported Service, by namespace/name, and in which namespace
	// its entry allows that; empty: in any. Nil: it may see none.
	FindService func(service string) (namespace string, allowed bool)
}

// Config configures a server. MaxStreamsPerClient has a default, the rest is mandatory unless stated.
type Config struct {
	Sets     Sets
	Identify func(context.Context) (Client, bool) // false: unknown client
	Health   *health.Server                       // SERVING once the sets are ready
	Metrics  *stream.Metrics
	Log      *slog.Logger

	MaxStreamsPerClient int // 0: 64
}

// Server implements InventoryService.
type Server struct {
	inventoryv1.UnimplementedInventoryServiceServer

	cfg     Config
	streams *stream.Streams

	mu      sync.Mutex
	readers map[*Reader]Subscriber
}

// New returns the service. It is NOT_SERVING until its sets are ready.
func New(cfg Config) *Server {
	return &Server{
		cfg:     cfg,
		readers: map[*Reader]Subscriber{},
		streams: stream.New(stream.Config{
			Service: inventoryv1.InventoryService_ServiceDesc.ServiceName,
			Health:  cfg.Health, Metrics: cfg.Metrics, MaxPerClient: cfg.MaxStreamsPerClient,
		}),
	}
}

// Run sets the health to SERVING once the sets are ready, and ends all streams when ctx is done.
func (s *Server) Run(ctx context.Context) error { return s.streams.Run(ctx, s.cfg.Sets.Ready) }

// Stop sets the health to NOT_SERVING, ends all streams with UNAVAILABLE and waits for them (rule R11).
// New streams are rejected from then on. It may be called more than once.
func (s *Server) Stop() { s.streams.Stop() }

// NewMetrics registers the stream metrics of a server. revisions returns the number of changes that it has published.
func NewMetrics(reg prometheus.Registerer, revisions func() uint64) *stream.Metrics {
	return stream.NewMetrics(reg, "inventory", "WatchNodes", revisions)
}

// Register registers the service.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	inventoryv1.RegisterInventoryServiceServer(to, s)
}

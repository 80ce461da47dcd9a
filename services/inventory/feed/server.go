// Package feed implements InventoryService: it publishes the nodes of a roster as a set, and sends each client what it
// lacks. It guarantees the rules of slicefeed.inventory.v1 for servers, and that a slow client neither delays others nor
// makes the server queue messages. It does not know where nodes come from, nor which clients may call which service:
// package link does.
package feed

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
)

// Client is the caller of a call, and what it may see.
type Client = link.Grant

// Config configures a server. MaxStreamsPerClient has a default, the rest is mandatory.
type Config struct {
	Sets       Sets
	Identify   func(context.Context) (Client, error) // the caller; the error is for it
	Health     *health.Server                        // SERVING once the sets are ready
	Registerer prometheus.Registerer
	Report     inventoryv1.InventoryReportServiceServer

	MaxStreamsPerClient int // 0: 64
}

// Server implements InventoryService.
type Server struct {
	inventoryv1.UnimplementedInventoryServiceServer
	*stream.Streams

	cfg     Config
	mu      sync.Mutex
	readers map[*Reader]Subscriber
}

// New returns the service. It is NOT_SERVING until its sets are ready.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, readers: map[*Reader]Subscriber{}, Streams: stream.New(stream.Config{
		Component: "inventory", Service: inventoryv1.InventoryService_ServiceDesc.ServiceName, Method: "WatchNodes",
		Ready: cfg.Sets.Ready, Revision: cfg.Sets.Revision, Health: cfg.Health, Registerer: cfg.Registerer,
		MaxPerClient: cfg.MaxStreamsPerClient,
	})}
}

// Register registers the service, and that of the reports.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	inventoryv1.RegisterInventoryServiceServer(to, s)
	inventoryv1.RegisterInventoryReportServiceServer(to, s.cfg.Report)
}

// Package nodeserver is the inventory's gRPC service: it tells each client the nodes of its
// view. It promises what the rules of slicefeed.inventory.v1 say of a server, and that no
// client delays another or makes it hold more than the set. It refuses to know where
// nodes come from, and who is allowed: both are handed in.
package nodeserver

import (
	"context"
	"log/slog"
	"sync"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Client is who calls, and what it may see.
type Client struct {
	Name     string // its SAN; streams are counted by it
	Operator bool   // may see what is left out, and the cloud's identifiers
	View     feed.View
}

// observer looks at the outside when clients are in doubt. It is called by many goroutines
// and must not wait for any of them.
type observer interface {
	// Doubt asks for a series of complete observations, of at least one.
	Doubt(observations int)
	// SetDoubtDepth says how many the series have that the inventory begins by itself:
	// the largest number that a connected client wants, at least one.
	SetDoubtDepth(observations int)
}

// Config is what a server needs. Durations and Streams have defaults, the rest is mandatory.
type Config struct {
	Stores   *feed.Stores
	Identify func(context.Context) (Client, bool)                 // who calls; false: nobody that we know
	Omitted  func() []roster.Omission                             // sorted by name; called by many goroutines
	Explain  func(name string) (e roster.Explanation, known bool) // called by many goroutines
	Observer observer
	Health   *health.Server // told SERVING from the first complete observation on
	Metrics  *Metrics
	Log      *slog.Logger

	Heartbeat time.Duration // between messages at rest; 0: 5 s
	Stall     time.Duration // how long one message may wait for its reader; 0: 60 s
	Streams   int           // of one client at a time; 0: 64
}

// Server is the service.
type Server struct {
	inventoryv1.UnimplementedInventoryServiceServer

	cfg Config

	stopping chan struct{}

	mu      sync.Mutex
	stopped bool
	streams map[string]int // live streams by the client's name
	depths  [inventoryv1.MaxDoubtObservations + 1]int
	live    sync.WaitGroup // streams, and what still sends for them
}

// New returns the service. Until its first complete observation it is NOT_SERVING.
func New(cfg Config) *Server {
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 5 * time.Second
	}
	if cfg.Stall == 0 {
		cfg.Stall = time.Minute
	}
	if cfg.Streams == 0 {
		// Writers that share a name, each with two streams while it asks for an observation,
		// and those that a bad network left behind and nobody has found dead yet.
		cfg.Streams = 64
	}
	s := &Server{cfg: cfg, stopping: make(chan struct{}), streams: map[string]int{}}
	s.health(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	return s
}

func (s *Server) health(is grpc_health_v1.HealthCheckResponse_ServingStatus) {
	s.cfg.Health.SetServingStatus("", is)
	s.cfg.Health.SetServingStatus(inventoryv1.InventoryService_ServiceDesc.ServiceName, is)
}

// Run tells health when there is something to tell, and ends all streams when ctx is done.
func (s *Server) Run(ctx context.Context) error {
	for {
		now, changed := s.cfg.Stores.Status()
		if now.Observation > 0 {
			s.serving()
			changed = nil // for good: a degraded inventory serves what it knows
		}
		select {
		case <-ctx.Done():
			s.Stop()
			return nil
		case <-changed:
		}
	}
}

func (s *Server) serving() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.health(grpc_health_v1.HealthCheckResponse_SERVING)
	}
}

// Stop reports NOT_SERVING, ends all streams with UNAVAILABLE and waits for them (rule R11). New
// ones are refused from then on. It may be called more than once.
func (s *Server) Stop() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		s.health(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		close(s.stopping)
	}
	s.mu.Unlock()
	s.live.Wait()
}

var (
	errStopping = status.Error(codes.Unavailable, "the inventory is shutting down")
	errUnknown  = status.Error(codes.PermissionDenied, "this client is not allowed")
)

// admit counts a stream in; the function that it returns counts it out.
func (s *Server) admit(c Client, depth int) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, errStopping
	}
	if s.streams[c.Name] >= s.cfg.Streams {
		return nil, status.Errorf(codes.ResourceExhausted, "all clients of this name together have %d streams already: end one, or give each client a name of its own", s.cfg.Streams)
	}
	s.live.Add(1)
	s.streams[c.Name]++
	s.deepen(depth, +1)
	s.cfg.Metrics.subscribers.Inc()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.streams[c.Name]--; s.streams[c.Name] == 0 {
			delete(s.streams, c.Name)
		}
		s.deepen(depth, -1)
		s.cfg.Metrics.subscribers.Dec()
		s.live.Done()
	}, nil
}

// deepen counts how many streams want series of a length, and tells when the longest changes.
func (s *Server) deepen(depth, by int) {
	was := s.deepest()
	s.depths[depth] += by
	if now := s.deepest(); now != was {
		s.cfg.Observer.SetDoubtDepth(now)
	}
}

func (s *Server) deepest() int {
	for n := len(s.depths) - 1; n > 1; n-- {
		if s.depths[n] > 0 {
			return n
		}
	}
	return 1
}

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
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
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
	// RequestObservations asks for a series of complete observations, of at least one, and returns how many
	// that adds to those that are going to be made anyway.
	RequestObservations(observations int) (added int)
	// SetConfirmations says how many the series have that the inventory begins by itself:
	// the largest number that a connected client wants, at least one.
	SetConfirmations(observations int)
}

// Config is what a server needs. Durations and Streams have defaults, the rest is mandatory.
type Config struct {
	Stores      *feed.Stores
	Identify    func(context.Context) (Client, bool)                 // who calls; false: nobody that we know
	Omitted     func() []roster.Omission                             // sorted by name; called by many goroutines
	Explain     func(name string) (e roster.Explanation, known bool) // called by many goroutines
	Observer    observer
	OnDeltaSent func()         // a subscriber was sent changes as they came; nil: nobody wants to know
	Health      *health.Server // told SERVING from the first complete observation on
	Metrics     *stream.Metrics
	Log         *slog.Logger

	MaxStreamsPerClient int // of one client at a time; 0: 64
}

// Server is the service.
type Server struct {
	inventoryv1.UnimplementedInventoryServiceServer

	cfg          Config
	streams      *stream.Streams
	quota        observationQuota
	logLimiter   rate.Sometimes // for what a client could have logged at any rate
	messageCache stream.MessageCache[messageKey, inventoryv1.WatchNodesResponse]

	mu                     sync.Mutex
	streamsByConfirmations [inventoryv1.MaxConfirmObservations + 1]int
	readers                map[*Reader]struct{}
}

// New returns the service. Until its first complete observation it is NOT_SERVING.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, readers: map[*Reader]struct{}{}, logLimiter: rate.Sometimes{Interval: time.Minute}, streams: stream.New(stream.Config{
		Service: inventoryv1.InventoryService_ServiceDesc.ServiceName,
		Health:  cfg.Health, Metrics: cfg.Metrics, MaxPerClient: cfg.MaxStreamsPerClient,
	})}
}

// Run tells health when there is something to tell, and ends all streams when ctx is done.
func (s *Server) Run(ctx context.Context) error {
	return s.streams.Run(ctx, func() (bool, <-chan struct{}) {
		now, changed := s.cfg.Stores.Status()
		return now.Observation > 0, changed
	})
}

// Stop reports NOT_SERVING, ends all streams with UNAVAILABLE and waits for them (rule R11). New
// ones are refused from then on. It may be called more than once.
func (s *Server) Stop() { s.streams.Stop() }

var errUnknownClient = status.Error(codes.PermissionDenied, "this client is not allowed")

// addConfirmations counts how many streams want series of a length, and tells when the longest changes.
func (s *Server) addConfirmations(confirmations, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.maxConfirmations()
	s.streamsByConfirmations[confirmations] += by
	if now := s.maxConfirmations(); now != before {
		s.cfg.Observer.SetConfirmations(now)
	}
}

func (s *Server) maxConfirmations() int {
	for n := len(s.streamsByConfirmations) - 1; n > 1; n-- {
		if s.streamsByConfirmations[n] > 0 {
			return n
		}
	}
	return 1
}

// Package nodeserver implements the inventory's gRPC service: it sends each client the nodes of its
// view. It guarantees the rules of slicefeed.inventory.v1 for servers, and that a slow client neither
// delays others nor makes the server queue messages. It does not know where nodes come from, nor which
// clients are allowed.
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

// Client is an authenticated client and what it may see.
type Client struct {
	Name     string // its SAN; the numbers of streams and observations are limited per name
	Operator bool   // may see omitted nodes and cloud identifiers
	View     feed.View
}

// observer takes requests for observations. It is called by many goroutines and must not block.
type observer interface {
	// RequestObservations requests at least one complete observation, in close succession if there are
	// several. It returns how many this adds to those that were requested already.
	RequestObservations(observations int) (added int)
	// SetConfirmations sets the number of observations that confirm an anomaly that the inventory finds
	// by itself: the largest number that a connected client requires, at least one.
	SetConfirmations(observations int)
}

// Config configures a server. MaxStreamsPerClient has a default, the rest is mandatory unless stated.
type Config struct {
	Stores      *feed.Stores
	Identify    func(context.Context) (Client, bool)                 // false: unknown client
	Omitted     func() []roster.Omission                             // sorted by name; called by many goroutines
	Explain     func(name string) (e roster.Explanation, known bool) // called by many goroutines
	Observer    observer
	OnDeltaSent func()         // called after a delta was sent to a subscriber that was up to date; nil: not called
	Health      *health.Server // SERVING from the first complete observation on
	Metrics     *stream.Metrics
	Log         *slog.Logger

	MaxStreamsPerClient int // 0: 64
}

// Server implements InventoryService.
type Server struct {
	inventoryv1.UnimplementedInventoryServiceServer

	cfg          Config
	streams      *stream.Streams
	quota        observationQuota
	logLimiter   rate.Sometimes // for log lines that a client can cause at any rate
	messageCache stream.MessageCache[messageKey, inventoryv1.WatchNodesResponse]

	mu                     sync.Mutex
	streamsByConfirmations [inventoryv1.MaxConfirmObservations + 1]int // number of streams, by the number of confirmations that they require
	readers                map[*Reader]struct{}
}

// New returns the service. It is NOT_SERVING until the first complete observation.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, readers: map[*Reader]struct{}{}, logLimiter: rate.Sometimes{Interval: time.Minute}, streams: stream.New(stream.Config{
		Service: inventoryv1.InventoryService_ServiceDesc.ServiceName,
		Health:  cfg.Health, Metrics: cfg.Metrics, MaxPerClient: cfg.MaxStreamsPerClient,
	})}
}

// Run sets the health to SERVING after the first complete observation, and ends all streams when ctx is
// done.
func (s *Server) Run(ctx context.Context) error {
	return s.streams.Run(ctx, func() (bool, <-chan struct{}) {
		now, changed := s.cfg.Stores.Status()
		return now.Observation > 0, changed
	})
}

// Stop sets the health to NOT_SERVING, ends all streams with UNAVAILABLE and waits for them (rule R11).
// New streams are rejected from then on. It may be called more than once.
func (s *Server) Stop() { s.streams.Stop() }

var errUnknownClient = status.Error(codes.PermissionDenied, "client is not allowed")

// addStreams adds delta to the number of streams that require this many confirmations, and passes a
// changed maximum to the observer.
func (s *Server) addStreams(confirmations, delta int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.maxConfirmations()
	s.streamsByConfirmations[confirmations] += delta
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

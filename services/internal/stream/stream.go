// Package stream publishes a set to any number of subscribers, by the rules that slicefeed.inventory.v1 has for servers,
// whatever its entries are. It guarantees that one update takes a subscriber from any position to the current set
// (R5 to R7), heartbeats (R9), that no subscriber delays another or makes the server hold more than the message being
// sent to it (R10), an end with UNAVAILABLE when the server stops (R11), and messages of limited size (R3). It does not
// know what the entries mean, nor who may receive them.
package stream

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// The timing of all streams.
const (
	HeartbeatInterval = 5 * time.Second // longest time between two messages
	SendTimeout       = time.Minute     // how long a client may take to read one message
)

// Config configures the streams of a service. MaxPerClient has a default, the rest is mandatory.
type Config struct {
	Component, Service, Method string // such as inventory, slicefeed.inventory.v1.InventoryService and WatchNodes

	// Ready reports whether calls can be served. Its channel is closed when that may have changed.
	Ready      func() (bool, <-chan struct{})
	Revision   func() uint64  // number of changes so far
	Health     *health.Server // NOT_SERVING until the service is ready, and after Stop
	Registerer prometheus.Registerer

	MaxPerClient int // concurrent streams of one client name; 0: 64
}

// Streams manages the streams of one service.
type Streams struct {
	Metrics *Metrics

	cfg     Config
	serving context.Context // canceled by Stop
	cancel  context.CancelFunc

	mu              sync.Mutex
	streamsByClient map[string]int // active streams by client name
	active          sync.WaitGroup // handlers and send loops
}

// New returns a service without streams, whose health is NOT_SERVING.
func New(cfg Config) *Streams {
	// Several clients may share a name, each briefly has two streams when it reconnects, and a bad
	// network leaves dead streams behind that are only detected later.
	cfg.MaxPerClient = cmp.Or(cfg.MaxPerClient, 64)
	s := &Streams{cfg: cfg, Metrics: newMetrics(cfg), streamsByClient: map[string]int{}}
	s.serving, s.cancel = context.WithCancel(context.Background())
	s.setHealth(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	return s
}

func (s *Streams) setHealth(servingStatus grpc_health_v1.HealthCheckResponse_ServingStatus) {
	s.cfg.Health.SetServingStatus("", servingStatus)
	s.cfg.Health.SetServingStatus(s.cfg.Service, servingStatus)
}

// markServing sets the gRPC health to SERVING, unless the streams were stopped.
func (s *Streams) markServing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving.Err() == nil {
		s.setHealth(grpc_health_v1.HealthCheckResponse_SERVING)
	}
}

// Run sets the health to SERVING once the service is ready, and ends all streams when ctx is done.
func (s *Streams) Run(ctx context.Context) error {
	for {
		ready, changed := s.cfg.Ready()
		if ready {
			s.markServing()
			changed = nil // a service that was ready once stays SERVING, even while its data is degraded
		}
		select {
		case <-ctx.Done():
			s.Stop()
			return nil
		case <-changed:
		}
	}
}

// Stop sets the health to NOT_SERVING, ends all streams with UNAVAILABLE and waits for them (rule
// R11). New streams are rejected from then on. It may be called more than once.
func (s *Streams) Stop() {
	s.mu.Lock()
	s.cancel()
	s.setHealth(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	s.mu.Unlock()
	s.active.Wait()
}

// streamEnd is why a stream ended.
type streamEnd struct {
	reason string // of the metric
	err    error  // for the client
}

var (
	endStopping = streamEnd{reasonStopping, status.Error(codes.Unavailable, "server is shutting down")}
	endStalled  = streamEnd{
		reasonStalled,
		status.Error(codes.ResourceExhausted, "client read nothing for too long; resume when it can read"),
	}
)

// end counts the end of a stream, and returns the error for its client.
func (s *Streams) end(e streamEnd) error {
	s.Metrics.Ended.WithLabelValues(e.reason).Inc()
	return e.err
}

// Admit registers a stream of a client, unless the client has too many. The caller calls release when
// the stream ends.
func (s *Streams) Admit(client string) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving.Err() != nil {
		return nil, s.end(endStopping)
	}
	if s.streamsByClient[client] >= s.cfg.MaxPerClient {
		return nil, s.end(streamEnd{reasonTooManyStreams, status.Errorf(codes.ResourceExhausted,
			"clients of this name already have %d streams; close one, or give each client its own name", s.cfg.MaxPerClient)})
	}
	s.active.Add(1)
	s.streamsByClient[client]++
	s.Metrics.Subscribers.Inc()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.streamsByClient[client]--; s.streamsByClient[client] == 0 {
			delete(s.streamsByClient, client)
		}
		s.Metrics.Subscribers.Dec()
		s.active.Done()
	}, nil
}

// reader is implemented by Reader.
type reader[M any] interface {
	Changed() <-chan struct{}
	Next() (Kind, iter.Seq[*Message[M]])
	Sent()
}

// Serve sends messages to an admitted client until the stream ends.
//
// The only way to abort a Send that blocks is to return from the handler. Another goroutine
// therefore sends, while the handler waits for it or for a reason to end the stream. Once the handler
// has returned, grpc makes Send return.
func Serve[M any](s *Streams, to grpc.ServerStream, r reader[M]) error {
	sendTimer := time.NewTimer(SendTimeout)
	sendTimer.Stop() // it runs only during a Send
	done, panicked := make(chan error, 1), make(chan string, 1)
	s.active.Go(func() { // Stop is still waiting, because Admit counted the stream
		defer func() {
			if p := recover(); p != nil {
				panicked <- fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
		}()
		done <- sendLoop(s, to, r, sendTimer)
	})
	defer sendTimer.Stop()
	select {
	case err := <-done:
		if err != nil && to.Context().Err() == nil {
			return s.end(streamEnd{reasonFailed, err})
		}
	case p := <-panicked:
		panic(p) // in the handler's goroutine, where an interceptor recovers it
	case <-to.Context().Done():
	case <-sendTimer.C:
		return s.end(endStalled)
	case <-s.serving.Done():
		return s.end(endStopping)
	}
	return s.end(streamEnd{reasonClient, status.FromContextError(to.Context().Err()).Err()})
}

// sendLoop sends until a message cannot be sent or the client is gone. sendTimer runs while a message
// is being sent.
func sendLoop[M any](s *Streams, to grpc.ServerStream, r reader[M], sendTimer *time.Timer) error {
	heartbeat := time.NewTimer(HeartbeatInterval)
	defer heartbeat.Stop()
	first, heartbeatDue := true, false
	for {
		changed := r.Changed()
		kind, messages := r.Next()
		if first && kind == Heartbeat {
			kind = Status
		}
		if heartbeatDue || kind != Heartbeat {
			for m := range messages {
				sendTimer.Reset(SendTimeout)
				err := m.send(to)
				sendTimer.Stop()
				if err != nil {
					return err
				}
				s.Metrics.Messages.WithLabelValues(string(kind)).Inc()
			}
			r.Sent()
			first, heartbeatDue = false, false
			heartbeat.Reset(HeartbeatInterval)
			continue // send what has changed in the meantime
		}
		select {
		case <-changed:
		case <-heartbeat.C:
			heartbeatDue = true
		case <-to.Context().Done():
			return nil
		}
	}
}

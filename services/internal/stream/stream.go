// Package stream is the server's side of the streams that slicefeed.inventory.v1 describes,
// whatever they tell. It promises heartbeats (rule R9), that no reader delays another or makes
// the server hold more than the message it is being sent (R10), an end with UNAVAILABLE when the
// server stops (R11), and messages of a bounded size (R3). It refuses to know what is told, and
// who may be told it.
package stream

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Config is what the streams of a service need. Durations and MaxPerClient have defaults, the
// rest is mandatory.
type Config struct {
	Service string         // full name, for gRPC health
	Health  *health.Server // told NOT_SERVING until Serving, and when the streams stop
	Metrics *Metrics

	Heartbeat    time.Duration // between messages at rest; 0: 5 s
	SendTimeout  time.Duration // how long one message may wait for its reader; 0: 60 s
	MaxPerClient int           // streams of one client at a time; 0: 64
}

// Streams are those of one service.
type Streams struct {
	Config

	stopping chan struct{}

	mu              sync.Mutex
	stopped         bool
	streamsByClient map[string]int // live streams by the client's name
	active          sync.WaitGroup // streams, and what still sends for them
}

// New returns a service's streams: none. It is NOT_SERVING.
func New(cfg Config) *Streams {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 5*time.Second)
	cfg.SendTimeout = cmp.Or(cfg.SendTimeout, time.Minute)
	// Clients that share a name, each with two streams for a moment, and those that a bad
	// network left behind and nobody has found dead yet.
	cfg.MaxPerClient = cmp.Or(cfg.MaxPerClient, 64)
	s := &Streams{Config: cfg, stopping: make(chan struct{}), streamsByClient: map[string]int{}}
	s.setHealth(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	return s
}

func (s *Streams) setHealth(servingStatus grpc_health_v1.HealthCheckResponse_ServingStatus) {
	s.Health.SetServingStatus("", servingStatus)
	s.Health.SetServingStatus(s.Service, servingStatus)
}

// markServing reports SERVING by gRPC health, unless the streams were stopped.
func (s *Streams) markServing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.setHealth(grpc_health_v1.HealthCheckResponse_SERVING)
	}
}

// Run tells health once there is something to tell, and ends all streams when ctx is done.
// told says whether there is, and on what to ask again.
func (s *Streams) Run(ctx context.Context, isReady func() (bool, <-chan struct{})) error {
	for {
		ready, changed := isReady()
		if ready {
			s.markServing()
			changed = nil // for good: what is known is told whatever comes
		}
		select {
		case <-ctx.Done():
			s.Stop()
			return nil
		case <-changed:
		}
	}
}

// Stop reports NOT_SERVING, ends all streams with UNAVAILABLE and waits for them (rule R11). New
// ones are refused from then on. It may be called more than once.
func (s *Streams) Stop() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		s.setHealth(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		close(s.stopping)
	}
	s.mu.Unlock()
	s.active.Wait()
}

var (
	errStopping = status.Error(codes.Unavailable, "the server is shutting down")
	errStalled  = status.Error(codes.ResourceExhausted, "nothing was read for too long: resume when there is somebody to read")
)

// Admit counts a stream of a client in; the function that it returns counts it out.
func (s *Streams) Admit(client string) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		s.Metrics.Ended.WithLabelValues(endStopping).Inc()
		return nil, errStopping
	}
	if s.streamsByClient[client] >= s.MaxPerClient {
		s.Metrics.Ended.WithLabelValues(endTooManyStreams).Inc()
		return nil, status.Errorf(codes.ResourceExhausted, "all clients of this name together have %d streams already: end one, or give each client a name of its own", s.MaxPerClient)
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

// Reader is one client of a stream: where it stands, and what leads it on.
type Reader[M any] interface {
	// Changed returns a channel that is closed at the next change of anything that there is to
	// tell. It is taken before Next, so that nothing falls in between.
	Changed() <-chan struct{}
	// Next says what the reader lacks at this moment: a Heartbeat if nothing, whose messages say
	// just that. Each is made when the one before has been sent.
	Next() (Kind, iter.Seq[*Message[M]])
	// Sent is called when all of them were sent: the reader stands elsewhere now.
	Sent()
}

// Serve tells one client what it lacks, again and again, until the stream ends. The client has
// been admitted. All that is kept of it is where it stands; what changes while a message
// waits to be read is found afterwards, newest state only.
//
// A Send that the reader does not take can be ended in one way alone, by returning from the
// handler: so another goroutine tells, and the handler is free to go. Once it has, grpc makes
// Send return.
func Serve[M any](s *Streams, to grpc.ServerStream, r Reader[M]) error {
	sendTimer := time.NewTimer(s.SendTimeout)
	sendTimer.Stop() // until something is sent
	done, panicked := make(chan error, 1), make(chan string, 1)
	s.active.Go(func() { // the stream itself is counted, so Stop has not stopped waiting
		defer func() {
			if p := recover(); p != nil {
				panicked <- fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
		}()
		done <- sendLoop(s, to, r, sendTimer)
	})
	defer sendTimer.Stop()
	reason, err := endClient, error(nil)
	select {
	case err = <-done:
		if err != nil && to.Context().Err() == nil {
			reason = endFailed
		}
	case p := <-panicked:
		panic(p) // here, where it is recovered from
	case <-to.Context().Done():
	case <-sendTimer.C:
		reason, err = endStalled, errStalled
	case <-s.stopping:
		reason, err = endStopping, errStopping
	}
	if reason == endClient {
		err = status.FromContextError(to.Context().Err()).Err()
	}
	s.Metrics.Ended.WithLabelValues(reason).Inc()
	return err
}

// sendLoop returns when a message could not be sent, or when the client has gone. While one is being
// sent, the timer runs.
func sendLoop[M any](s *Streams, to grpc.ServerStream, r Reader[M], sendTimer *time.Timer) error {
	heartbeat := time.NewTimer(s.Heartbeat)
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
				sendTimer.Reset(s.SendTimeout)
				err := m.send(to)
				sendTimer.Stop()
				if err != nil {
					return err
				}
				s.Metrics.Messages.WithLabelValues(string(kind)).Inc()
			}
			r.Sent()
			first, heartbeatDue = false, false
			heartbeat.Reset(s.Heartbeat)
			continue // what changed meanwhile is told at once
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

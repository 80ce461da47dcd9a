package link

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
	"github.com/slicefeed/slicefeed/services/internal/clientlist"
)

// The limits of one client. A client is one entry of the client list: all connections whose
// certificates have its name count together. The limits are far above what a correct client needs, and
// low enough that a client that misbehaves affects only itself. docs/design/limits.md has the table.
const (
	// MaxConns is the number of connections of one client. Three writer replicas that reconnect over a
	// bad network leave a dozen dead connections that are not detected yet.
	MaxConns = 16

	// A few connections above MaxConns are kept for some seconds, so that their calls get an error:
	// closing them would not show the client why. They are called excess connections.
	maxExcessConns = 8
	excessLifetime = 10 * time.Second

	// The server reads all connections of a client together at this rate. A request is half a kilobyte,
	// an idle client sends less than a kilobyte a minute, and the burst fits a thousand requests.
	byteRate  = 128 << 10 // per second
	byteBurst = 512 << 10

	// revokedGrace is the time in which calls of a client that was removed from the list end with an
	// error.
	revokedGrace = 10 * time.Second

	// A call may cost 10 ms of CPU and a megabyte (for 5,000 nodes). Calls are made by people, scripts
	// and probes.
	callRate  = 10 // per second
	callBurst = 32
)

// The values of the label `limit`.
const (
	limitHandshakes   = "handshakes"
	limitConnections  = "connections"
	limitStreamStarts = "streams"
	limitCalls        = "calls"
	limitConcurrent   = "concurrent_streams"
)

// limits counts what each client uses, and counts and logs what is rejected. It
// applies before the interceptor that logs each call, so that a flood of calls does not flood the log.
type limits struct {
	streams    streamLimits
	clients    *clientlist.List
	rejections *prometheus.CounterVec
	log        *slog.Logger

	mu     sync.Mutex
	usages map[certificate.SAN]*clientUsage
}

// clientUsage is what all connections of one client use. It outlives changes of the client's grant.
type clientUsage struct {
	calls, streams, bytes *rate.Limiter

	conns map[*clientConnection]struct{} // guarded by limits.mu
}

func (l *limits) newClientUsage() *clientUsage {
	return &clientUsage{
		calls: rate.NewLimiter(callRate, callBurst), streams: rate.NewLimiter(l.streams.rate, l.streams.burst),
		bytes: rate.NewLimiter(byteRate, byteBurst), conns: map[*clientConnection]struct{}{},
	}
}

func newLimits(clients *clientlist.List, cfg Config) *limits {
	l := &limits{
		streams: cfg.streamLimits(), clients: clients, log: cfg.Logger,
		usages: map[certificate.SAN]*clientUsage{},
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed",
			Subsystem: cfg.Component,
			Name:      "limit_rejections_total",
			Help:      "Number of rejections because of a limit: unfinished handshakes of all peers (the oldest of the address with the most is ended), connections, stream starts and calls of one client, concurrent streams of one connection.",
		}, []string{"limit"}),
	}
	for _, limit := range []string{limitHandshakes, limitConnections, limitStreamStarts, limitCalls, limitConcurrent} {
		l.rejections.WithLabelValues(limit)
	}
	cfg.Registerer.MustRegister(l.rejections)
	return l
}

func (l *limits) recordRejection(limit string, peer ...any) {
	l.rejections.WithLabelValues(limit).Inc()
	l.log.Warn("limit reached", append([]any{"limit", limit}, peer...)...)
}

// addConnection counts a connection as its client's, unless there is no room for it, not even as an excess
// connection.
func (l *limits) addConnection(c *clientConnection, client certificate.SAN) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	usage := l.usages[client]
	if usage == nil {
		usage = l.newClientUsage()
		l.usages[client] = usage
	}
	excess := 0
	for conn := range usage.conns {
		if conn.excess {
			excess++
		}
	}
	c.usage, c.excess = usage, len(usage.conns)-excess >= MaxConns
	if c.excess && excess >= maxExcessConns {
		return false
	}
	usage.conns[c] = struct{}{}
	return true
}

func (l *limits) removeConnection(c *clientConnection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(c.usage.conns, c)
}

// closeRevoked closes the connections of clients that are no longer listed, and forgets these.
func (l *limits) closeRevoked() {
	l.mu.Lock()
	var revoked []*clientConnection
	for client, usage := range l.usages {
		for c := range usage.conns {
			if _, listed := c.grant(); !listed {
				revoked = append(revoked, c)
			}
		}
		if _, listed := l.clients.Find([]certificate.SAN{client}); !listed {
			delete(l.usages, client)
		}
	}
	l.mu.Unlock()
	for _, c := range revoked {
		c.Close() //nolint:errcheck // the connection is abandoned
	}
}

// limiterFunc is a ratelimit.Limiter.
type limiterFunc func(ctx context.Context) error

func (f limiterFunc) Limit(ctx context.Context) error { return f(ctx) }

// callLimiter limits the calls of each client, except for streams.
func (l *limits) callLimiter() ratelimit.Limiter {
	return l.newLimiter(limitCalls, func(u *clientUsage) *rate.Limiter { return u.calls },
		fmt.Errorf("clients of this name may make %d calls per second in total; wait longer between calls", callRate))
}

// streamStartLimiter limits the starts of streams of each client.
func (l *limits) streamStartLimiter() ratelimit.Limiter {
	return l.newLimiter(
		limitStreamStarts,
		func(u *clientUsage) *rate.Limiter { return u.streams },
		fmt.Errorf(
			"clients of this name may start %.0f streams per second in total; keep streams open and wait longer before reconnecting",
			l.streams.rate,
		),
	)
}

func (l *limits) newLimiter(limit string, limiterOf func(*clientUsage) *rate.Limiter, rejection error) ratelimit.Limiter {
	return limiterFunc(func(ctx context.Context) error {
		c := connectionFromContext(ctx)
		if c == nil {
			return errNoCertificate
		}
		if limiterOf(c.usage).Allow() {
			return nil
		}
		l.recordRejection(limit, peerLogFields(ctx)...)
		return rejection
	})
}

// limitConcurrentStreams rejects streams above the limit of a connection. With HTTP/2's own limit, the client's
// library would wait without an error until another stream ends.
func (l *limits) limitConcurrentStreams(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := connectionFromContext(s.Context())
	if c == nil {
		return errNoCertificate
	}
	defer c.streamCount.Add(-1)
	if c.streamCount.Add(1) > l.streams.perConn {
		l.recordRejection(limitConcurrent, peerLogFields(s.Context())...)
		return status.Errorf(
			codes.ResourceExhausted,
			"connection already has %d streams; end one or use another connection",
			l.streams.perConn,
		)
	}
	return handler(srv, s)
}

// rejectExcessConnection rejects the calls of an excess connection, before grpc does anything for them.
// It must not block.
func rejectExcessConnection(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if c := connectionFromContext(ctx); c != nil && c.excess {
		return ctx, errTooManyConns
	}
	return ctx, nil
}

var errTooManyConns = status.Errorf(
	codes.ResourceExhausted,
	"clients of this name already have %d connections; close one or give each client its own name",
	MaxConns,
)

package link

import (
	"context"
	"log/slog"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
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

// limits is the client list, and what each client uses. It counts and logs what is rejected, before the interceptor that
// logs each call, so that a flood of calls does not flood the log.
type limits struct {
	streams      streamLimits
	revokedGrace time.Duration // in which calls of a client that was removed from the list end with an error
	rejections   *prometheus.CounterVec
	log          *slog.Logger

	mu     sync.Mutex
	grants map[SAN]Grant
	usages map[SAN]*clientUsage
}

// clientUsage is what all connections of one client use. It outlives the client's grant.
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

func newLimits(cfg Config) *limits {
	l := &limits{
		streams: cfg.streamLimits(), revokedGrace: 10 * time.Second, log: cfg.Logger, usages: map[SAN]*clientUsage{},
		rejections: promauto.With(cfg.Registerer).NewCounterVec(cfg.counter(
			"limit_rejections_total",
			"Number of rejections because of a limit: unfinished handshakes of all peers (the oldest of the address with the most is ended), connections, stream starts and calls of one client, concurrent streams of one connection.",
		),
			[]string{"limit"}),
	}
	for _, limit := range []string{limitHandshakes, limitConnections, limitStreamStarts, limitCalls, limitConcurrent} {
		l.rejections.WithLabelValues(limit)
	}
	return l
}

// useClients replaces the client list. Streams of clients whose grant changed end, and connections of those that are not
// listed any more close after a while.
func (l *limits) useClients(content [][]byte) error {
	grants, err := parseClients(content[0])
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = map[SAN]Grant{}
	for _, g := range grants {
		l.grants[g.SAN] = g
	}
	for _, usage := range l.usages {
		for c := range usage.conns {
			l.updatePermission(c)
		}
	}
	return nil
}

func (l *limits) updatePermission(c *clientConnection) {
	grant, listed := findGrant(l.grants, c.names)
	old := c.permission.Load()
	if reflect.DeepEqual(grant, old.Grant) {
		return
	}
	c.permission.Store(newPermission(grant, listed))
	if listed {
		old.end(errPermissionsChanged)
	} else {
		old.end(errDenied)
		c.closeAfter(l.revokedGrace)
	}
}

func (l *limits) findGrant(names []SAN) (grant Grant, listed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return findGrant(l.grants, names)
}

func (l *limits) recordRejection(limit string, peer ...any) {
	l.rejections.WithLabelValues(limit).Inc()
	l.log.Warn("limit reached", append([]any{"limit", limit}, peer...)...)
}

// addConnection counts a connection as that of the client with these names, and rejects it if there is no room for it, not
// even as an excess connection.
func (l *limits) addConnection(conn net.Conn, names []SAN) (*clientConnection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	grant, listed := findGrant(l.grants, names)
	if !listed { // removed from the list during the handshake
		return nil, errDenied
	}
	usage := l.usages[grant.SAN]
	if usage == nil {
		usage = l.newClientUsage()
		l.usages[grant.SAN] = usage
	}
	excess := 0
	for other := range usage.conns {
		if other.excess {
			excess++
		}
	}
	c := &clientConnection{Conn: conn, limits: l, names: names, usage: usage, excess: len(usage.conns)-excess >= MaxConns}
	c.permission.Store(newPermission(grant, listed))
	if c.excess {
		l.recordRejection(limitConnections, "remote", conn.RemoteAddr().String(), "peer.san", string(grant.SAN))
		if excess >= maxExcessConns {
			return nil, errTooManyConns
		}
		c.closeAfter(excessLifetime)
	}
	usage.conns[c] = struct{}{}
	return c, nil
}

func (l *limits) removeConnection(c *clientConnection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(c.usage.conns, c)
}

// limitCalls rejects calls above a client's rate.
func (l *limits) limitCalls(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !connectionFromContext(ctx).usage.calls.Allow() {
		return nil, l.reject(ctx, limitCalls,
			"clients of this name may make %d calls per second in total; wait longer between calls", callRate)
	}
	return handler(ctx, req)
}

// limitStreams rejects streams that start above a client's rate, and those above the limit of a connection. With HTTP/2's
// own limit, the client's library would wait without an error until another stream ends.
func (l *limits) limitStreams(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := connectionFromContext(s.Context())
	if !c.usage.streams.Allow() {
		return l.reject(s.Context(), limitStreamStarts,
			"clients of this name may start %.0f streams per second in total; keep streams open and wait longer before reconnecting",
			l.streams.rate)
	}
	defer c.streamCount.Add(-1)
	if c.streamCount.Add(1) > l.streams.perConn {
		return l.reject(s.Context(), limitConcurrent,
			"connection already has %d streams; end one or use another connection", l.streams.perConn)
	}
	return handler(srv, s)
}

func (l *limits) reject(ctx context.Context, limit, format string, args ...any) error {
	l.recordRejection(limit, peerLogFields(ctx)...)
	return status.Errorf(codes.ResourceExhausted, format, args...)
}

// admitCall rejects the calls of an excess connection, before grpc does anything for them. It must not block.
func admitCall(ctx context.Context, _ *tap.Info) (context.Context, error) {
	switch c := connectionFromContext(ctx); {
	case c == nil:
		return ctx, errDenied
	case c.excess:
		return ctx, errTooManyConns
	}
	return ctx, nil
}

var errTooManyConns = status.Errorf(
	codes.ResourceExhausted,
	"clients of this name already have %d connections; close one or give each client its own name",
	MaxConns,
)

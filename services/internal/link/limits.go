package link

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// The limits of one client. A client is one entry of the client list: all connections whose
// certificates have its name count together. The limits are far above what a correct client needs, and
// low enough that a client that misbehaves affects only itself. docs/limits.md has the table.
const (
	// maxConns is the number of connections of one client. Three writer replicas that reconnect over a
	// bad network leave a dozen dead connections that are not detected yet.
	maxConns = 16

	// A few connections above maxConns are kept for some seconds, so that their calls get an error. They
	// are called excess connections.
	maxExcessConns = 8
	excessLifetime = 10 * time.Second

	// The server reads all connections of a client together at this rate. A request is half a kilobyte,
	// an idle client sends less than a kilobyte a minute, and the burst fits a thousand requests.
	byteRate  = 128 << 10 // per second
	byteBurst = 512 << 10

	// revokedGrace is the time in which calls of a client that was removed from the list end with an
	// error.
	revokedGrace = 10 * time.Second

	// All streams of a client can reconnect twice at the same time, and then every few seconds. Resuming
	// a stream is cheap.
	streamRate  = 20 // per second
	streamBurst = 128

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

// limitRecorder counts and logs what the limits reject. It limits its log lines, and the limits apply
// before the interceptor that logs each call, so that a flood of calls does not flood the log.
type limitRecorder struct {
	rejections *prometheus.CounterVec
	log        *slog.Logger
	logLimiter rate.Sometimes
}

func newLimitRecorder(component string, log *slog.Logger) *limitRecorder {
	l := &limitRecorder{
		log: log, logLimiter: rate.Sometimes{First: 3, Interval: time.Second},
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: component, Name: "limit_rejections_total",
			Help: "Number of rejections because of a limit: unfinished handshakes of all peers (the oldest of the address with the most is ended), connections, stream starts and calls of one client, concurrent streams of one connection.",
		}, []string{"limit"}),
	}
	for _, limit := range []string{limitHandshakes, limitConnections, limitStreamStarts, limitCalls, limitConcurrent} {
		l.rejections.WithLabelValues(limit)
	}
	return l
}

func (l *limitRecorder) recordRejection(limit string, peer ...any) {
	l.rejections.WithLabelValues(limit).Inc()
	l.logLimiter.Do(func() { l.log.Warn("limit reached", append([]any{"limit", limit}, peer...)...) })
}

// rateLimiter limits the calls, or the stream starts, of each client.
type rateLimiter struct {
	*limitRecorder

	limitName string
	bucketOf  func(*clientUsage) *rate.Limiter
	rejection error
}

func (l *limitRecorder) callLimiter() *rateLimiter {
	return &rateLimiter{
		l, limitCalls, func(u *clientUsage) *rate.Limiter { return u.calls },
		fmt.Errorf("clients of this name may make %d calls per second in total; wait longer between calls", callRate),
	}
}

func (l *limitRecorder) streamStartLimiter() *rateLimiter {
	return &rateLimiter{
		l, limitStreamStarts, func(u *clientUsage) *rate.Limiter { return u.streams },
		fmt.Errorf("clients of this name may start %d streams per second in total; keep streams open and wait longer before reconnecting", streamRate),
	}
}

// Limit returns an error if the client of a call exceeds its rate.
func (r *rateLimiter) Limit(ctx context.Context) error {
	c := connectionFromContext(ctx)
	if c == nil {
		return errNoCertificate
	}
	if r.bucketOf(c.usage).Allow() {
		return nil
	}
	r.recordRejection(r.limitName, peerLogFields(ctx)...)
	return r.rejection
}

// limitConcurrentStreams rejects streams above maxConnStreams. With HTTP/2's own limit, the client's
// library would wait without an error until another stream ends.
func (l *limitRecorder) limitConcurrentStreams(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := connectionFromContext(s.Context())
	if c == nil {
		return errNoCertificate
	}
	defer c.streamCount.Add(-1)
	if c.streamCount.Add(1) > maxConnStreams {
		l.recordRejection(limitConcurrent, peerLogFields(s.Context())...)
		return errTooManyStreams
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

var (
	errTooManyConns   = status.Errorf(codes.ResourceExhausted, "clients of this name already have %d connections; close one or give each client its own name", maxConns)
	errTooManyStreams = status.Errorf(codes.ResourceExhausted, "connection already has %d streams; end one or use another connection", maxConnStreams)
)

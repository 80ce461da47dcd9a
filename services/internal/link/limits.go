package link

import (
	"context"
	"errors"
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

// The limits of one client, which is to say of all that call by one name of the list. They are far
// above what honest clients do, and low enough that a client out of its mind is felt by itself
// alone. docs/limits.md has the table.
const (
	// maxConns is how many connections one client may have. Three replicas of a writer that
	// come and go on a bad network leave a dozen behind that nobody has found dead yet.
	maxConns = 16

	// Connections above that are kept for a few seconds, so that their calls are answered.
	maxExcessConns = 8
	excessLifetime = 10 * time.Second

	// All connections of a client together are read at this rate. A request has half a kilobyte; what
	// comes in at rest is less than a kilobyte a minute. The burst has room for a thousand requests.
	byteRate  = 128 << 10 // a second, in the long run
	byteBurst = 512 << 10

	// revokedGrace is for the calls of a client that was taken off the list to end, and to say why.
	revokedGrace = 10 * time.Second

	// All streams that one name may have can come back twice at once, and then each every few
	// seconds. One that resumes costs little.
	streamRate  = 20 // a second, in the long run
	streamBurst = 128

	// A call may cost 10 ms of a processor and a megabyte (all of 5,000 nodes). It is made by
	// people, scripts and probes.
	callRate  = 10
	callBurst = 32
)

// The values of the label `limit`.
const (
	limitHandshakes  = "handshakes"
	limitConnections = "connections"
	limitStreams     = "streams"
	limitCalls       = "calls"
	limitConcurrent  = "concurrent_streams"
)

// limitRecorder tells of what was refused. A flood must not become one of the log: so these lines
// are seldom, and the limits come before the interceptor that logs each call.
type limitRecorder struct {
	rejections *prometheus.CounterVec
	log        *slog.Logger
	logLimiter rate.Sometimes
}

func newLimitRecorder(half string, log *slog.Logger) *limitRecorder {
	l := &limitRecorder{
		log: log, logLimiter: rate.Sometimes{First: 3, Interval: time.Second},
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: half, Name: "limited_total",
			Help: "What was refused because there was too much of it: unfinished handshakes of all peers (the oldest of the address with the most is cut off), connections, starts of streams and calls of one client, concurrent streams of one connection.",
		}, []string{"limit"}),
	}
	for _, limit := range []string{limitHandshakes, limitConnections, limitStreams, limitCalls, limitConcurrent} {
		l.rejections.WithLabelValues(limit)
	}
	return l
}

func (l *limitRecorder) recordRejection(limit string, who ...any) {
	l.rejections.WithLabelValues(limit).Inc()
	l.logLimiter.Do(func() { l.log.Warn("limit reached", append([]any{"limit", limit}, who...)...) })
}

// rateLimiter is the limiter of calls, or of starts of streams, by whom they come from.
type rateLimiter struct {
	*limitRecorder

	limitName string
	bucket    func(*clientUsage) *rate.Limiter
	rejection error
}

func (l *limitRecorder) callLimiter() *rateLimiter {
	return &rateLimiter{
		l, limitCalls, func(a *clientUsage) *rate.Limiter { return a.calls },
		fmt.Errorf("all clients of this name together may make %d calls a second: wait longer between them", callRate),
	}
}

func (l *limitRecorder) streamStartLimiter() *rateLimiter {
	return &rateLimiter{
		l, limitStreams, func(a *clientUsage) *rate.Limiter { return a.streams },
		fmt.Errorf("all clients of this name together may begin %d streams a second: keep them, and wait longer before beginning anew", streamRate),
	}
}

// Limit is asked before each call.
func (p *rateLimiter) Limit(ctx context.Context) error {
	c := connectionFromContext(ctx)
	if c == nil {
		return errNoCertificate
	}
	if p.bucket(c.usage).Allow() {
		return nil
	}
	p.recordRejection(p.limitName, peerLogFields(ctx)...)
	return p.rejection
}

// limitConcurrentStreams refuses streams of a connection beyond the limit. HTTP/2's own limit has the client's
// library wait without a word, for as long as a stream of nodes may last.
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

// rejectOverLimit is asked by grpc before anything of a call is done. It must not wait.
func rejectOverLimit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if c := connectionFromContext(ctx); c != nil && c.overLimit {
		return ctx, errTooManyConns
	}
	return ctx, nil
}

var (
	errTooManyConns     = status.Errorf(codes.ResourceExhausted, "all clients of this name together have %d connections already: end one, or give each client a name of its own", maxConns)
	errTooManyStreams   = status.Errorf(codes.ResourceExhausted, "this connection has %d streams already: end one, or use another connection", maxConnStreams)
	errHandshakeTooLong = fmt.Errorf("the handshake takes more than %d bytes: present the certificate and its intermediates only", maxHandshakeBytes)
	errUnlisted         = errors.New("this client is not on the list")
	errEvicted          = errors.New("cut off, since its address has the most of too many unfinished handshakes")
)

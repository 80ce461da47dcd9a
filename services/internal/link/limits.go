package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// The limits of one client, which is to say of all that call by one name of the list; those
// who are not on it share one set. They are far above what honest clients do, and low
// enough that a client out of its mind is felt by itself alone. docs/limits.md has the table.
const (
	// maxConns is how many connections one client may have. Three replicas of a writer that
	// come and go on a bad network leave a dozen behind that nobody has found dead yet; a
	// handful of clusters may share a name.
	maxConns = 64

	// Streams may begin twice as often at once as there are connections, as if all clients of a
	// name came back twice, and then each every few seconds. One that resumes costs little.
	streamRate  = 20 // a second, in the long run
	streamBurst = 2 * maxConns

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
)

// account is what one client has used up.
type account struct {
	calls, streams *rate.Limiter
	conns          atomic.Int64
}

func newAccount() *account {
	return &account{calls: rate.NewLimiter(callRate, callBurst), streams: rate.NewLimiter(streamRate, streamBurst)}
}

// connect counts a connection in; leave counts it out.
func (a *account) connect() bool {
	if a.conns.Add(1) <= maxConns {
		return true
	}
	a.leave()
	return false
}

func (a *account) leave() { a.conns.Add(-1) }

// limits tells of what was refused. A flood must not become one of the log: so these lines
// are seldom, and the limits come before the interceptor that logs each call.
type limits struct {
	refused *prometheus.CounterVec
	log     *slog.Logger
	seldom  rate.Sometimes
}

func newLimits(half string, log *slog.Logger) *limits {
	l := &limits{
		log: log, seldom: rate.Sometimes{First: 3, Interval: time.Second},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "slicefeed", Subsystem: half, Name: "limited_total",
			Help: "What was refused because there was too much of it: unfinished handshakes of all peers (the oldest is cut off), connections, starts of streams and calls of one client.",
		}, []string{"limit"}),
	}
	for _, limit := range []string{limitHandshakes, limitConnections, limitStreams, limitCalls} {
		l.refused.WithLabelValues(limit)
	}
	return l
}

func (l *limits) refuse(limit string, who ...any) {
	l.refused.WithLabelValues(limit).Inc()
	l.seldom.Do(func() { l.log.Warn("limit reached", append([]any{"limit", limit}, who...)...) })
}

// pace is the limiter of calls, or of starts of streams, by whom they come from.
type pace struct {
	*limits

	limit   string
	clients *Clients
	bucket  func(*account) *rate.Limiter
	answer  error
}

func (l *limits) calls(c *Clients) *pace {
	return &pace{
		l, limitCalls, c, func(a *account) *rate.Limiter { return a.calls },
		fmt.Errorf("all clients of this name together may make %d calls a second: wait longer between them", callRate),
	}
}

func (l *limits) streams(c *Clients) *pace {
	return &pace{
		l, limitStreams, c, func(a *account) *rate.Limiter { return a.streams },
		fmt.Errorf("all clients of this name together may begin %d streams a second: keep them, and wait longer before beginning anew", streamRate),
	}
}

// Limit is asked before each call.
func (p *pace) Limit(ctx context.Context) error {
	if p.bucket(p.clients.account(peerCertificates(ctx))).Allow() {
		return nil
	}
	p.refuse(p.limit, peerFields(ctx)...)
	return p.answer
}

var (
	errTooManyConns = errors.New("this client has too many connections")
	errCutOff       = errors.New("cut off as the oldest of too many unfinished handshakes")
)

package link

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/validator"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"
)

// Server is the end that listens.
type Server struct {
	id       *identity
	clients  *Clients
	creds    *serverHandshaker
	reloader *reloader
	auth     *authorizer
	metrics  *grpcprom.ServerMetrics
	panics   prometheus.Counter
	limits   *limitRecorder
	log      *slog.Logger
	stopOnce sync.Once
}

// NewServer makes the end that listens, open to the clients of a list. Bad or missing files,
// the list's included, are an error that names them all.
func NewServer(cfg Config, clientsFile string) (*Server, error) {
	r := newReloader(&cfg)
	id, errID := newIdentity(&cfg, x509.ExtKeyUsageServerAuth, r)
	clients, errClients := OpenClients(clientsFile)
	if err := errors.Join(errID, errClients); err != nil {
		return nil, err
	}
	r.addReload("allowed clients", clients.loadFile)
	r.errors.WithLabelValues("clients")

	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "slicefeed", Subsystem: cfg.Component, Name: name, Help: help})
	}
	s := &Server{
		id: id, clients: clients, reloader: r, log: cfg.Logger.With("link", cfg.Name),
		auth: &authorizer{clients: clients, stopping: make(chan struct{})},
		metrics: grpcprom.NewServerMetrics(grpcprom.WithServerCounterOptions(
			grpcprom.WithNamespace("slicefeed"), grpcprom.WithSubsystem(cfg.Component))),
		panics: counter("grpc_panics_total", "Panics of gRPC handlers, each answered with INTERNAL."),
	}
	s.limits = newLimitRecorder(cfg.Component, s.log)
	failed := counter("tls_handshake_errors_total", "Connections that did not get past the TLS handshake.")
	var err error
	if s.creds, err = newServerHandshaker(id, clients, failed, s.limits); err != nil {
		return nil, err
	}
	unfinished := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: cfg.Component, Name: "tls_handshakes_unfinished",
		Help: "Connections in the midst of their TLS handshake.",
	}, func() float64 { return float64(s.creds.pendingCount()) })
	cfg.linkRegisterer().MustRegister(s.metrics, s.panics, s.limits.rejections, failed, unfinished)
	return s, nil
}

// Run keeps the files and the list fresh until ctx is done.
func (s *Server) Run(ctx context.Context) error { return s.reloader.run(ctx) }

// Clients is the list of those who may call.
func (s *Server) Clients() *Clients { return s.clients }

// Options are those for grpc.NewServer. Metrics and logs are outermost, so that they see
// what recovery makes of a panic and whom the authoriser sends away; but what the limits
// refuse is not logged call by call.
func (s *Server) Options() []grpc.ServerOption {
	params, enforcement := serverKeepalive()
	logs := newCallLogger(s.log)
	finish := logging.WithLogOnEvents(logging.FinishCall)
	levels := logging.WithLevels(callLogLevel)
	peerSAN := logging.WithFieldsFromContext(peerLogFields)
	recovered := recovery.WithRecoveryHandlerContext(s.recoverPanic)
	return []grpc.ServerOption{
		grpc.Creds(s.creds),
		grpc.KeepaliveParams(params), grpc.KeepaliveEnforcementPolicy(enforcement),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxRecvMsgSize(maxRequestBytes), grpc.MaxSendMsgSize(maxMessageBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes), grpc.MaxConcurrentStreams(maxConnCalls),
		grpc.InTapHandle(rejectOverLimit), grpc.ForceServerCodecV2(newRequestCodec()),
		// Windows that do not grow: else grpc takes up to 16 MB of what a fast sender sends.
		grpc.StaticStreamWindowSize(maxRequestBytes), grpc.StaticConnWindowSize(maxRequestBytes),
		grpc.ReadBufferSize(readBufferBytes),
		grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(s.metrics.UnaryServerInterceptor(),
			ratelimit.UnaryServerInterceptor(s.limits.callLimiter()),
			logging.UnaryServerInterceptor(logs, finish, levels, peerSAN),
			recovery.UnaryServerInterceptor(recovered), s.auth.authorizeUnary, rejectMalformed,
			validator.UnaryServerInterceptor(validator.WithFailFast())),
		grpc.ChainStreamInterceptor(s.metrics.StreamServerInterceptor(),
			ratelimit.StreamServerInterceptor(s.limits.streamStartLimiter()), s.limits.limitConcurrentStreams,
			logging.StreamServerInterceptor(logs, finish, levels, peerSAN),
			recovery.StreamServerInterceptor(recovered), s.auth.authorizeStream, rejectMalformedStream,
			validator.StreamServerInterceptor(validator.WithFailFast())),
	}
}

func (s *Server) recoverPanic(ctx context.Context, p any) error {
	s.panics.Inc()
	s.log.ErrorContext(ctx, "gRPC handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal error")
}

// EndStreams ends all live streams with UNAVAILABLE, for good. Serve calls it.
func (s *Server) EndStreams() { s.stopOnce.Do(func() { close(s.auth.stopping) }) }

// ServeConfig is a gRPC server made with Options, and what to serve it on.
type ServeConfig struct {
	Server      *grpc.Server
	Health      *health.Server // told NOT_SERVING first when the server stops
	Listener    net.Listener
	GracePeriod time.Duration // for calls under way; 0: 10 s
	OnShutdown  func()        // called before the streams are ended, e.g. to stop what feeds them; may be nil
}

// Serve serves until ctx is done, and then stops in order: health says NOT_SERVING, live
// streams end with UNAVAILABLE, calls under way finish or are cut off when the grace ends.
func (s *Server) Serve(ctx context.Context, v ServeConfig) error {
	failed := make(chan error, 1)
	go func() { failed <- v.Server.Serve(v.Listener) }()
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serve gRPC on %s: %w", v.Listener.Addr(), err)
	case <-ctx.Done():
	}
	v.Health.Shutdown()
	grace := v.GracePeriod
	if grace == 0 {
		grace = shutdownGrace
	}
	cut := time.AfterFunc(grace, v.Server.Stop) // before Stopping, which may wait for calls
	if v.OnShutdown != nil {
		v.OnShutdown()
	}
	s.EndStreams()
	v.Server.GracefulStop() // returns when all have finished, or Stop has cut them off
	cut.Stop()
	if err == nil {
		<-failed //nolint:errcheck // nil after a stop
	}
	return err
}

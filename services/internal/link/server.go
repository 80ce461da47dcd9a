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
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"
)

// Server is the end that listens.
type Server struct {
	id         *identity
	clients    *Clients
	handshaker *serverHandshaker
	reloader   *reloader
	auth       *authorizer
	metrics    *grpcprom.ServerMetrics
	panics     prometheus.Counter
	limits     *limitRecorder
	log        *slog.Logger
	stopOnce   sync.Once
}

// NewServer returns a server for the clients that a file lists. Its error names every file that is
// invalid or missing, including the client list.
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
		auth: newAuthorizer(clients, cfg.SubscriberServices),
		metrics: grpcprom.NewServerMetrics(grpcprom.WithServerCounterOptions(
			grpcprom.WithNamespace("slicefeed"), grpcprom.WithSubsystem(cfg.Component))),
		panics: counter("grpc_panics_total", "Number of panics of gRPC handlers, each returned as INTERNAL."),
	}
	s.limits = newLimitRecorder(cfg.Component, s.log)
	failures := counter("tls_handshake_errors_total", "Number of failed TLS handshakes.")
	s.handshaker = newServerHandshaker(id, clients, failures, s.limits)
	unfinished := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: cfg.Component, Name: "tls_handshakes_unfinished",
		Help: "Number of unfinished TLS handshakes.",
	}, func() float64 { return float64(s.handshaker.pendingCount()) })
	cfg.linkRegisterer().MustRegister(s.metrics, s.panics, s.limits.rejections, failures, unfinished)
	return s, nil
}

// Run reloads changed files, including the client list, until ctx is done.
func (s *Server) Run(ctx context.Context) error { return s.reloader.run(ctx) }

// Clients returns the client list.
func (s *Server) Clients() *Clients { return s.clients }

// Options returns the options for grpc.NewServer. The interceptors for metrics and logs are outermost,
// so that they cover panics and denied calls. Rate limits come before the log, so that the calls that
// they reject are not logged one by one.
func (s *Server) Options() []grpc.ServerOption {
	params, enforcement := serverKeepalive()
	logs := newCallLogger(s.log)
	finish := logging.WithLogOnEvents(logging.FinishCall)
	levels := logging.WithLevels(callLogLevel)
	peerSAN := logging.WithFieldsFromContext(peerLogFields)
	recovered := recovery.WithRecoveryHandlerContext(s.recoverPanic)
	return []grpc.ServerOption{
		grpc.Creds(s.handshaker),
		grpc.KeepaliveParams(params), grpc.KeepaliveEnforcementPolicy(enforcement),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxRecvMsgSize(maxRequestBytes), grpc.MaxSendMsgSize(maxMessageBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes), grpc.MaxConcurrentStreams(maxConnCalls),
		grpc.InTapHandle(rejectExcessConnection), grpc.ForceServerCodecV2(newRequestCodec()),
		// Static windows: with dynamic ones, grpc buffers up to 16 MB from a fast sender.
		grpc.StaticStreamWindowSize(maxRequestBytes), grpc.StaticConnWindowSize(maxRequestBytes),
		grpc.ReadBufferSize(readBufferBytes),
		grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(s.metrics.UnaryServerInterceptor(),
			ratelimit.UnaryServerInterceptor(s.limits.callLimiter()),
			logging.UnaryServerInterceptor(logs, finish, levels, peerSAN),
			recovery.UnaryServerInterceptor(recovered), s.auth.authorizeUnary, rejectMalformed),
		grpc.ChainStreamInterceptor(s.metrics.StreamServerInterceptor(),
			ratelimit.StreamServerInterceptor(s.limits.streamStartLimiter()), s.limits.limitConcurrentStreams,
			logging.StreamServerInterceptor(logs, finish, levels, peerSAN),
			recovery.StreamServerInterceptor(recovered), s.auth.authorizeStream, rejectMalformedStream),
	}
}

func (s *Server) recoverPanic(ctx context.Context, p any) error {
	s.panics.Inc()
	s.log.ErrorContext(ctx, "gRPC handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal error")
}

// EndStreams permanently ends all live streams, and new ones, with UNAVAILABLE. Serve calls it.
func (s *Server) EndStreams() { s.stopOnce.Do(func() { close(s.auth.stopping) }) }

// ServeConfig is a gRPC server that was created with Options, and its listener.
type ServeConfig struct {
	Server      *grpc.Server
	Health      *health.Server // set to NOT_SERVING first when the server stops
	Listener    net.Listener
	GracePeriod time.Duration // for calls in progress; 0: 10 s
	OnShutdown  func()        // called before the streams end, e.g. to stop their producers; may be nil
}

// Serve serves until ctx is done. Then it stops in this order: health reports NOT_SERVING, live streams
// end with UNAVAILABLE, and calls in progress finish or are canceled when the grace period ends.
func (s *Server) Serve(ctx context.Context, cfg ServeConfig) error {
	serveErr := make(chan error, 1)
	go func() { serveErr <- cfg.Server.Serve(cfg.Listener) }()
	var err error
	select {
	case err = <-serveErr:
		err = fmt.Errorf("serve gRPC on %s: %w", cfg.Listener.Addr(), err)
	case <-ctx.Done():
	}
	cfg.Health.Shutdown()
	grace := cfg.GracePeriod
	if grace == 0 {
		grace = shutdownGrace
	}
	forceStop := time.AfterFunc(grace, cfg.Server.Stop) // starts before OnShutdown, which may wait for calls
	if cfg.OnShutdown != nil {
		cfg.OnShutdown()
	}
	s.EndStreams()
	cfg.Server.GracefulStop() // returns when all calls have finished, or Stop has canceled them
	forceStop.Stop()
	if err == nil {
		<-serveErr //nolint:errcheck // nil after a stop
	}
	return err
}

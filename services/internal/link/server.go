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
	creds    *handshakes
	reloader *reloader
	auth     *authoriser
	metrics  *grpcprom.ServerMetrics
	panics   prometheus.Counter
	limits   *limits
	log      *slog.Logger
	stop     sync.Once
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
	r.add("allowed clients", clients.load)
	r.errors.WithLabelValues("clients")

	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "slicefeed", Subsystem: cfg.Half, Name: name, Help: help})
	}
	s := &Server{
		id: id, clients: clients, reloader: r, log: cfg.Logger.With("link", cfg.Name),
		auth: &authoriser{clients: clients, stopping: make(chan struct{})},
		metrics: grpcprom.NewServerMetrics(grpcprom.WithServerCounterOptions(
			grpcprom.WithNamespace("slicefeed"), grpcprom.WithSubsystem(cfg.Half))),
		panics: counter("grpc_panics_total", "Panics of gRPC handlers, each answered with INTERNAL."),
	}
	s.limits = newLimits(cfg.Half, s.log)
	failed := counter("tls_handshake_errors_total", "Connections that did not get past the TLS handshake.")
	var err error
	if s.creds, err = newHandshakes(id, clients, failed, s.limits); err != nil {
		return nil, err
	}
	unfinished := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: cfg.Half, Name: "tls_handshakes_unfinished",
		Help: "Connections in the midst of their TLS handshake.",
	}, func() float64 { return float64(s.creds.unfinished()) })
	cfg.registerer().MustRegister(s.metrics, s.panics, s.limits.refused, failed, unfinished)
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
	logs := logger(s.log)
	finish := logging.WithLogOnEvents(logging.FinishCall)
	levels := logging.WithLevels(level)
	peerSAN := logging.WithFieldsFromContext(peerFields)
	recovered := recovery.WithRecoveryHandlerContext(s.recovered)
	return []grpc.ServerOption{
		grpc.Creds(s.creds),
		grpc.KeepaliveParams(params), grpc.KeepaliveEnforcementPolicy(enforcement),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(maxConnCalls),
		grpc.InTapHandle(refuseExcess), grpc.ForceServerCodecV2(newRequestCodec()),
		// Windows that do not grow: else grpc takes up to 16 MB of what a fast sender sends.
		grpc.StaticStreamWindowSize(maxRequest), grpc.StaticConnWindowSize(maxRequest),
		grpc.ReadBufferSize(readBuffer),
		grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(s.metrics.UnaryServerInterceptor(),
			ratelimit.UnaryServerInterceptor(s.limits.calls()),
			logging.UnaryServerInterceptor(logs, finish, levels, peerSAN),
			recovery.UnaryServerInterceptor(recovered), s.auth.unary, refuseMalformed,
			validator.UnaryServerInterceptor(validator.WithFailFast())),
		grpc.ChainStreamInterceptor(s.metrics.StreamServerInterceptor(),
			ratelimit.StreamServerInterceptor(s.limits.streams()), s.limits.concurrent,
			logging.StreamServerInterceptor(logs, finish, levels, peerSAN),
			recovery.StreamServerInterceptor(recovered), s.auth.stream, refuseMalformedStream,
			validator.StreamServerInterceptor(validator.WithFailFast())),
	}
}

func (s *Server) recovered(ctx context.Context, p any) error {
	s.panics.Inc()
	s.log.ErrorContext(ctx, "gRPC handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal error")
}

// EndStreams ends all live streams with UNAVAILABLE, for good. Serve calls it.
func (s *Server) EndStreams() { s.stop.Do(func() { close(s.auth.stopping) }) }

// Serving is a gRPC server made with Options, and what to serve it on.
type Serving struct {
	Server   *grpc.Server
	Health   *health.Server // told NOT_SERVING first when the server stops
	Listener net.Listener
	Grace    time.Duration // for calls under way; 0: 10 s
	Stopping func()        // called before the streams are ended, e.g. to stop what feeds them; may be nil
}

// Serve serves until ctx is done, and then stops in order: health says NOT_SERVING, live
// streams end with UNAVAILABLE, calls under way finish or are cut off when the grace ends.
func (s *Server) Serve(ctx context.Context, v Serving) error {
	failed := make(chan error, 1)
	go func() { failed <- v.Server.Serve(v.Listener) }()
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serve gRPC on %s: %w", v.Listener.Addr(), err)
	case <-ctx.Done():
	}
	v.Health.Shutdown()
	grace := v.Grace
	if grace == 0 {
		grace = shutdownGrace
	}
	cut := time.AfterFunc(grace, v.Server.Stop) // before Stopping, which may wait for calls
	if v.Stopping != nil {
		v.Stopping()
	}
	s.EndStreams()
	v.Server.GracefulStop() // returns when all have finished, or Stop has cut them off
	cut.Stop()
	if err == nil {
		<-failed //nolint:errcheck // nil after a stop
	}
	return err
}

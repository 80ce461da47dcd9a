package link

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

// Server is the end that listens.
type Server struct {
	// Health is the server of gRPC health. Serve sets it to NOT_SERVING first when the server stops.
	Health *health.Server

	id                 *identity
	handshaker         *serverHandshaker
	limits             *limits
	metrics            *grpcprom.ServerMetrics
	log                *slog.Logger
	subscriberServices []string        // by full name
	serving            context.Context // it is done when the server stops
	endStreams         context.CancelFunc
	gracePeriod        time.Duration // for calls in progress when the server stops
}

// NewServer returns a server for the clients that a file lists. Its error names every file that is
// invalid or missing, including the client list.
func NewServer(cfg Config, clientsFile string) (*Server, error) {
	cfg = cfg.ofLink()
	id, errIdentity := newIdentity(cfg, x509.ExtKeyUsageServerAuth)
	s := &Server{
		Health: health.NewServer(), id: id, limits: newLimits(cfg), log: cfg.Logger, gracePeriod: shutdownGrace,
		subscriberServices: slices.Concat(anyRoleServices, cfg.SubscriberServices),
		metrics: grpcprom.NewServerMetrics(grpcprom.WithServerCounterOptions(
			grpcprom.WithNamespace("slicefeed"), grpcprom.WithSubsystem(cfg.Component))),
	}
	s.handshaker = newServerHandshaker(id, s.limits, cfg, clientsFile)
	s.serving, s.endStreams = context.WithCancel(context.Background())
	cfg.Registerer.MustRegister(s.metrics)
	if err := errors.Join(errIdentity, id.addFile("clients", s.limits.useClients, clientsFile)); err != nil {
		return nil, err
	}
	return s, nil
}

// options returns the options for grpc.NewServer. The interceptors for metrics and logs are outermost,
// so that they cover panics and denied calls. Rate limits come before the log, so that the calls that
// they reject are not logged one by one.
func (s *Server) options() []grpc.ServerOption {
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
		grpc.MaxHeaderListSize(maxHeaderBytes), grpc.MaxConcurrentStreams(s.limits.streams.calls),
		grpc.InTapHandle(admitCall), grpc.ForceServerCodecV2(newRequestCodec()),
		// Static windows: with dynamic ones, grpc buffers up to 16 MB from a fast sender.
		grpc.StaticStreamWindowSize(maxRequestBytes), grpc.StaticConnWindowSize(maxRequestBytes),
		grpc.ReadBufferSize(readBufferBytes),
		grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(s.metrics.UnaryServerInterceptor(),
			s.limits.limitCalls,
			logging.UnaryServerInterceptor(logs, finish, levels, peerSAN),
			recovery.UnaryServerInterceptor(recovered), s.authorizeUnary),
		grpc.ChainStreamInterceptor(s.metrics.StreamServerInterceptor(),
			s.limits.limitStreams,
			logging.StreamServerInterceptor(logs, finish, levels, peerSAN),
			recovery.StreamServerInterceptor(recovered), s.authorizeStream),
	}
}

func (s *Server) recoverPanic(ctx context.Context, p any) error {
	s.log.ErrorContext(ctx, "gRPC handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal error")
}

// Service is what a Server serves.
type Service interface {
	Register(to grpc.ServiceRegistrar)
	Run(ctx context.Context) error // until ctx is done
	Stop()                         // ends its streams, and may wait for calls
}

// Serve runs a service, and serves it with gRPC health and reflection, until ctx is done. Meanwhile it reloads changed
// files, including the client list. Then it stops in
// this order: health reports NOT_SERVING, live streams end with UNAVAILABLE, and calls in progress finish or
// are canceled when the grace period ends.
func (s *Server) Serve(ctx context.Context, on net.Listener, service Service) error {
	server := grpc.NewServer(s.options()...)
	service.Register(server)
	healthpb.RegisterHealthServer(server, s.Health)
	reflection.Register(server)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.id.run(ctx) })
	g.Go(func() error { return service.Run(ctx) })
	g.Go(func() error {
		// ErrServerStopped: ctx was done before it began.
		if err := server.Serve(on); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve gRPC on %s: %w", on.Addr(), err)
		}
		return nil // after a stop
	})
	g.Go(func() error {
		<-ctx.Done()
		s.Health.Shutdown()
		forceStop := time.AfterFunc(s.gracePeriod, server.Stop) // starts before Stop, which may wait for calls
		defer forceStop.Stop()
		service.Stop()
		s.endStreams()
		server.GracefulStop() // returns when all calls have finished, or Stop has canceled them
		return nil
	})
	return g.Wait()
}

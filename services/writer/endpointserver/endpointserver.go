// Package endpointserver implements the writer's gRPC services: it streams to each client the endpoints
// that it requests, and explains them to operators. It guarantees what slicefeed.writer.v1 requires of
// a server. It does not decide about endpoints, nor which clients may call which service: package link
// does.
package endpointserver

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/page"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
)

// Config is what a server needs. Streams has a default, everything else is required.
type Config struct {
	Store    *endpoints.Store
	Identify func(context.Context) (name string, err error) // of the caller; the error is sent to the client
	Health   *health.Server                                 // SERVING from the first synced state on
	Metrics  *stream.Metrics

	Streams int // concurrent streams of all clients of one name; 0: 64
}

// Server implements WriterService and WriterOperatorService.
type Server struct {
	writerv1.UnimplementedWriterServiceServer
	writerv1.UnimplementedWriterOperatorServiceServer

	cfg     Config
	streams *stream.Streams
}

// New returns the service. It is NOT_SERVING until its store is synced.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, streams: stream.New(stream.Config{
		Service: writerv1.WriterService_ServiceDesc.ServiceName,
		Health:  cfg.Health, Metrics: cfg.Metrics, MaxPerClient: cfg.Streams,
	})}
}

// Run sets the health status to SERVING once the store is synced, and ends all streams when ctx is
// done.
func (s *Server) Run(ctx context.Context) error { return s.streams.Run(ctx, s.cfg.Store.SyncState) }

// Stop sets NOT_SERVING, ends all streams with UNAVAILABLE and waits for them (rule R11). New ones are
// rejected from then on. It may be called more than once.
func (s *Server) Stop() { s.streams.Stop() }

// Register registers both services.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	writerv1.RegisterWriterServiceServer(to, s)
	writerv1.RegisterWriterOperatorServiceServer(to, s)
}

// RegisterLocalOperator registers WriterOperatorService for a listener that only operators reach, whose callers need no
// certificate.
func RegisterLocalOperator(to grpc.ServiceRegistrar, store *endpoints.Store) {
	anyone := func(context.Context) (string, error) { return "local operator", nil }
	writerv1.RegisterWriterOperatorServiceServer(to, &Server{cfg: Config{Store: store, Identify: anyone}})
}

// ListTargets returns a page of the selected targets.
func (s *Server) ListTargets(ctx context.Context, req *writerv1.ListTargetsRequest) (*writerv1.ListTargetsResponse, error) {
	writerStatus, targets, next, err := listPage(ctx, s, req, encodeSummary)
	if err != nil {
		return nil, err
	}
	return &writerv1.ListTargetsResponse{Status: writerStatus, Targets: targets, NextPageToken: next}, nil
}

// ListTargetDetails returns a page of the selected targets with what only operators may see.
func (s *Server) ListTargetDetails(
	ctx context.Context,
	req *writerv1.ListTargetDetailsRequest,
) (*writerv1.ListTargetDetailsResponse, error) {
	now := time.Now()
	writerStatus, targets, next, err := listPage(
		ctx,
		s,
		req,
		func(l endpoints.Summary) *writerv1.TargetDetails { return encodeDetails(l, now) },
	)
	if err != nil {
		return nil, err
	}
	return &writerv1.ListTargetDetailsResponse{Status: writerStatus, Targets: targets, NextPageToken: next}, nil
}

type listRequest interface {
	page.Request
	GetServices() []*writerv1.ServiceSelector
}

func listPage[W proto.Message](
	ctx context.Context,
	s *Server,
	req listRequest,
	encode func(endpoints.Summary) W,
) (_ *writerv1.WriterStatus, targets []W, next string, err error) {
	if _, err := s.cfg.Identify(ctx); err != nil {
		return nil, nil, "", err
	}
	filter, err := parseSelectors(req.GetServices())
	if err != nil {
		return nil, nil, "", err
	}
	summaries, storeStatus := s.cfg.Store.List(filter)
	targets, next, err = page.Cut(req, summaries, summaryKey, encode)
	return encodeStatus(storeStatus), targets, next, err
}

// summaryKey is a key by which summaries are sorted: no name has a zero byte.
func summaryKey(l endpoints.Summary) string { return l.Namespace + "\x00" + l.Service }

// ExplainEndpoint explains why an address is or is not an endpoint.
func (s *Server) ExplainEndpoint(ctx context.Context, req *writerv1.ExplainEndpointRequest) (*writerv1.ExplainEndpointResponse, error) {
	if _, err := s.cfg.Identify(ctx); err != nil {
		return nil, err
	}
	service, address, err := parseExplainRequest(req)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	e, known := s.cfg.Store.Explain(service, address, now)
	if !known {
		return nil, status.Errorf(
			codes.NotFound,
			"%s/%s is not a target of this writer; check the class label of the Service, and that its namespace is watched",
			service.Namespace,
			service.Service,
		)
	}
	return encodeExplanation(&e, now), nil
}

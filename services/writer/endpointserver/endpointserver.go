// Package endpointserver implements the writer's gRPC service: it streams to each client the endpoints
// that it requests. It guarantees what slicefeed.writer.v1 requires of
// a server. It does not decide about endpoints, nor which clients may call which service: package link
// does.
package endpointserver

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

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
	Report   writerv1.WriterReportServiceServer

	Streams int // concurrent streams of all clients of one name; 0: 64
}

// Server implements WriterService.
type Server struct {
	writerv1.UnimplementedWriterServiceServer

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

// Register registers the service, and that of the reports.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	writerv1.RegisterWriterServiceServer(to, s)
	writerv1.RegisterWriterReportServiceServer(to, s.cfg.Report)
}

// ListTargets returns a page of the selected targets.
func (s *Server) ListTargets(ctx context.Context, req *writerv1.ListTargetsRequest) (*writerv1.ListTargetsResponse, error) {
	if _, err := s.cfg.Identify(ctx); err != nil {
		return nil, err
	}
	filter, err := parseSelectors(req.GetServices())
	if err != nil {
		return nil, err
	}
	summaries, storeStatus := s.cfg.Store.List(filter)
	targets, next, err := page.Cut(req, summaries, summaryKey, encodeSummary)
	if err != nil {
		return nil, err
	}
	return &writerv1.ListTargetsResponse{Status: encodeStatus(storeStatus), Targets: targets, NextPageToken: next}, nil
}

// summaryKey is a key by which summaries are sorted: no name has a zero byte.
func summaryKey(l endpoints.Summary) string { return l.Namespace + "\x00" + l.Service }

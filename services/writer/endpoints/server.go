package endpoints

import (
	"context"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/page"
	"github.com/slicefeed/slicefeed/services/internal/stream"
)

// ServerConfig is what a server needs. Streams has a default, everything else is required.
type ServerConfig struct {
	Store    *Store
	Identify func(context.Context) (name string, err error) // of the caller; the error is sent to the client
	Health   *health.Server                                 // SERVING from the first synced state on
	Metrics  *stream.Metrics
	Report   writerv1.WriterReportServiceServer

	Streams int // concurrent streams of all clients of one name; 0: 64
}

// Server implements WriterService.
type Server struct {
	writerv1.UnimplementedWriterServiceServer

	cfg     ServerConfig
	streams *stream.Streams
}

// NewServer returns the service. It is NOT_SERVING until its store is synced.
func NewServer(cfg ServerConfig) *Server {
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

// NewMetrics registers the metrics of a server for this store.
func NewMetrics(reg prometheus.Registerer, store *Store) *stream.Metrics {
	return stream.NewMetrics(reg, "writer", "WatchEndpoints", store.Revision)
}

// WatchEndpoints streams the selected entries.
func (s *Server) WatchEndpoints(req *writerv1.WatchEndpointsRequest, to grpc.ServerStreamingServer[writerv1.WatchEndpointsResponse]) error {
	client, err := s.cfg.Identify(to.Context())
	if err != nil {
		return err
	}
	r, err := s.newReader(req)
	if err != nil {
		return err
	}
	release, err := s.streams.Admit(client)
	if err != nil {
		return err
	}
	defer release()
	return stream.Serve(s.streams, to, r)
}

type reader = stream.Reader[*writerv1.Entry, Status, writerv1.WatchEndpointsResponse]

// newReader returns the state of a stream for a request. An error is for the client.
func (s *Server) newReader(req *writerv1.WatchEndpointsRequest) (*reader, error) {
	selection, err := parseSelectors(req.GetServices())
	if err != nil {
		return nil, err
	}
	from, err := stream.ResumePosition(req.GetCursor(), req.GetDigest())
	if err != nil {
		return nil, err
	}
	return s.cfg.Store.Feed(req.GetGroupByPort()).NewReader(from, selection, stream.HeartbeatInterval), nil
}

// parseSelectors returns the selection of the services of a request. An error is for the client.
func parseSelectors(selectors []*writerv1.ServiceSelector) (*stream.Selection, error) {
	if n := len(selectors); n > maxSelectors {
		return nil, status.Errorf(codes.InvalidArgument, "%d services, want at most %d; an empty list selects all", n, maxSelectors)
	}
	names := make([]ServiceName, 0, len(selectors))
	for i, s := range selectors {
		if !isName(s.GetNamespace(), maxNameLength) || s.GetService() != "" && !isName(s.GetService(), maxServiceLength) {
			return nil, status.Errorf(
				codes.InvalidArgument,
				"services[%d]: namespace and service have %d and %d bytes, want 1 to %d and at most %d",
				i,
				len(s.GetNamespace()),
				len(s.GetService()),
				maxNameLength,
				maxServiceLength,
			)
		}
		names = append(names, ServiceName{Namespace: s.GetNamespace(), Service: s.GetService()})
	}
	return SelectServices(names), nil
}

func isName(name string, limit int) bool {
	return name != "" && len(name) <= limit && utf8.ValidString(name)
}

// ListTargets returns a page of the selected targets.
func (s *Server) ListTargets(ctx context.Context, req *writerv1.ListTargetsRequest) (*writerv1.ListTargetsResponse, error) {
	if _, err := s.cfg.Identify(ctx); err != nil {
		return nil, err
	}
	selection, err := parseSelectors(req.GetServices())
	if err != nil {
		return nil, err
	}
	summaries, storeStatus := s.cfg.Store.List(selection)
	targets, next, err := page.Cut(req, summaries, summaryKey, encodeSummary)
	if err != nil {
		return nil, err
	}
	return &writerv1.ListTargetsResponse{Status: encodeStatus(storeStatus, selection), Targets: targets, NextPageToken: next}, nil
}

// summaryKey is a key by which summaries are sorted: no name has a zero byte.
func summaryKey(l Summary) string { return l.Namespace + "\x00" + l.Service }

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
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/page"
	"github.com/slicefeed/slicefeed/services/internal/stream"
)

// Client is the caller of a call, and what it may see.
type Client = link.Grant

// ServerConfig is what a server needs. MaxStreamsPerClient has a default, everything else is required.
type ServerConfig struct {
	Store      *Store
	Identify   func(context.Context) (Client, error) // the caller; the error is for it
	Health     *health.Server                        // SERVING from the first synced state on
	Registerer prometheus.Registerer
	Report     writerv1.WriterReportServiceServer

	MaxStreamsPerClient int // of all clients of one name; 0: 64
}

// Server implements WriterService.
type Server struct {
	writerv1.UnimplementedWriterServiceServer
	*stream.Streams

	cfg ServerConfig
}

// NewServer returns the service. It is NOT_SERVING until its store is synced.
func NewServer(cfg ServerConfig) *Server {
	return &Server{cfg: cfg, Streams: stream.New(stream.Config{
		Component: "writer", Service: writerv1.WriterService_ServiceDesc.ServiceName, Method: "WatchEndpoints",
		Ready: cfg.Store.SyncState, Revision: cfg.Store.Revision, Health: cfg.Health, Registerer: cfg.Registerer,
		MaxPerClient: cfg.MaxStreamsPerClient,
	})}
}

// Register registers the service, and that of the reports.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	writerv1.RegisterWriterServiceServer(to, s)
	writerv1.RegisterWriterReportServiceServer(to, s.cfg.Report)
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
	release, err := s.Admit(string(client.SAN))
	if err != nil {
		return err
	}
	defer release()
	return stream.Serve(s.Streams, to, r)
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
	views, storeStatus := s.cfg.Store.Views(selection)
	targets, next, err := page.Cut(req, views, viewKey, encodeView)
	if err != nil {
		return nil, err
	}
	return &writerv1.ListTargetsResponse{Status: encodeStatus(storeStatus, selection), Targets: targets, NextPageToken: next}, nil
}

// viewKey is a key by which views are sorted: no name has a zero byte.
func viewKey(v View) string { return v.Namespace + "\x00" + v.Service }

// Package endpointserver implements the writer's gRPC service: it streams to each client the endpoints
// that it requests, and explains them to operators. It guarantees what slicefeed.writer.v1 requires of
// a server. It does not decide about endpoints or permissions: both are passed in.
package endpointserver

import (
	"context"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
)

// Client identifies a caller.
type Client struct {
	Name     string // its SAN; streams are limited per name
	Operator bool   // may see guards and explanations
}

// Config is what a server needs. Streams has a default, everything else is required.
type Config struct {
	Store    *endpoints.Store
	Identify func(context.Context) (Client, error) // returns the caller; the error is sent to the client
	Health   *health.Server                        // SERVING from the first synced state on
	Metrics  *stream.Metrics

	Streams int // concurrent streams per client; 0: 64
}

// Server implements the service.
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

// ListTargets returns the selected targets, and to operators their guards.
func (s *Server) ListTargets(ctx context.Context, req *writerv1.ListTargetsRequest) (*writerv1.ListTargetsResponse, error) {
	if err := req.Validate(); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	client, err := s.cfg.Identify(ctx)
	if err != nil {
		return nil, err
	}
	summaries, storeStatus := s.cfg.Store.List(newFilter(req.GetServices()))
	list := &writerv1.ListTargetsResponse{Status: encodeStatus(storeStatus)}
	now := time.Now()
	for i := range summaries {
		t := encodeSummary(&summaries[i], now)
		if !client.Operator {
			t.Sources, t.Guards, t.NextDecisionIn = nil, nil, nil
		}
		list.Targets = append(list.Targets, t)
	}
	return list, nil
}

// ExplainEndpoint explains to operators why an address is or is not an endpoint.
func (s *Server) ExplainEndpoint(ctx context.Context, req *writerv1.ExplainEndpointRequest) (*writerv1.ExplainEndpointResponse, error) {
	if err := req.Validate(); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	client, err := s.cfg.Identify(ctx)
	if err != nil {
		return nil, err
	}
	if !client.Operator {
		return nil, status.Error(codes.PermissionDenied, "explanations require role operator")
	}
	of := endpoints.ServiceName{Namespace: req.GetNamespace(), Service: req.GetService()}
	e, known := s.cfg.Store.Explain(of, netip.MustParseAddr(req.GetAddress()).Unmap()) // it has been validated
	if !known {
		return nil, status.Errorf(codes.NotFound, "%s/%s is not a target of this writer; check the class label of the Service, and that its namespace is watched", of.Namespace, of.Service)
	}
	return encodeExplanation(&e, time.Now()), nil
}

// Package endpointserver is the writer's gRPC service: it tells each client the endpoints that
// it asks for, and operators why they are as they are. It promises what slicefeed.writer.v1 says
// of a server. It refuses to know how endpoints are decided on, and who is allowed: both
// are handed in.
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

// Client is who calls.
type Client struct {
	Name     string // its SAN; streams are counted by it
	Operator bool   // may see why, and what is held back
}

// Config is what a server needs. Streams has a default, the rest is mandatory.
type Config struct {
	Store    *endpoints.Store
	Identify func(context.Context) (Client, error) // who calls; the error is told to the client
	Health   *health.Server                        // told SERVING from the first synced state on
	Metrics  *stream.Metrics

	Streams int // of one client at a time; 0: 64
}

// Server is the service.
type Server struct {
	writerv1.UnimplementedWriterServiceServer

	cfg     Config
	streams *stream.Streams
}

// New returns the service. Until its board is synced it is NOT_SERVING.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, streams: stream.New(stream.Config{
		Service: writerv1.WriterService_ServiceDesc.ServiceName,
		Health:  cfg.Health, Metrics: cfg.Metrics, MaxPerClient: cfg.Streams,
	})}
}

// Run tells health when there is something to tell, and ends all streams when ctx is done.
func (s *Server) Run(ctx context.Context) error { return s.streams.Run(ctx, s.cfg.Store.SyncState) }

// Stop reports NOT_SERVING, ends all streams with UNAVAILABLE and waits for them (rule R11). New
// ones are refused from then on. It may be called more than once.
func (s *Server) Stop() { s.streams.Stop() }

// ListTargets returns the targets selected, and to operators what is held back.
func (s *Server) ListTargets(ctx context.Context, req *writerv1.ListTargetsRequest) (*writerv1.ListTargetsResponse, error) {
	if err := req.Validate(); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	client, err := s.cfg.Identify(ctx)
	if err != nil {
		return nil, err
	}
	summaries, is := s.cfg.Store.List(newFilter(req.GetServices()))
	list := &writerv1.ListTargetsResponse{Status: encodeStatus(is)}
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

// ExplainEndpoint says to operators why an address is, or is not, an endpoint.
func (s *Server) ExplainEndpoint(ctx context.Context, req *writerv1.ExplainEndpointRequest) (*writerv1.ExplainEndpointResponse, error) {
	if err := req.Validate(); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	client, err := s.cfg.Identify(ctx)
	if err != nil {
		return nil, err
	}
	if !client.Operator {
		return nil, status.Error(codes.PermissionDenied, "explanations are for clients with the role of operator")
	}
	of := endpoints.ServiceName{Namespace: req.GetNamespace(), Service: req.GetService()}
	e, known := s.cfg.Store.Explain(of, netip.MustParseAddr(req.GetAddress()).Unmap()) // it has been validated
	if !known {
		return nil, status.Errorf(codes.NotFound, "%s/%s is no target of this writer: does the Service bear its class, and is its namespace watched?", of.Namespace, of.Service)
	}
	return encodeExplanation(&e, time.Now()), nil
}

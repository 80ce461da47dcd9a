package link

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
)

// The errors of calls that are not authorized, or no longer. None reveals which clients are listed.
var (
	errDenied             = status.Error(codes.PermissionDenied, "client is not allowed")
	errPermissionsChanged = status.Error(codes.Unavailable, "client permissions changed; reconnect")
	errStopping           = status.Error(codes.Unavailable, "server is shutting down")
	errOperatorsOnly      = status.Error(codes.PermissionDenied, "the service requires role operator")
)

// anyRoleServices are those that clients of each role may call, of all servers.
var anyRoleServices = []string{
	healthpb.Health_ServiceDesc.ServiceName,
	reflectionpb.ServerReflection_ServiceDesc.ServiceName,
	reflectionalphapb.ServerReflection_ServiceDesc.ServiceName, // clients may use the old version
}

// authorize returns the permission of the caller of a method, unless it may not call it. The handshake has already
// checked that the client is listed, but the client list may have changed since. It covers every service, including health
// and reflection.
func (s *Server) authorize(ctx context.Context, fullMethod string) (*permission, error) {
	p := connectionFromContext(ctx).permission.Load()
	if !p.listed {
		return nil, errDenied
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	if p.Role != RoleOperator && !slices.Contains(s.subscriberServices, service) {
		return nil, errOperatorsOnly
	}
	return p, nil
}

func (s *Server) authorizeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	p, err := s.authorize(ctx, info.FullMethod)
	if err == nil {
		err = checkDecoded(req)
	}
	if err != nil {
		return nil, err
	}
	return handler(context.WithValue(ctx, grantKey{}, p.Grant), req)
}

// authorizeStream also ends a live stream when the permission changes or the server stops.
func (s *Server) authorizeStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancelCause(ss.Context())
	defer cancel(nil)
	p, err := s.authorize(ctx, info.FullMethod)
	if err != nil {
		return err
	}
	defer context.AfterFunc(s.serving, func() { cancel(errStopping) })()
	defer context.AfterFunc(p.current, func() { cancel(context.Cause(p.current)) })()
	stream := &authorizedStream{ServerStream: ss, ctx: context.WithValue(ctx, grantKey{}, p.Grant)}
	err = handler(srv, stream)
	return cmp.Or(stream.endCause(), err)
}

// authorizedStream ends for its handler when the server ends it: its context is canceled, and a
// handler that does not watch the context gets an error from its next send or receive.
type authorizedStream struct {
	grpc.ServerStream

	ctx context.Context
}

func (s *authorizedStream) Context() context.Context { return s.ctx }

// endCause returns the error with which the server ended the stream, or nil.
func (s *authorizedStream) endCause() error {
	cause := context.Cause(s.ctx)
	if _, byServer := status.FromError(cause); byServer {
		return cause
	}
	return nil
}

func (s *authorizedStream) SendMsg(m any) error {
	if err := s.endCause(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func (s *authorizedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return cmp.Or(s.endCause(), checkDecoded(m))
}

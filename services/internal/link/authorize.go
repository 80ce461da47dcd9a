package link

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	"github.com/slicefeed/slicefeed/services/internal/clientlist"
)

type grantKey struct{}

// Identify returns the caller's grant. Its error is for the caller.
func Identify(ctx context.Context) (clientlist.Grant, error) {
	if g, ok := ctx.Value(grantKey{}).(clientlist.Grant); ok {
		return g, nil
	}
	return clientlist.Grant{}, errDenied
}

// The errors of calls that are not authorized, or no longer. None reveals which clients are listed.
var (
	errDenied             = status.Error(codes.PermissionDenied, "client is not allowed")
	errPermissionsChanged = status.Error(codes.Unavailable, "client permissions changed; reconnect")
	errStopping           = status.Error(codes.Unavailable, "server is shutting down")
	errNoCertificate      = status.Error(codes.Unauthenticated, "no client certificate")
	errOperatorsOnly      = status.Error(codes.PermissionDenied, "the service requires role operator")
)

// authorizer admits calls of listed clients, and ends live streams when the list changes or the server
// stops. It covers every service, including health and reflection. The handshake has already checked
// that the client is listed, but the client list may have changed since.
type authorizer struct {
	clients            *clientlist.List
	subscriberServices map[string]bool // by full name
	serving            context.Context // it is done when the server stops
	endStreams         context.CancelFunc
}

// newAuthorizer returns an authorizer that lets subscribers call these services, health and reflection.
func newAuthorizer(clients *clientlist.List, subscriberServices []string) *authorizer {
	a := &authorizer{clients: clients, subscriberServices: map[string]bool{
		healthpb.Health_ServiceDesc.ServiceName:                    true,
		reflectionpb.ServerReflection_ServiceDesc.ServiceName:      true,
		reflectionalphapb.ServerReflection_ServiceDesc.ServiceName: true, // clients may use the old version
	}}
	for _, service := range subscriberServices {
		a.subscriberServices[service] = true
	}
	a.serving, a.endStreams = context.WithCancel(context.Background())
	return a
}

// findGrant returns the grant of the caller of a method, unless it may not call it.
func (a *authorizer) findGrant(ctx context.Context, fullMethod string) (clientlist.Grant, error) {
	c := connectionFromContext(ctx)
	if c == nil {
		return clientlist.Grant{}, errNoCertificate
	}
	g, listed := c.grant()
	if !listed {
		return g, errDenied
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	if g.Role != clientlist.RoleOperator && !a.subscriberServices[service] {
		return g, errOperatorsOnly
	}
	return g, nil
}

func (a *authorizer) authorizeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	g, err := a.findGrant(ctx, info.FullMethod)
	if err == nil {
		err = checkDecoded(req)
	}
	if err != nil {
		return nil, err
	}
	return handler(context.WithValue(ctx, grantKey{}, g), req)
}

func (a *authorizer) authorizeStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancelCause(ss.Context())
	defer cancel(nil)
	g, err := a.findGrant(ctx, info.FullMethod)
	if err != nil {
		return err
	}
	defer context.AfterFunc(a.serving, func() { cancel(errStopping) })()
	defer context.AfterFunc(a.clients.Watch(g), func() {
		if _, listed := connectionFromContext(ctx).grant(); listed {
			cancel(errPermissionsChanged)
		} else {
			cancel(errDenied)
		}
	})()
	s := &authorizedStream{ServerStream: ss, ctx: context.WithValue(ctx, grantKey{}, g)}
	err = handler(srv, s)
	if cause := s.endCause(); cause != nil {
		return cause
	}
	return err
}

// authorizedStream ends for its handler when the authorizer ends it: its context is canceled, and a
// handler that does not watch the context gets an error from its next send or receive.
type authorizedStream struct {
	grpc.ServerStream

	ctx context.Context
}

func (s *authorizedStream) Context() context.Context { return s.ctx }

// endCause returns the error by which the authorizer ended the stream, or nil.
func (s *authorizedStream) endCause() error {
	if cause := context.Cause(
		s.ctx,
	); errors.Is(cause, errStopping) || errors.Is(cause, errPermissionsChanged) ||
		errors.Is(cause, errDenied) {
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

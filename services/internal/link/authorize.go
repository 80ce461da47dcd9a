package link

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
)

type grantKey struct{}

// WithGrant returns a context that carries the grant, as the server's interceptors do.
func WithGrant(ctx context.Context, g Grant) context.Context {
	return context.WithValue(ctx, grantKey{}, g)
}

// GrantFrom returns the caller's grant.
func GrantFrom(ctx context.Context) (Grant, bool) {
	g, ok := ctx.Value(grantKey{}).(Grant)
	return g, ok
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
	clients            *Clients
	subscriberServices map[string]bool // by full name
	stopping           chan struct{}
}

// newAuthorizer returns an authorizer that lets subscribers call these services, health and reflection.
func newAuthorizer(clients *Clients, subscriberServices []string) *authorizer {
	a := &authorizer{clients: clients, stopping: make(chan struct{}), subscriberServices: map[string]bool{
		healthpb.Health_ServiceDesc.ServiceName:                    true,
		reflectionpb.ServerReflection_ServiceDesc.ServiceName:      true,
		reflectionalphapb.ServerReflection_ServiceDesc.ServiceName: true, // clients may use the old version
	}}
	for _, service := range subscriberServices {
		a.subscriberServices[service] = true
	}
	return a
}

// findGrant returns the grant of the caller of a method, unless it may not call it.
func (a *authorizer) findGrant(ctx context.Context, fullMethod string) (Grant, error) {
	c := connectionFromContext(ctx)
	if c == nil {
		return Grant{}, errNoCertificate
	}
	e := c.currentEntry()
	if e == nil {
		return Grant{}, errDenied
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	if e.grant.Role != RoleOperator && !a.subscriberServices[service] {
		return Grant{}, errOperatorsOnly
	}
	return e.grant, nil
}

func (a *authorizer) authorizeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	g, err := a.findGrant(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return handler(WithGrant(ctx, g), req)
}

func (a *authorizer) authorizeStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancelCause(ss.Context())
	defer cancel(nil)
	g, err := a.findGrant(ctx, info.FullMethod)
	if err != nil {
		return err
	}
	changed, conn := a.clients.Watch(g), connectionFromContext(ctx)
	ctx = WithGrant(ctx, g)
	watcherDone := make(chan struct{})
	go func() {
		defer close(watcherDone)
		select {
		case <-ctx.Done():
		case <-a.stopping:
			cancel(errStopping)
		case <-changed:
			if conn.currentEntry() != nil {
				cancel(errPermissionsChanged)
			} else {
				cancel(errDenied)
			}
		}
	}()
	s := &revocableStream{ServerStream: ss, ctx: ctx}
	err = handler(srv, s)
	if cause := s.endCause(); cause != nil {
		err = cause
	}
	cancel(nil)
	<-watcherDone
	return err
}

// revocableStream ends for its handler when the authorizer ends it: its context is canceled, and a
// handler that does not watch the context gets an error from its next send or receive.
type revocableStream struct {
	grpc.ServerStream

	ctx context.Context
}

func (s *revocableStream) Context() context.Context { return s.ctx }

// endCause returns the error by which the authorizer ended the stream, or nil.
func (s *revocableStream) endCause() error {
	if cause := context.Cause(s.ctx); errors.Is(cause, errStopping) || errors.Is(cause, errPermissionsChanged) || errors.Is(cause, errDenied) {
		return cause
	}
	return nil
}

func (s *revocableStream) SendMsg(m any) error {
	if err := s.endCause(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func (s *revocableStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.endCause()
}

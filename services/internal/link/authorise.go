package link

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type grantKey struct{}

// WithGrant returns a context that carries the grant, as the server's interceptors do.
func WithGrant(ctx context.Context, g Grant) context.Context {
	return context.WithValue(ctx, grantKey{}, g)
}

// GrantFrom returns what the caller may do and see.
func GrantFrom(ctx context.Context) (Grant, bool) {
	g, ok := ctx.Value(grantKey{}).(Grant)
	return g, ok
}

// The ends that a live stream can come to. What a stranger learns is the same in each case:
// nothing about who is on the list.
var (
	errDenied             = status.Error(codes.PermissionDenied, "this client is not allowed")
	errPermissionsChanged = status.Error(codes.Unavailable, "what this client may see has changed, call again")
	errStopping           = status.Error(codes.Unavailable, "the server is shutting down")
	errNoCertificate      = status.Error(codes.Unauthenticated, "no client certificate")
)

// authorizer lets those on the list in, and live streams out when the list changes or the
// server stops. It covers every service, health and reflection included: that a client is listed was
// checked in the handshake, but the list may have changed since.
type authorizer struct {
	clients  *Clients
	stopping chan struct{}
}

// findGrant finds the caller's grant.
func (a *authorizer) findGrant(ctx context.Context) (Grant, error) {
	c := connectionFromContext(ctx)
	if c == nil {
		return Grant{}, errNoCertificate
	}
	if e := c.currentEntry(); e != nil {
		return e.grant, nil
	}
	return Grant{}, errDenied
}

func (a *authorizer) authorizeUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	g, err := a.findGrant(ctx)
	if err != nil {
		return nil, err
	}
	return handler(WithGrant(ctx, g), req)
}

func (a *authorizer) authorizeStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, end := context.WithCancelCause(ss.Context())
	defer end(nil)
	g, err := a.findGrant(ctx)
	if err != nil {
		return err
	}
	changed, conn := a.clients.Watch(g), connectionFromContext(ctx)
	ctx = WithGrant(ctx, g)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
		case <-a.stopping:
			end(errStopping)
		case <-changed:
			if conn.currentEntry() != nil {
				end(errPermissionsChanged)
			} else {
				end(errDenied)
			}
		}
	}()
	s := &revocableStream{ServerStream: ss, ctx: ctx}
	err = handler(srv, s)
	if over := s.endCause(); over != nil {
		err = over
	}
	end(nil)
	<-watched
	return err
}

// revocableStream ends for its handler when the authoriser ends it: its context is done, and
// a handler that waits for the peer instead cannot say or hear anything more.
type revocableStream struct {
	grpc.ServerStream

	ctx context.Context
}

func (s *revocableStream) Context() context.Context { return s.ctx }

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

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
	errDenied   = status.Error(codes.PermissionDenied, "this client is not allowed")
	errChanged  = status.Error(codes.Unavailable, "what this client may see has changed, call again")
	errStopping = status.Error(codes.Unavailable, "the server is shutting down")
	errNoPeer   = status.Error(codes.Unauthenticated, "no client certificate")
)

// authoriser lets those on the list in, and live streams out when the list changes or the
// server stops. It covers every service, health and reflection included: that a client is listed was
// checked in the handshake, but the list may have changed since.
type authoriser struct {
	clients  *Clients
	stopping chan struct{}
}

// admit finds the caller's grant.
func (a *authoriser) admit(ctx context.Context) (Grant, error) {
	c := connectionOf(ctx)
	if c == nil {
		return Grant{}, errNoPeer
	}
	if e := c.entry(); e != nil {
		return e.grant, nil
	}
	return Grant{}, errDenied
}

func (a *authoriser) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	g, err := a.admit(ctx)
	if err != nil {
		return nil, err
	}
	return handler(WithGrant(ctx, g), req)
}

func (a *authoriser) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, end := context.WithCancelCause(ss.Context())
	defer end(nil)
	g, err := a.admit(ctx)
	if err != nil {
		return err
	}
	changed, conn := a.clients.Follow(g), connectionOf(ctx)
	ctx = WithGrant(ctx, g)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
		case <-a.stopping:
			end(errStopping)
		case <-changed:
			if conn.entry() != nil {
				end(errChanged)
			} else {
				end(errDenied)
			}
		}
	}()
	s := &watchedStream{ServerStream: ss, ctx: ctx}
	err = handler(srv, s)
	if over := s.over(); over != nil {
		err = over
	}
	end(nil)
	<-watched
	return err
}

// watchedStream ends for its handler when the authoriser ends it: its context is done, and
// a handler that waits for the peer instead cannot say or hear anything more.
type watchedStream struct {
	grpc.ServerStream

	ctx context.Context
}

func (s *watchedStream) Context() context.Context { return s.ctx }

func (s *watchedStream) over() error {
	if cause := context.Cause(s.ctx); errors.Is(cause, errStopping) || errors.Is(cause, errChanged) || errors.Is(cause, errDenied) {
		return cause
	}
	return nil
}

func (s *watchedStream) SendMsg(m any) error {
	if err := s.over(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func (s *watchedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.over()
}

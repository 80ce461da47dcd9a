package link

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

type grantKey struct{}

// WithGrant returns a context that carries the grant, as the server's interceptors do.
func WithGrant(ctx context.Context, g Grant) context.Context {
	return context.WithValue(ctx, grantKey{}, g)
}

// GrantFrom returns what the caller may do and see. There is none in a call to gRPC health,
// which is open to every peer whose certificate is in order.
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
// server stops. It covers every service but health, reflection included.
type authoriser struct {
	clients  *Clients
	stopping chan struct{}
}

func open(method string) bool {
	return strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/")
}

// peerCertificates are those of the handshake; the leaf is first.
func peerCertificates(ctx context.Context) []*x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil
	}
	return info.State.PeerCertificates
}

// admit finds the caller's grant. Its certificate was verified in the handshake.
func (a *authoriser) admit(ctx context.Context, method string) (Grant, error) {
	certs := peerCertificates(ctx)
	if len(certs) == 0 {
		return Grant{}, errNoPeer
	}
	if open(method) {
		return Grant{}, nil
	}
	g, ok := a.clients.Lookup(certs)
	if !ok {
		return Grant{}, errDenied
	}
	return g, nil
}

func (a *authoriser) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	g, err := a.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	if !open(info.FullMethod) {
		ctx = WithGrant(ctx, g)
	}
	return handler(ctx, req)
}

func (a *authoriser) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, end := context.WithCancelCause(ss.Context())
	defer end(nil)
	g, err := a.admit(ctx, info.FullMethod)
	if err != nil {
		return err
	}
	var changed <-chan struct{} // never, for health
	if !open(info.FullMethod) {
		changed = a.clients.Follow(g)
		ctx = WithGrant(ctx, g)
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
		case <-a.stopping:
			end(errStopping)
		case <-changed:
			if _, still := a.clients.Lookup(peerCertificates(ctx)); still {
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

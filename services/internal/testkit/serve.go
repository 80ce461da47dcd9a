package testkit

import (
	"context"
	"net"
	"testing"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slicefeed/slicefeed/services/internal/link"
)

// Serve runs a service and serves it in memory while a test runs. dial returns another connection to it, whose windows
// do not grow.
func Serve(t *testing.T, service link.Service, test func(dial func() *grpc.ClientConn)) {
	listener, server := bufconn.Listen(1<<20), grpc.NewServer(grpc.WaitForHandlers(true))
	service.Register(server)
	var serving, running errgroup.Group
	serving.Go(func() error { return server.Serve(listener) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	running.Go(func() error { return service.Run(ctx) })
	var conns []*grpc.ClientConn
	test(func() *grpc.ClientConn {
		conn, err := grpc.NewClient("passthrough:///",
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithInitialWindowSize(1<<16), grpc.WithInitialConnWindowSize(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		return conn
	})
	cancel()
	if err := running.Wait(); err != nil {
		t.Errorf("Run: %v", err)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	server.Stop()
	_ = serving.Wait()
}

// WithClientName returns the context of a call of a client, which Identify finds; "unknown" is not a client.
func WithClientName(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "name", name)
}

// Identify returns the grant of the client of WithClientName.
func Identify(ctx context.Context) (link.Grant, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	name := append(md.Get("name"), "writer")[0]
	if name == "unknown" {
		return link.Grant{}, status.Error(codes.PermissionDenied, "client is not allowed")
	}
	return link.Grant{SAN: link.SAN(name)}, nil
}

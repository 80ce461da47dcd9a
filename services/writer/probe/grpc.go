package probe

import (
	"context"
	"errors"
	"net"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

const maxGRPCMessage = 1 << 10 // a response is one enum value

// dialOptions configure the client of each probe. It lives for one call, so it needs nothing that
// serves long connections: large buffers, growing windows, idling, a service config, retries.
//
// A client per call costs more than twice the CPU of a handwritten call over net/http's HTTP/2
// (docs/use/probes.md has the figures). In return the result comes from the library that backends and
// kubelets use.
var dialOptions = []grpc.DialOption{
	grpc.WithUserAgent(userAgent),
	grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	grpc.WithIdleTimeout(0),
	grpc.WithReadBufferSize(4 << 10), grpc.WithWriteBufferSize(1 << 10),
	grpc.WithStaticStreamWindowSize(64 << 10), grpc.WithStaticConnWindowSize(64 << 10),
	grpc.WithMaxHeaderListSize(maxHeaderBytes),
	grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxGRPCMessage)),
}

// checkGRPC is the probe of mode grpc: one call of grpc.health.v1 on a connection. closeConn closes
// the TCP connection below TLS.
func checkGRPC(ctx context.Context, conn net.Conn, closeConn func(), key Key) error {
	connCh := make(chan net.Conn, 1)
	connCh <- conn
	options := append(slices.Clone(dialOptions), grpc.WithTransportCredentials(presetCredentials{insecure.NewCredentials(), key.Spec.TLS}),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case conn := <-connCh:
				return conn, nil
			default: // a second connection would be a second probe
				return nil, errors.New("connection closed")
			}
		}))
	if key.Spec.Host != "" {
		options = append(options, grpc.WithAuthority(key.Spec.Host))
	}
	client, err := grpc.NewClient("passthrough:///"+key.HostPort(), options...)
	if err != nil {
		return errInvalidSpec
	}
	defer client.Close() //nolint:errcheck // it can only fail if already closed
	defer closeConn()    // runs first: the client would send GOAWAY and wait until it is written

	return healthError(healthv1.NewHealthClient(client).Check(ctx, &healthv1.HealthCheckRequest{Service: key.Spec.Service}))
}

// healthError converts the result of a health check to nil or the reason for the failure. Only the
// status code counts, because the message may have text of the backend. The code is the same whether
// the client first sees the end of the connection or the bytes before it, which depends on timing.
func healthError(response *healthv1.HealthCheckResponse, err error) error {
	switch code := status.Code(err); code {
	case codes.OK:
		if response.GetStatus() == healthv1.HealthCheckResponse_SERVING {
			return nil
		}
		return backendFailure("health is " + response.GetStatus().String())
	case codes.Unimplemented:
		return backendFailure("no grpc.health.v1.Health service (UNIMPLEMENTED)")
	case codes.NotFound:
		return backendFailure("service not known to the health service (NOT_FOUND)")
	case codes.DeadlineExceeded: // the backend knows the deadline, and may report it first
		return context.DeadlineExceeded
	default:
		if code > codes.Unauthenticated {
			code = codes.Unknown
		}
		return backendFailure(noValidResponse + " (gRPC status " + code.String() + ")")
	}
}

// presetCredentials are the credentials of a connection whose TLS handshake is done, or that has no TLS.
type presetCredentials struct {
	credentials.TransportCredentials

	tls bool
}

// Info makes the call use the scheme https over TLS.
func (c presetCredentials) Info() credentials.ProtocolInfo {
	if c.tls {
		return credentials.ProtocolInfo{SecurityProtocol: "tls"}
	}
	return c.TransportCredentials.Info()
}

// Clone implements credentials.TransportCredentials.
func (c presetCredentials) Clone() credentials.TransportCredentials {
	return presetCredentials{c.TransportCredentials.Clone(), c.tls}
}

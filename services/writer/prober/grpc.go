package prober

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

const maxGRPCMessage = 1 << 10 // an answer is a number

// dialOptions of each probe's client. It lives for one call, so it wants none of what makes a
// connection last: buffers for bulk, windows that grow, idling, a service config, retries.
//
// A client for each call costs more than twice the CPU of one call by hand over net/http's
// HTTP/2 (docs/probes.md has the figures): that is what it costs to be told the truth by
// the library that backends and kubelets use.
var dialOptions = []grpc.DialOption{
	grpc.WithUserAgent(userAgent),
	grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	grpc.WithIdleTimeout(0),
	grpc.WithReadBufferSize(4 << 10), grpc.WithWriteBufferSize(1 << 10),
	grpc.WithStaticStreamWindowSize(64 << 10), grpc.WithStaticConnWindowSize(64 << 10),
	grpc.WithMaxHeaderListSize(maxHeaderBytes),
	grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxGRPCMessage)),
}

// checkGRPC is the probe of the mode grpc: one call of grpc.health.v1 on a connection, which
// hangUp closes below TLS.
func checkGRPC(ctx context.Context, conn net.Conn, hangUp func(), key Key) error {
	only := make(chan net.Conn, 1)
	only <- conn
	options := append(slices.Clone(dialOptions), grpc.WithTransportCredentials(presetCredentials{insecure.NewCredentials(), key.Spec.TLS}),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case conn := <-only:
				return conn, nil
			default: // a second one would be another probe
				return nil, errors.New("the probe's only connection has ended")
			}
		}))
	if key.Spec.Host != "" {
		options = append(options, grpc.WithAuthority(key.Spec.Host))
	}
	client, err := grpc.NewClient("passthrough:///"+key.hostPort(), options...)
	if err != nil {
		return errInvalidSpec
	}
	defer client.Close() //nolint:errcheck // it can only have been closed already
	defer hangUp()       // first: the client would say goodbye, and wait to be heard

	return healthError(healthv1.NewHealthClient(client).Check(ctx, &healthv1.HealthCheckRequest{Service: key.Spec.Service}))
}

// healthError judges an answer of the health service, or what the client says that came instead.
// Its text may have the backend's in it, so only the code counts: it is the same for a
// connection that ends and for what was sent before the end, and which of the two the
// client sees first is a matter of timing.
func healthError(answer *healthv1.HealthCheckResponse, err error) error {
	switch code := status.Code(err); code {
	case codes.OK:
		if answer.GetStatus() == healthv1.HealthCheckResponse_SERVING {
			return nil
		}
		return backendFailure("health is " + answer.GetStatus().String())
	case codes.Unimplemented:
		return backendFailure("has no grpc.health.v1.Health service (UNIMPLEMENTED)")
	case codes.NotFound:
		return backendFailure("its health service does not know the service asked for (NOT_FOUND)")
	case codes.DeadlineExceeded: // the backend is told of ours, and may be the first to say so
		return context.DeadlineExceeded
	default:
		if code > codes.Unauthenticated {
			code = codes.Unknown
		}
		return backendFailure(noValidAnswer + " (gRPC status " + code.String() + ")")
	}
}

// presetCredentials are the credentials of a connection that has what it needs already.
type presetCredentials struct {
	credentials.TransportCredentials

	tls bool
}

// Info makes the call say https where that is true.
func (r presetCredentials) Info() credentials.ProtocolInfo {
	if r.tls {
		return credentials.ProtocolInfo{SecurityProtocol: "tls"}
	}
	return r.TransportCredentials.Info()
}

// Clone implements credentials.TransportCredentials.
func (r presetCredentials) Clone() credentials.TransportCredentials {
	return presetCredentials{r.TransportCredentials.Clone(), r.tls}
}

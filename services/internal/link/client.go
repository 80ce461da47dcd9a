package link

import (
	"context"
	"crypto/x509"
	"fmt"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
	"github.com/slicefeed/slicefeed/services/internal/identity"
)

// Client is the end that dials.
type Client struct {
	id      *identity.Identity
	creds   *identity.ClientCredentials
	metrics *grpcprom.ClientMetrics
	log     logging.Logger
}

// NewClient returns a client for the server of the given name. Its error names a file that is invalid
// or missing.
func NewClient(cfg Config, server certificate.SAN) (*Client, error) {
	if _, err := certificate.ParseSAN(string(server)); err != nil {
		return nil, fmt.Errorf("server name: %w", err)
	}
	cfg = cfg.ofLink()
	id, err := cfg.newIdentity(x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	c := &Client{
		id: id, creds: id.ClientCredentials(server), log: newCallLogger(cfg.Logger),
		metrics: grpcprom.NewClientMetrics(grpcprom.WithClientCounterOptions(
			grpcprom.WithNamespace("slicefeed"), grpcprom.WithSubsystem(cfg.Component))),
	}
	cfg.Registerer.MustRegister(c.metrics)
	return c, nil
}

// Run reloads changed files until ctx is done.
func (c *Client) Run(ctx context.Context) error { return c.id.Run(ctx) }

// HandshakeError returns the error of the last handshake, or nil if that succeeded. The errors of calls
// only have its text.
func (c *Client) HandshakeError() *identity.HandshakeError { return c.creds.LastError() }

// DialOptions returns the options for grpc.NewClient. The caller must validate received messages: no
// validating interceptor exists for messages that a client receives in a stream.
func (c *Client) DialOptions() []grpc.DialOption {
	finish := logging.WithLogOnEvents(logging.FinishCall)
	// The caller logs how its calls end. In an outage, one ends about every 2 s.
	levels := logging.WithLevels(func(codes.Code) logging.Level { return logging.LevelDebug })
	return []grpc.DialOption{
		grpc.WithTransportCredentials(c.creds),
		grpc.WithKeepaliveParams(clientKeepalive()),
		// The channel uses grpc's backoff. It has no effect for a subscriber, which never waits for it (rule R14): a stream
		// opens a new channel for each attempt, or shares one with other streams until that has failed.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponseBytes), grpc.MaxCallSendMsgSize(maxRequestBytes)),
		grpc.WithMaxHeaderListSize(maxHeaderBytes),
		// Static windows: to size dynamic ones, grpc sends a ping with each message.
		grpc.WithStaticStreamWindowSize(clientWindowBytes), grpc.WithStaticConnWindowSize(clientWindowBytes),
		grpc.WithDisableServiceConfig(), // DNS must not configure the channel
		grpc.WithChainUnaryInterceptor(
			c.metrics.UnaryClientInterceptor(), logging.UnaryClientInterceptor(c.log, finish, levels)),
		grpc.WithChainStreamInterceptor(
			c.metrics.StreamClientInterceptor(), logging.StreamClientInterceptor(c.log, finish, levels)),
	}
}

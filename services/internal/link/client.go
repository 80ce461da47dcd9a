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
	"google.golang.org/grpc/credentials"
)

// Client is the end that dials.
type Client struct {
	creds    credentials.TransportCredentials
	reloader *reloader
	metrics  *grpcprom.ClientMetrics
	log      logging.Logger
}

// NewClient makes the end that dials the server of the given name. A bad or missing file
// is an error that names it.
func NewClient(cfg Config, server SAN) (*Client, error) {
	if _, err := ParseSAN(string(server)); err != nil {
		return nil, fmt.Errorf("name of the server: %w", err)
	}
	r := newReloader(&cfg)
	id, err := newIdentity(&cfg, x509.ExtKeyUsageClientAuth, r)
	if err != nil {
		return nil, err
	}
	creds, err := id.clientCredentials(server)
	if err != nil {
		return nil, fmt.Errorf("client credentials: %w", err)
	}
	c := &Client{
		creds: creds, reloader: r, log: newCallLogger(cfg.Logger.With("link", cfg.Name)),
		metrics: grpcprom.NewClientMetrics(grpcprom.WithClientCounterOptions(
			grpcprom.WithNamespace("slicefeed"), grpcprom.WithSubsystem(cfg.Component))),
	}
	cfg.linkRegisterer().MustRegister(c.metrics)
	return c, nil
}

// Run keeps the files fresh until ctx is done.
func (c *Client) Run(ctx context.Context) error { return c.reloader.run(ctx) }

// DialOptions are those for grpc.NewClient. Received messages are the caller's to check:
// there is no validating interceptor for what a client receives in a stream.
func (c *Client) DialOptions() []grpc.DialOption {
	finish := logging.WithLogOnEvents(logging.FinishCall)
	// The caller logs how its calls end, and in an outage one ends every 2 s or so.
	levels := logging.WithLevels(func(codes.Code) logging.Level { return logging.LevelDebug })
	return []grpc.DialOption{
		grpc.WithTransportCredentials(c.creds),
		grpc.WithKeepaliveParams(clientKeepalive()),
		// The channel's backoff is grpc's own. It plays no part where each attempt has its own channel, as
		// at a subscriber (rule R14).
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponseBytes), grpc.MaxCallSendMsgSize(maxRequestBytes)),
		grpc.WithMaxHeaderListSize(maxHeaderBytes),
		// Windows that do not grow: to learn how far they may, grpc would send a ping with each message.
		grpc.WithStaticStreamWindowSize(clientWindowBytes), grpc.WithStaticConnWindowSize(clientWindowBytes),
		grpc.WithDisableServiceConfig(), // what DNS says must not steer the channel
		grpc.WithChainUnaryInterceptor(
			c.metrics.UnaryClientInterceptor(), logging.UnaryClientInterceptor(c.log, finish, levels)),
		grpc.WithChainStreamInterceptor(
			c.metrics.StreamClientInterceptor(), logging.StreamClientInterceptor(c.log, finish, levels)),
	}
}

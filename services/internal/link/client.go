package link

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
)

// Client is the end that dials.
type Client struct {
	address string
	id      *identity
	creds   *clientCredentials
}

// NewClient returns a client for the server of the given name at an address. It connects with the first call, but
// reports an invalid address, and each file that is invalid or missing, now.
func NewClient(cfg Config, address string, server SAN) (*Client, error) {
	if _, err := ParseSAN(string(server)); err != nil {
		return nil, fmt.Errorf("server name: %w", err)
	}
	id, err := newIdentity(cfg.ofLink(), x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	tls := id.tlsConfig(func(leaf *x509.Certificate) error {
		if !slices.Contains(sansOf(leaf), server) {
			return fmt.Errorf(
				"the server's certificate is for another name, want %q, got %s; check the server's name and address in the settings",
				server,
				DescribeCertificate(leaf),
			)
		}
		return nil
	})
	c := &Client{address, id, &clientCredentials{credentials.NewTLS(tls), id, new(atomic.Pointer[HandshakeError])}}
	conn, err := c.Dial()
	if err != nil {
		return nil, err
	}
	return c, conn.Close()
}

// Run reloads changed files until ctx is done.
func (c *Client) Run(ctx context.Context) error { return c.id.run(ctx) }

// HandshakeError returns why the last handshake failed, or nil if it succeeded or the network failed. The errors of
// calls only have its text.
func (c *Client) HandshakeError() *HandshakeError { return c.creds.lastError.Load() }

// Dial returns a connection to the server, which connects with the first call. The caller must validate received
// messages: no validating interceptor exists for messages that a client receives in a stream.
func (c *Client) Dial() (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(c.address,
		grpc.WithTransportCredentials(c.creds),
		grpc.WithKeepaliveParams(clientKeepalive()),
		// The channel uses grpc's backoff. It has no effect for a subscriber, which never waits for it (rule R14): a stream
		// opens a new channel for each attempt, or shares one with other streams until that has failed.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponseBytes), grpc.MaxCallSendMsgSize(maxRequestBytes)),
		grpc.WithMaxHeaderListSize(maxHeaderBytes),
		// Static windows: to size dynamic ones, grpc sends a ping with each message.
		grpc.WithStaticStreamWindowSize(clientWindowBytes), grpc.WithStaticConnWindowSize(clientWindowBytes),
		grpc.WithDisableServiceConfig()) // DNS must not configure the channel
	if err != nil {
		return nil, fmt.Errorf("server address %q: want host:port: %w", c.address, err)
	}
	return conn, nil
}

// clientCredentials keep the error of the last handshake, because grpc only passes on its text.
type clientCredentials struct {
	credentials.TransportCredentials

	id        *identity
	lastError *atomic.Pointer[HandshakeError]
}

// ClientHandshake connects to the server.
func (c *clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		err = explainHandshake(err)
		explained, _ := errors.AsType[*HandshakeError](err)
		c.lastError.Store(explained)
		return nil, nil, err
	}
	c.lastError.Store(nil)
	return &unconfirmedConn{Conn: conn, creds: c}, info, nil
}

// Clone returns credentials that share the last error.
func (c *clientCredentials) Clone() credentials.TransportCredentials {
	return &clientCredentials{c.TransportCredentials.Clone(), c.id, c.lastError}
}

// unconfirmedConn is a client's connection. With TLS 1.3, a client's handshake ends before the server
// verifies its certificate. If the server then rejects it, the connection ends before the server's first
// byte: with an alert, or without if the client wrote at the same time.
type unconfirmedConn struct {
	net.Conn

	creds     *clientCredentials
	confirmed atomic.Bool // the server has sent something
}

func (c *unconfirmedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.confirmed.Store(true)
	}
	return n, c.explainRejection(err)
}

func (c *unconfirmedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.explainRejection(err)
}

func (c *unconfirmedConn) explainRejection(err error) error {
	if err == nil || c.confirmed.Load() || errors.Is(err, net.ErrClosed) {
		return err
	}
	rejected := &HandshakeError{
		fmt.Errorf(
			"%w; the server rejected the certificate for %.200q; see the server's log: it must trust the CA of that certificate, and list its name",
			err,
			sansOf(c.creds.id.leaf.Load().Leaf),
		),
	}
	c.creds.lastError.Store(rejected)
	return rejected
}

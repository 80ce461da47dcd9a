package link

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// clientConnection is a connection of a listed client.
type clientConnection struct {
	net.Conn // the TLS connection

	limits      *limits
	names       []SAN // from the certificate
	permission  atomic.Pointer[permission]
	usage       *clientUsage // shared by all connections of the client
	excess      bool         // above MaxConns: all its calls are rejected
	streamCount atomic.Int32
}

// permission is what the client of a connection may do, until the list says something else.
type permission struct {
	Grant

	listed  bool
	current context.Context // its cause is the error for calls that began with an earlier permission
	end     context.CancelCauseFunc
}

func newPermission(g Grant, listed bool) *permission {
	p := &permission{Grant: g, listed: listed}
	p.current, p.end = context.WithCancelCause(context.Background())
	return p
}

// closeAfter leaves a connection whose calls are rejected open for a while, so that its client can read why.
func (c *clientConnection) closeAfter(d time.Duration) {
	time.AfterFunc(d, func() { c.Close() }) //nolint:errcheck // the connection is rejected
}

// Close also removes the connection from the client's usage.
func (c *clientConnection) Close() error {
	c.limits.removeConnection(c)
	return c.Conn.Close()
}

// peerInfo is the information about a peer that grpc attaches to the context of its calls.
type peerInfo struct {
	credentials.TLSInfo

	conn *clientConnection
}

// connectionFromContext returns the connection of a call, or nil if this package did not create it, which admitCall
// rejects.
func connectionFromContext(ctx context.Context) *clientConnection {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, _ := p.AuthInfo.(peerInfo)
	return info.conn
}

// maxReadBytes bounds a single read from a metered connection, so that the connections of a client share
// its byte rate evenly.
const maxReadBytes = 4 << 10

// maxHandshakeBytes bounds what a peer may send before it is identified: a client hello, certificates,
// and what its library sends without waiting. crypto/tls itself buffers messages of up to 256 KB, and
// parses all certificates of a message before it calls this package.
const maxHandshakeBytes = maxChainBytes + 8<<10

// meteredConn is a server's connection below TLS. Once the client is identified, it reads no faster than
// the client's byte rate: unread data only costs the sender. A limit on calls would act too late for
// HTTP/2 rapid reset (CVE-2023-44487), and a limit above TLS would not count records without data.
type meteredConn struct {
	net.Conn

	usage          *clientUsage    // nil during the handshake
	handshakeBytes int             // read during the handshake
	open           context.Context // canceled by Close
	cancel         context.CancelFunc
}

func newMeteredConn(raw net.Conn) *meteredConn {
	c := &meteredConn{Conn: raw}
	c.open, c.cancel = context.WithCancel(context.Background())
	return c
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), maxReadBytes)])
	if n == 0 {
		return n, err
	}
	if c.usage == nil {
		if c.handshakeBytes += n; c.handshakeBytes > maxHandshakeBytes {
			return 0, errHandshakeTooLong
		}
		return n, err
	}
	if c.usage.bytes.WaitN(c.open, n) != nil {
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *meteredConn) Close() error {
	c.cancel()
	return c.Conn.Close()
}

package link

import (
	"context"
	"crypto/x509"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// clientConnection is one of a listed client. Whose it is was resolved once, when its handshake was over:
// a certificate may have many names, and its calls may be many.
type clientConnection struct {
	net.Conn // TLS

	clients     *Clients
	names       []SAN // of the certificate
	usage       *clientUsage
	overLimit   bool // above the account's limit: all its calls are refused
	streamCount atomic.Int64

	cachedEntry atomic.Pointer[resolvedEntry]
}

// resolvedEntry is what the list said of a connection's client at one of its versions.
type resolvedEntry struct {
	version uint64
	entry   *clientEntry // nil: it is not listed
}

// currentEntry is the client's in the present list, nil if it is not listed.
func (c *clientConnection) currentEntry() *clientEntry {
	r := c.cachedEntry.Load()
	if version := c.clients.version.Load(); r == nil || r.version != version {
		r = &resolvedEntry{version: version, entry: c.clients.findEntry(c.names)}
		c.cachedEntry.Store(r)
	}
	return r.entry
}

// Close counts the connection out.
func (c *clientConnection) Close() error {
	c.usage.removeConnection(c)
	return c.Conn.Close()
}

// peerInfo is what grpc knows of a connection's peer.
type peerInfo struct {
	credentials.TLSInfo

	conn *clientConnection
}

// connectionFromContext is the connection that a call came by, nil if it is none of ours.
func connectionFromContext(ctx context.Context) *clientConnection {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(peerInfo)
	if !ok {
		return nil
	}
	return info.conn
}

func leafCertificate(info credentials.AuthInfo) *x509.Certificate {
	if tls, ok := info.(credentials.TLSInfo); ok && len(tls.State.PeerCertificates) > 0 {
		return tls.State.PeerCertificates[0]
	}
	return nil
}

// maxReadBytes is how much a metered connection reads at once, so that no connection of an account waits
// for long behind what the others have read.
const maxReadBytes = 4 << 10

// maxHandshakeBytes is how much a peer may send before it is known: a client hello, the certificates,
// and what its library sends on without waiting. crypto/tls takes a message of up to 256 KB, keeps
// what has come of it until it is whole, and parses all certificates in it before it asks us.
const maxHandshakeBytes = maxCertBytes + 8<<10

// meteredConn is a server's end below TLS. Once its account is known, it reads no faster than the
// account's budget of bytes: what has not been read costs only the sender. A limit on calls acts too
// late for HTTP/2's rapid reset (CVE-2023-44487), and one above TLS would not count records that hold
// no data.
type meteredConn struct {
	net.Conn

	usage          *clientUsage // nil during the handshake
	handshakeBytes int          // bytes that were read meanwhile

	closed chan struct{}
	once   sync.Once
}

func newMeteredConn(raw net.Conn) *meteredConn {
	return &meteredConn{Conn: raw, closed: make(chan struct{})}
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
	wait := c.usage.bytes.ReserveN(time.Now(), n).Delay()
	if wait == 0 {
		return n, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return n, err
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *meteredConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

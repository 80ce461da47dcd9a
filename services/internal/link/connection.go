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

// connection is one of a listed client. Whose it is was resolved once, when its handshake was over:
// a certificate may have many names, and its calls may be many.
type connection struct {
	net.Conn // TLS

	clients *Clients
	names   []SAN // of the certificate
	account *account
	excess  bool // above the account's limit: all its calls are refused
	streams atomic.Int64

	resolved atomic.Pointer[resolved]
}

// resolved is what the list said of a connection's client at one of its versions.
type resolved struct {
	version uint64
	entry   *entry // nil: it is not listed
}

// entry is the client's in the present list, nil if it is not listed.
func (c *connection) entry() *entry {
	r := c.resolved.Load()
	if version := c.clients.version.Load(); r == nil || r.version != version {
		r = &resolved{version: version, entry: c.clients.find(c.names)}
		c.resolved.Store(r)
	}
	return r.entry
}

// Close counts the connection out.
func (c *connection) Close() error {
	c.account.remove(c)
	return c.Conn.Close()
}

// peerInfo is what grpc knows of a connection's peer.
type peerInfo struct {
	credentials.TLSInfo

	conn *connection
}

// connectionOf is the connection that a call came by, nil if it is none of ours.
func connectionOf(ctx context.Context) *connection {
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

func leafOf(info credentials.AuthInfo) *x509.Certificate {
	if tls, ok := info.(credentials.TLSInfo); ok && len(tls.State.PeerCertificates) > 0 {
		return tls.State.PeerCertificates[0]
	}
	return nil
}

// maxRead is how much a metered connection reads at once, so that no connection of an account waits
// for long behind what the others have read.
const maxRead = 4 << 10

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

	account   *account // nil during the handshake
	handshake int      // bytes that were read meanwhile

	closed chan struct{}
	once   sync.Once
}

func newMeteredConn(raw net.Conn) *meteredConn {
	return &meteredConn{Conn: raw, closed: make(chan struct{})}
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), maxRead)])
	if n == 0 {
		return n, err
	}
	if c.account == nil {
		if c.handshake += n; c.handshake > maxHandshakeBytes {
			return 0, errLongHandshake
		}
		return n, err
	}
	wait := c.account.bytes.ReserveN(time.Now(), n).Delay()
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

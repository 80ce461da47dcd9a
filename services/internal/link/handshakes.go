package link

import (
	"container/list"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
)

// maxHandshakes is how many peers may be in the midst of their handshake. All of a
// thousand clients that come back at once fit, each of them costs some 15 KB.
const maxHandshakes = 1024

// handshakes are the server's credentials, with bounds. Anyone can knock, and often: so
// when there are too many unfinished handshakes, the oldest is cut off to make room. An
// honest one takes milliseconds and is not the oldest for long, while refusing the newest
// would let whoever merely holds connections lock everyone else out.
type handshakes struct {
	credentials.TransportCredentials

	id      *identity
	clients *Clients
	failed  prometheus.Counter
	limits  *limits
	seldom  rate.Sometimes
	most    int

	mu    sync.Mutex
	under list.List // net.Conn in the midst of a handshake, the oldest first
}

func newHandshakes(id *identity, clients *Clients, failed prometheus.Counter, l *limits) (*handshakes, error) {
	creds, err := id.serverCredentials()
	if err != nil {
		return nil, fmt.Errorf("server credentials: %w", err)
	}
	return &handshakes{
		TransportCredentials: creds, id: id, clients: clients, failed: failed, limits: l, most: roomFor(maxHandshakes),
		seldom: rate.Sometimes{First: 3, Interval: time.Second},
	}, nil
}

// ServerHandshake is called by grpc for each connection, with a deadline set on it.
func (h *handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.shake(raw)
	if err != nil {
		h.failed.Inc()
		err = clipped(h.id.refusal(err))
		h.seldom.Do(func() { h.limits.log.Warn("TLS handshake refused", "remote", raw.RemoteAddr().String(), "error", err) })
		return nil, nil, err
	}
	// Whose connection it is has been proven only now, so only now it can be counted.
	tls, _ := info.(credentials.TLSInfo)
	account := h.clients.account(tls.State.PeerCertificates)
	if !account.connect() {
		h.limits.refuse(limitConnections, "remote", raw.RemoteAddr().String())
		conn.Close() //nolint:errcheck // it is not wanted
		return nil, nil, errTooManyConns
	}
	return &countedConn{Conn: conn, leave: sync.OnceFunc(account.leave)}, info, nil
}

func (h *handshakes) shake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	place := h.begin(raw)
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err == nil {
		if err = spoken(info); err != nil {
			conn.Close() //nolint:errcheck // it is not wanted
		}
	}
	if !h.end(place) {
		if err == nil { // it came through all the same, on a connection that is closed by now
			conn.Close() //nolint:errcheck // as above
		}
		return nil, nil, errCutOff
	}
	return conn, info, err
}

func (h *handshakes) begin(raw net.Conn) *list.Element {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.under.Len() >= h.most {
		oldest := h.under.Remove(h.under.Front()).(net.Conn)
		h.limits.refuse(limitHandshakes, "remote", oldest.RemoteAddr().String())
		oldest.Close() //nolint:errcheck // its handshake ends with an error of its own
	}
	return h.under.PushBack(raw)
}

// end reports whether the handshake was left alone until it ended.
func (h *handshakes) end(place *list.Element) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.under.Len()
	h.under.Remove(place)
	return h.under.Len() < before
}

func (h *handshakes) unfinished() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.under.Len()
}

// countedConn is a connection that its client's account is told of.
type countedConn struct {
	net.Conn

	leave func()
}

func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

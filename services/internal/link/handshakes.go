package link

import (
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"

	"github.com/slicefeed/slicefeed/services/internal/eviction"
)

// maxHandshakes is how many peers may be in the midst of their handshake. All of a
// thousand clients that come back at once fit, each of them costs some 15 KB.
const maxHandshakes = 1024

// serverHandshaker are the server's credentials, with bounds. Anyone can knock, and often: so when there
// are too many unfinished handshakes, one of the source address with the most of them is cut off.
// The oldest of all would not do: at thousands a second it is a client's that is far away, whose
// handshake takes some round trips.
type serverHandshaker struct {
	credentials.TransportCredentials

	id         *identity
	clients    *Clients
	failures   prometheus.Counter
	limits     *limitRecorder
	logLimiter rate.Sometimes
	pending    *eviction.Set[net.Conn]
}

func newServerHandshaker(id *identity, clients *Clients, failed prometheus.Counter, l *limitRecorder) (*serverHandshaker, error) {
	creds, err := id.serverCredentials(clients)
	if err != nil {
		return nil, fmt.Errorf("server credentials: %w", err)
	}
	h := &serverHandshaker{
		TransportCredentials: creds, id: id, clients: clients, failures: failed, limits: l,
		logLimiter: rate.Sometimes{First: 3, Interval: time.Second},
	}
	h.setPendingLimit(capByOpenFiles(maxHandshakes))
	return h, nil
}

func (h *serverHandshaker) setPendingLimit(limit int) {
	h.pending = eviction.NewSet(limit, func(evicted net.Conn) {
		h.limits.recordRejection(limitHandshakes, "remote", evicted.RemoteAddr().String())
		evicted.Close() //nolint:errcheck // its handshake ends with an error of its own
	})
}

// ServerHandshake is called by grpc for each connection, with a deadline set on it.
func (h *serverHandshaker) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	metered := newMeteredConn(raw)
	conn, info, err := h.runHandshake(metered)
	if err != nil {
		h.failures.Inc()
		err = truncateError(h.id.explainHandshake(err))
		h.logLimiter.Do(func() { h.limits.log.Warn("TLS handshake refused", "remote", raw.RemoteAddr().String(), "error", err) })
		return nil, nil, err
	}
	// Whose connection it is has been proven only now, so only now it can be counted.
	c, err := h.admitConnection(conn, info)
	if err != nil {
		conn.Close() //nolint:errcheck // it is not wanted
		return nil, nil, err
	}
	metered.usage = c.usage
	tls, _ := info.(credentials.TLSInfo)
	return c, peerInfo{tls, c}, nil
}

// admitConnection finds whose a connection is, and counts it.
func (h *serverHandshaker) admitConnection(conn net.Conn, info credentials.AuthInfo) (*clientConnection, error) {
	leaf := leafCertificate(info)
	if leaf == nil {
		return nil, errNoCertificate
	}
	c := &clientConnection{Conn: conn, clients: h.clients, names: certSANs(leaf)}
	e := c.currentEntry()
	if e == nil { // it was taken off the list during the handshake
		return nil, errUnlisted
	}
	c.usage = e.usage
	room := c.usage.addConnection(c)
	if !room || c.overLimit {
		h.limits.recordRejection(limitConnections, "remote", conn.RemoteAddr().String(), "peer.san", string(e.grant.SAN))
	}
	if !room {
		return nil, errTooManyConns
	}
	if c.overLimit {
		time.AfterFunc(excessLifetime, func() { c.Close() }) //nolint:errcheck // it is not wanted
	}
	return c, nil
}

func (h *serverHandshaker) runHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	place := h.pending.Add(eviction.SourceAddr(raw.RemoteAddr()), raw)
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err == nil {
		if err = checkALPN(info); err != nil {
			conn.Close() //nolint:errcheck // it is not wanted
		}
	}
	if !place.Remove() {
		if err == nil { // it came through all the same, on a connection that is closed by now
			conn.Close() //nolint:errcheck // as above
		}
		return nil, nil, errEvicted
	}
	return conn, info, err
}

func (h *serverHandshaker) pendingCount() int { return h.pending.Len() }

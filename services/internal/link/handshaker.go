package link

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
	"github.com/slicefeed/slicefeed/services/internal/clientlist"
	"github.com/slicefeed/slicefeed/services/internal/eviction"
	"github.com/slicefeed/slicefeed/services/internal/identity"
)

// maxHandshakes is the number of concurrent TLS handshakes. It fits a thousand clients that reconnect at
// the same time; each costs about 15 KB.
const maxHandshakes = 1024

var (
	errUnlisted         = errors.New("client is not listed")
	errHandshakeTooLong = &identity.HandshakeError{
		Cause:  fmt.Errorf("handshake exceeds %d bytes", maxHandshakeBytes),
		Advice: "present only the certificate and its intermediates",
	}
	errEvicted = &identity.HandshakeError{
		Cause:  errors.New("too many unfinished handshakes, most of them from this address"),
		Advice: "check what connects from there",
	}
)

// serverHandshaker is the server's transport credentials with limits. When too many handshakes are
// unfinished, it ends the oldest handshake of the source address that has the most. Ending the oldest of
// all addresses was rejected: in a flood of thousands per second, that is the handshake of a distant
// client, which needs several round trips.
type serverHandshaker struct {
	credentials.TransportCredentials

	failures prometheus.Counter
	limits   *limits
	pending  *eviction.Set[net.Conn]
}

func newServerHandshaker(id *identity.Identity, clients *clientlist.List, l *limits, cfg Config) *serverHandshaker {
	h := &serverHandshaker{
		TransportCredentials: id.ServerCredentials(func(client *x509.Certificate) error {
			if _, listed := clients.Find(certificate.Names(client)); !listed {
				return &identity.HandshakeError{
					Cause: fmt.Errorf(
						"%w: %s",
						errUnlisted,
						certificate.Describe(client),
					),
					Advice: "add one of its names to " + clients.Path(),
				}
			}
			return nil
		}),
		failures: newCounter(cfg, "tls_handshake_errors_total", "Number of failed TLS handshakes."),
		limits:   l,
	}
	h.setPendingLimit(maxHandshakes)
	cfg.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: cfg.Component, Name: "tls_handshakes_unfinished",
		Help: "Number of unfinished TLS handshakes.",
	}, func() float64 { return float64(h.pending.Len()) }))
	return h
}

func (h *serverHandshaker) setPendingLimit(limit int) {
	h.pending = eviction.NewSet(limit, func(evicted net.Conn) {
		h.limits.recordRejection(limitHandshakes, "remote", evicted.RemoteAddr().String())
		evicted.Close() //nolint:errcheck // its handshake then fails with another error
	})
}

// ServerHandshake identifies the peer of a new connection. grpc has set a deadline on the connection.
func (h *serverHandshaker) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	metered := newMeteredConn(raw)
	conn, info, err := h.runHandshake(metered)
	if err != nil {
		h.failures.Inc()
		err = identity.ExplainHandshake(err)
		h.limits.log.Warn("TLS handshake failed", "remote", raw.RemoteAddr().String(), "error", err)
		return nil, nil, err
	}
	// Only now has the peer proven its identity, so only now can its connection be counted.
	c, err := h.admitConnection(conn, info.State.PeerCertificates[0])
	if err != nil {
		conn.Close() //nolint:errcheck // the connection is rejected
		return nil, nil, err
	}
	metered.usage = c.usage
	return c, peerInfo{info, c}, nil
}

// runHandshake returns a connection whose peer is verified and listed.
func (h *serverHandshaker) runHandshake(raw net.Conn) (net.Conn, credentials.TLSInfo, error) {
	slot := h.pending.Add(eviction.SourceAddr(raw.RemoteAddr()), raw)
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if !slot.Remove() {
		if err == nil { // the handshake succeeded on a connection that was closed since
			conn.Close() //nolint:errcheck // the connection is rejected
		}
		return nil, credentials.TLSInfo{}, errEvicted
	}
	tlsInfo, _ := info.(credentials.TLSInfo)
	return conn, tlsInfo, err
}

// admitConnection finds the client of a connection and counts the connection.
func (h *serverHandshaker) admitConnection(conn net.Conn, client *x509.Certificate) (*clientConnection, error) {
	c := &clientConnection{Conn: conn, limits: h.limits, names: certificate.Names(client)}
	grant, listed := c.grant()
	if !listed { // removed from the list during the handshake
		return nil, errUnlisted
	}
	room := h.limits.addConnection(c, grant.SAN)
	if c.excess {
		h.limits.recordRejection(limitConnections, "remote", conn.RemoteAddr().String(), "peer.san", string(grant.SAN))
	}
	if !room {
		return nil, errTooManyConns
	}
	if c.excess {
		time.AfterFunc(excessLifetime, func() { c.Close() }) //nolint:errcheck // the connection is rejected
	}
	return c, nil
}

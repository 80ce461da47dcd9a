package link

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/credentials"
)

// maxHandshakes is the number of concurrent TLS handshakes. It fits a thousand clients that reconnect at
// the same time; each costs about 15 KB.
const maxHandshakes = 1024

var (
	errHandshakeTooLong = &HandshakeError{
		fmt.Errorf("handshake exceeds %d bytes; present only the certificate and its intermediates", maxHandshakeBytes),
	}
	errEvicted = &HandshakeError{
		errors.New("too many unfinished handshakes, most of them from this address; check what connects from there"),
	}
)

// serverHandshaker is the server's transport credentials with limits. When too many handshakes are
// unfinished, it ends the oldest handshake of the source address that has the most. It rejects unlisted clients in the
// handshake, like those of another CA: they get an alert that they can log, before any HTTP/2 is read.
type serverHandshaker struct {
	credentials.TransportCredentials

	failures prometheus.Counter
	limits   *limits
	pending  *EvictionSet[net.Conn]
}

func newServerHandshaker(id *identity, l *limits, cfg Config, clientsFile string) *serverHandshaker {
	h := &serverHandshaker{
		TransportCredentials: credentials.NewTLS(id.tlsConfig(func(client *x509.Certificate) error {
			if _, listed := l.findGrant(sansOf(client)); !listed {
				return fmt.Errorf("client is not listed: %s; add one of its names to %s", DescribeCertificate(client), clientsFile)
			}
			return nil
		})),
		failures: promauto.With(cfg.Registerer).NewCounter(cfg.counter("tls_handshake_errors_total", "Number of failed TLS handshakes.")),
		limits:   l,
		pending: NewEvictionSet(maxHandshakes, func(evicted net.Conn) {
			l.recordRejection(limitHandshakes, "remote", evicted.RemoteAddr().String())
			evicted.Close() //nolint:errcheck // its handshake then fails with another error
		}),
	}
	promauto.With(cfg.Registerer).NewGaugeFunc(
		prometheus.GaugeOpts(cfg.counter("tls_handshakes_unfinished", "Number of unfinished TLS handshakes.")),
		func() float64 { return float64(h.pending.Len()) })
	return h
}

// ServerHandshake identifies the peer of a new connection. grpc has set a deadline on the connection.
func (h *serverHandshaker) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	metered := newMeteredConn(raw)
	h.pending.Add(raw.RemoteAddr().String(), metered)
	conn, info, err := h.TransportCredentials.ServerHandshake(metered)
	if !h.pending.Remove(metered) {
		if err == nil { // the handshake succeeded on a connection that was closed since
			conn.Close() //nolint:errcheck // the connection is rejected
		}
		err = errEvicted
	}
	if err != nil {
		h.failures.Inc()
		err = explainHandshake(err)
		h.limits.log.Warn("TLS handshake failed", "remote", raw.RemoteAddr().String(), "error", err)
		return nil, nil, err
	}
	tlsInfo, _ := info.(credentials.TLSInfo)
	// Only now has the peer proven its identity, so only now can its connection be counted.
	c, err := h.limits.addConnection(conn, sansOf(tlsInfo.State.PeerCertificates[0]))
	if err != nil {
		conn.Close() //nolint:errcheck // the connection is rejected
		return nil, nil, err
	}
	metered.usage = c.usage
	return c, peerInfo{tlsInfo, c}, nil
}

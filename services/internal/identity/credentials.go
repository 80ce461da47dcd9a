package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
)

// tlsConfig returns the configuration of either end: TLS 1.3, the current certificate, and a peer whose
// certificate verifyPeer and accept do not reject.
//
// crypto/tls would verify chains itself, but it could not reload CAs, and crypto/x509 alone lets peers
// choose how much a verification costs (certificate.CheckSigned). So its own verification is off, and
// VerifyConnection, which crypto/tls calls in every handshake, does all of it.
func (i *Identity) tlsConfig(accept func(peer *x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, //nolint:gosec // only the host name check is replaced: VerifyConnection verifies the chain and the SAN
		SessionTicketsDisabled: true, // to resume sessions would only save peers what they can afford
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.leaf.Load(), nil },
		GetClientCertificate:   func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.leaf.Load(), nil },
		VerifyConnection: func(s tls.ConnectionState) error {
			err := i.verifyPeer(s.PeerCertificates)
			if err == nil {
				err = accept(s.PeerCertificates[0])
			}
			if err == nil || errors.As(err, new(*HandshakeError)) {
				return err
			}
			return &HandshakeError{Cause: err}
		},
	}
}

// verifyPeer requires an affordable chain to a CA of the peers, valid now and for the peer's end.
func (i *Identity) verifyPeer(chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("peer presents no certificate")
	}
	if err := certificate.CheckCost(chain); err != nil {
		return err
	}
	leaf, roots, usage := chain[0], i.roots.Load(), x509.ExtKeyUsageServerAuth
	if i.usage == usage {
		usage = x509.ExtKeyUsageClientAuth
	}
	if err := certificate.CheckSigned(chain, roots.certs, (*x509.Certificate).CheckSignatureFrom); err != nil {
		return i.explainVerification(err)
	}
	verified, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots.pool, Intermediates: certificate.NewPool(chain[1:]), KeyUsages: []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return i.explainVerification(err)
	}
	// crypto/x509 accepts a certificate without any extended key usage for every usage.
	if !slices.Contains(leaf.ExtKeyUsage, usage) {
		return &HandshakeError{
			fmt.Errorf("peer certificate is not for %s: %s", certificate.UsageName(usage), certificate.Describe(leaf)),
			"issue it with that extended key usage",
		}
	}
	return certificate.CheckKeyStrength(verified)
}

// ServerCredentials returns the credentials for a listener. accept rejects clients in the handshake, like
// those of another CA: they get an alert that they can log, before any HTTP/2 is read.
func (i *Identity) ServerCredentials(accept func(client *x509.Certificate) error) credentials.TransportCredentials {
	return credentials.NewTLS(i.tlsConfig(accept))
}

// ClientCredentials are the credentials for dialing a server. They keep the error of the last handshake,
// because grpc only passes on its text.
type ClientCredentials struct {
	credentials.TransportCredentials

	id        *Identity
	lastError *atomic.Pointer[HandshakeError]
}

// ClientCredentials returns the credentials for the server whose certificate has this name. The host name
// is not verified, because a server's addresses differ between clusters.
func (i *Identity) ClientCredentials(server certificate.SAN) *ClientCredentials {
	creds := credentials.NewTLS(i.tlsConfig(func(leaf *x509.Certificate) error {
		if !slices.Contains(certificate.Names(leaf), server) {
			return &HandshakeError{
				fmt.Errorf("the server's certificate is for another name, want %q, got %s", server, certificate.Describe(leaf)),
				"check the server's name and address in the settings",
			}
		}
		return nil
	}))
	return &ClientCredentials{creds, i, new(atomic.Pointer[HandshakeError])}
}

// LastError returns the error of the last handshake, or nil if that succeeded.
func (c *ClientCredentials) LastError() *HandshakeError { return c.lastError.Load() }

// ClientHandshake connects to the server.
func (c *ClientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		explained := ExplainHandshake(err)
		c.lastError.Store(explained)
		return nil, nil, explained
	}
	c.lastError.Store(nil)
	return &unconfirmedConn{Conn: conn, creds: c}, info, nil
}

// Clone returns credentials that share the last error.
func (c *ClientCredentials) Clone() credentials.TransportCredentials {
	return &ClientCredentials{c.TransportCredentials.Clone(), c.id, c.lastError}
}

// unconfirmedConn is a client's connection. With TLS 1.3, a client's handshake ends before the server
// verifies its certificate. If the server then rejects it, the connection ends before the server's first
// byte: with an alert, or without if the client wrote at the same time.
type unconfirmedConn struct {
	net.Conn

	creds     *ClientCredentials
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
		fmt.Errorf("%w; %w for %.200q", err, ErrRejected, certificate.Names(c.creds.id.Leaf())),
		"see the server's log: it must trust the CA of that certificate, and list its name",
	}
	c.creds.lastError.Store(rejected)
	return rejected
}

package link

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"
)

// maxErrorBytes bounds the text of a handshake error, which quotes what a peer presented.
const maxErrorBytes = 2 << 10

// describeCert identifies a certificate in a bounded text.
func describeCert(c *x509.Certificate) string {
	sans, more := certSANs(c), ""
	if len(sans) > 3 {
		sans, more = sans[:3], fmt.Sprintf(" and %d more", len(sans)-3)
	}
	return fmt.Sprintf("certificate for %.200q%s (subject %.200q, issuer %.200q)", sans, more, c.Subject.String(), c.Issuer.String())
}

// explainHandshake adds the certificate and advice to the error of a handshake, which crypto/tls leaves
// out.
func (i *identity) explainHandshake(err error) error {
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok && unknown.Cert != nil {
		return fmt.Errorf("%s: %w; %s must contain the CA that signs it, and the peer must present its intermediates",
			describeCert(unknown.Cert), err, i.files.PeerCA)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Cert != nil {
		advice := "issue it again"
		switch invalid.Reason {
		case x509.Expired:
			advice = "renew it or check this machine's clock"
		case x509.IncompatibleUsage:
			advice = "issue it with the extended key usage of its end"
		}
		return fmt.Errorf("%s: %w; %s", describeCert(invalid.Cert), err, advice)
	}
	for _, hint := range []struct{ text, advice string }{
		{"didn't provide a certificate", "configure one for the client"},
		{"unsupported versions", "this end requires TLS 1.3"},
		{"protocol version", "both ends require TLS 1.3"},
		{"first record does not look like a TLS handshake", "the peer does not use TLS; check its address"},
	} {
		if strings.Contains(err.Error(), hint.text) {
			return fmt.Errorf("%w; %s", err, hint.advice)
		}
	}
	return err
}

// truncateError bounds the text of an error to maxErrorBytes.
func truncateError(err error) error {
	if text := err.Error(); len(text) > maxErrorBytes {
		return errors.New(strings.ToValidUTF8(text[:maxErrorBytes], "") + "...")
	}
	return err
}

// checkALPN requires that HTTP/2 was negotiated, as grpc's own credentials do: a peer that negotiates
// nothing may expect another protocol.
func checkALPN(info credentials.AuthInfo) error {
	if tls, ok := info.(credentials.TLSInfo); !ok || tls.State.NegotiatedProtocol != "h2" {
		return errNoHTTP2
	}
	return nil
}

var errNoHTTP2 = errors.New(`peer did not negotiate HTTP/2 (ALPN "h2"); check that it uses gRPC`)

// explainingCreds is a client's credentials whose errors name the certificate and give advice.
type explainingCreds struct {
	credentials.TransportCredentials

	id *identity
}

func (c *explainingCreds) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, truncateError(c.id.explainHandshake(err))
	}
	if err := checkALPN(info); err != nil {
		conn.Close() //nolint:errcheck // the connection is rejected
		return nil, nil, err
	}
	return &explainingConn{conn, c.id}, info, nil
}

func (c *explainingCreds) Clone() credentials.TransportCredentials {
	return &explainingCreds{c.TransportCredentials.Clone(), c.id}
}

// explainingConn explains the alert by which a server rejects this client's certificate. With TLS 1.3, a
// client's handshake ends before the server verifies that certificate.
type explainingConn struct {
	net.Conn

	id *identity
}

func (c *explainingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		err = fmt.Errorf("%w; the server rejected the %s; see the server's log", err, describeCert(c.id.leaf.Load().Leaf))
	}
	return n, err
}

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

// maxErrorBytes is how long the text of a refusal may be, in bytes.
const maxErrorBytes = 2 << 10

// describeCert says which certificate it is, in few words however long its own are.
func describeCert(c *x509.Certificate) string {
	all, more := certSANs(c), ""
	if len(all) > 3 {
		all, more = all[:3], fmt.Sprintf(" and %d more", len(all)-3)
	}
	return fmt.Sprintf("the certificate for %.200q%s (subject %.200q, issuer %.200q)", all, more, c.Subject.String(), c.Issuer.String())
}

// explainHandshake adds to the error of a handshake which certificate it was, and what to do about it:
// crypto/tls says only what it has found.
func (i *identity) explainHandshake(err error) error {
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok && unknown.Cert != nil {
		return fmt.Errorf("%s: %w: %s must hold the CA that signs it, and the peer has to show what is in between",
			describeCert(unknown.Cert), err, i.files.PeerCA)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Cert != nil {
		advice := "issue it anew"
		switch invalid.Reason {
		case x509.Expired:
			advice = "renew it, or see to this machine's clock"
		case x509.IncompatibleUsage:
			advice = "issue it with the usage of its side"
		}
		return fmt.Errorf("%s: %w: %s", describeCert(invalid.Cert), err, advice)
	}
	for _, one := range []struct{ says, advice string }{
		{"didn't provide a certificate", "the client has to have one"},
		{"unsupported versions", "this end speaks TLS 1.3 alone"},
		{"protocol version", "both ends have to speak TLS 1.3"},
		{"first record does not look like a TLS handshake", "the peer speaks no TLS: is it the right address?"},
	} {
		if strings.Contains(err.Error(), one.says) {
			return fmt.Errorf("%w: %s", err, one.advice)
		}
	}
	return err
}

// truncateError is an error in at most so many bytes. What a peer presents is quoted in it.
func truncateError(err error) error {
	if text := err.Error(); len(text) > maxErrorBytes {
		return errors.New(strings.ToValidUTF8(text[:maxErrorBytes], "") + "...")
	}
	return err
}

// checkALPN wants HTTP/2 to have been agreed upon, as grpc's own credentials do: who asks for no
// protocol may have come for another one.
func checkALPN(info credentials.AuthInfo) error {
	if tls, ok := info.(credentials.TLSInfo); !ok || tls.State.NegotiatedProtocol != "h2" {
		return errNoHTTP2
	}
	return nil
}

var errNoHTTP2 = errors.New(`the peer has not agreed upon HTTP/2 (ALPN "h2"): is it gRPC?`)

// explainingCreds are a client's credentials whose errors say which certificate is meant.
type explainingCreds struct {
	credentials.TransportCredentials

	id *identity
}

func (t *explainingCreds) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, truncateError(t.id.explainHandshake(err))
	}
	if err := checkALPN(info); err != nil {
		conn.Close() //nolint:errcheck // it is not wanted
		return nil, nil, err
	}
	return &explainingConn{conn, t.id}, info, nil
}

func (t *explainingCreds) Clone() credentials.TransportCredentials {
	return &explainingCreds{t.TransportCredentials.Clone(), t.id}
}

// explainingConn hears that the server refuses our certificate: with TLS 1.3 a client's handshake is
// over before that is judged.
type explainingConn struct {
	net.Conn

	id *identity
}

func (c *explainingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		err = fmt.Errorf("%w: said of %s: the server's log has the reason", err, describeCert(c.id.leaf.Load().Leaf))
	}
	return n, err
}

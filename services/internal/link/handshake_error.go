package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// HandshakeError is why a handshake failed, with advice, and not because of the network.
type HandshakeError struct{ Cause error }

// maxErrorBytes bounds the text of a handshake error, which quotes what a peer presented.
const maxErrorBytes = 2 << 10

func (e *HandshakeError) Error() string { return display.Truncate(e.Cause.Error(), maxErrorBytes) }

// Unwrap returns the cause.
func (e *HandshakeError) Unwrap() error { return e.Cause }

// explainHandshake adds advice to an error of a handshake, unless it has some or is of the network.
func explainHandshake(err error) error {
	advice := "this end requires TLS 1.3 and a certificate"
	var op *net.OpError
	switch {
	case errors.As(err, new(*HandshakeError)):
		return err
	case errors.As(err, new(tls.RecordHeaderError)):
		advice = "the peer does not use TLS; check its address"
	case errors.As(err, &op) && op.Op == "remote error":
		advice = "the peer ended the handshake, see its log; both ends require TLS 1.3"
	case errors.As(err, new(net.Error)), errors.Is(err, io.EOF), errors.Is(err, context.Canceled):
		return err
	}
	return &HandshakeError{fmt.Errorf("%w; %s", err, advice)}
}

// explainVerification adds the certificate and advice to an error of crypto/x509.
func (i *identity) explainVerification(err error) error {
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok && unknown.Cert != nil {
		return fmt.Errorf("%s: %w; %s must contain the CA that signs it, and the peer must present its intermediates",
			DescribeCertificate(unknown.Cert), err, i.paths.PeerCA)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Cert != nil {
		advice := "issue it again"
		switch invalid.Reason {
		case x509.Expired:
			advice = "renew it or check this machine's clock"
		case x509.IncompatibleUsage:
			advice = "issue it with the extended key usage of its end"
		}
		return fmt.Errorf("%s: %w; %s", DescribeCertificate(invalid.Cert), err, advice)
	}
	return err
}

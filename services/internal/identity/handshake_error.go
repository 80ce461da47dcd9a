package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
	"github.com/slicefeed/slicefeed/services/internal/display"
)

// ErrRejected is the cause of a HandshakeError if the server ended the connection before it sent anything, as it does
// when it rejects this end's certificate.
var ErrRejected = errors.New("the server rejected the certificate")

// HandshakeError is why a handshake failed, and what to do about it.
type HandshakeError struct {
	Cause  error
	Advice string // may be empty
}

// MaxErrorBytes bounds the text of a handshake error, which quotes what a peer presented.
const MaxErrorBytes = 2 << 10

func (e *HandshakeError) Error() string {
	text := e.Cause.Error()
	if e.Advice != "" {
		text += "; " + e.Advice
	}
	return display.Truncate(text, MaxErrorBytes)
}

// Unwrap returns the cause.
func (e *HandshakeError) Unwrap() error { return e.Cause }

// ExplainHandshake adds advice to an error of a handshake that has none yet.
func ExplainHandshake(err error) *HandshakeError {
	if explained, ok := errors.AsType[*HandshakeError](err); ok {
		return explained
	}
	advice := "this end requires TLS 1.3 and a certificate"
	var op *net.OpError
	switch {
	case errors.As(err, new(tls.RecordHeaderError)):
		advice = "the peer does not use TLS; check its address"
	case errors.As(err, &op) && op.Op == "remote error":
		advice = "the peer ended the handshake, see its log; both ends require TLS 1.3"
	case errors.As(err, new(net.Error)), errors.Is(err, io.EOF), errors.Is(err, context.Canceled): // of the network
		advice = ""
	}
	return &HandshakeError{err, advice}
}

// explainVerification adds the certificate and advice to an error of crypto/x509.
func (i *Identity) explainVerification(err error) error {
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok && unknown.Cert != nil {
		return &HandshakeError{
			fmt.Errorf("%s: %w", certificate.Describe(unknown.Cert), err),
			i.files.PeerCA + " must contain the CA that signs it, and the peer must present its intermediates",
		}
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Cert != nil {
		advice := "issue it again"
		switch invalid.Reason {
		case x509.Expired:
			advice = "renew it or check this machine's clock"
		case x509.IncompatibleUsage:
			advice = "issue it with the extended key usage of its end"
		}
		return &HandshakeError{fmt.Errorf("%s: %w", certificate.Describe(invalid.Cert), err), advice}
	}
	return err
}

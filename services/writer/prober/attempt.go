package prober

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// maxReadBytes is what a backend may make us read in one probe, with all that TLS and framing
// add. A certificate chain and an answer's headers take a few thousand bytes.
const maxReadBytes = 128 << 10

// backendFailure is a backend's, in words of our own: no byte that it sent is ever a part of them,
// and no number that another probe would not have, since they go into logs and reasons.
type backendFailure string

func (f backendFailure) Error() string { return string(f) }

// noValidAnswer is also said of a connection that ends early: its end may overtake what came.
const noValidAnswer = "no valid answer"

// errInvalidSpec is our own failure: Validate refuses such a spec.
var errInvalidSpec = errors.New("the probe's spec cannot be used")

// probeClient asks backends. Each probe has a connection of its own.
type probeClient struct {
	http *http.Transport
}

// probe probes once, within ctx, and says in a word or two why it failed.
func (a *probeClient) probe(ctx context.Context, key Key) (Result, string) {
	ctx, cancel := context.WithTimeout(ctx, key.Spec.timeout())
	defer cancel()
	err := a.attempt(ctx, key)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // the other error is what our hanging up looked like
	}
	return classifyError(err, key.Spec)
}

func (a *probeClient) attempt(ctx context.Context, key Key) error {
	if key.Spec.Mode == Off || key.Spec.Validate() != nil {
		return errInvalidSpec
	}
	conn, err := dialTCP(ctx, netip.AddrPortFrom(key.Address, key.Port))
	if err != nil {
		return err
	}
	// Closing the connection itself, not what is built upon it: TLS and HTTP/2 would say
	// goodbye first, and wait to be heard. It also ends whatever waits for the backend.
	defer conn.Close() //nolint:errcheck // nothing was written that could be lost
	if key.Spec.Mode == TCP {
		return nil // it accepted
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })() //nolint:errcheck // as above
	return a.probeConn(ctx, conn, key)
}

// probeConn asks over a connection, which whoever made it closes.
func (a *probeClient) probeConn(ctx context.Context, conn net.Conn, key Key) error {
	w := &limitedConn{conn, maxReadBytes}
	switch key.Spec.Mode {
	case HTTP:
		return a.getHTTP(ctx, w, key)
	case HTTPS:
		secured, err := handshakeTLS(w, key.Spec, "http/1.1")
		if err != nil {
			return err
		}
		return a.getHTTP(ctx, secured, key)
	case GRPC:
		hangUp := func() { conn.Close() } //nolint:errcheck // as whoever made it
		if !key.Spec.TLS {
			return checkGRPC(ctx, w, hangUp, key)
		}
		secured, err := handshakeTLS(w, key.Spec, "h2")
		if err != nil {
			return err
		}
		return checkGRPC(ctx, secured, hangUp, key)
	default:
		return errInvalidSpec
	}
}

// dialTCP connects so that closing sends a reset: probes never pile up in TIME_WAIT. The
// option is set before connecting: a connection may come about just when we give it up.
func dialTCP(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	dialer := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: false}, KeepAlive: -1,
		Control: func(_, _ string, raw syscall.RawConn) error {
			var set error
			err := raw.Control(func(fd uintptr) {
				set = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
			})
			return errors.Join(err, set)
		},
	}
	return dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, to)
}

// limitedConn is a connection from which no more than so much is read.
type limitedConn struct {
	net.Conn

	remaining int
}

func (w *limitedConn) Read(p []byte) (int, error) {
	if w.remaining == 0 {
		return 0, backendFailure("sends without end")
	}
	n, err := w.Conn.Read(p[:min(len(p), w.remaining)])
	w.remaining -= n
	return n, err
}

// handshakeTLS secures a connection, and verifies nothing: a probe wants to know whether
// the backend answers, and its certificate is for its clients, by a name we do not know.
func handshakeTLS(conn net.Conn, spec Spec, protocol string) (*tls.Conn, error) {
	secured := tls.Client(conn, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // see above; nothing is sent that is secret
		ServerName:         stripPort(spec.Host),
		NextProtos:         []string{protocol},
		// Without the post-quantum exchange, which is most of a handshake's cost to us.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
	})
	err := secured.Handshake() //nolint:noctx // the connection is closed when the context ends
	if err == nil {
		if protocol == "h2" && secured.ConnectionState().NegotiatedProtocol != protocol {
			return nil, backendFailure("offers no HTTP/2 over TLS")
		}
		return secured, nil
	}
	var record tls.RecordHeaderError
	var remote *net.OpError
	var errno syscall.Errno
	var ownFailure backendFailure
	switch {
	case errors.As(err, &errno), errors.As(err, &ownFailure), errors.Is(err, io.EOF):
		return nil, err
	case errors.As(err, &record):
		return nil, backendFailure("does not speak TLS")
	case errors.As(err, &remote) && remote.Op == "remote error":
		// An alert: a number that crypto/tls puts into words.
		alert := strings.TrimPrefix(remote.Err.Error(), "tls: ")
		if alert == "no application protocol" {
			alert = map[string]string{"http/1.1": "it offers no HTTP/1.1", "h2": "it offers no HTTP/2"}[protocol]
		}
		return nil, backendFailure("refuses the TLS handshake: " + alert)
	default:
		return nil, backendFailure("TLS handshake failed")
	}
}

// classifyError tells a backend's failure from our own, and names it in words that are the same
// at every probe (an error's text has our port in it).
func classifyError(err error, spec Spec) (Result, string) {
	var ownFailure backendFailure
	var timeout net.Error
	var errno syscall.Errno
	switch {
	case err == nil:
		return Pass, ""
	case errors.Is(err, context.Canceled):
		return Inconclusive, ""
	case errors.Is(err, errInvalidSpec):
		return Inconclusive, errInvalidSpec.Error()
	case errors.As(err, &ownFailure):
		return Fail, string(ownFailure)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return Fail, "no answer within " + spec.timeout().Round(time.Millisecond).String()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Fail, noValidAnswer // which of these it looks like, or garbage, is a matter of timing
	case errors.As(err, &errno):
		switch errno {
		case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL:
			return Inconclusive, errno.Error()
		}
		return Fail, errno.Error()
	default:
		return Fail, noValidAnswer
	}
}

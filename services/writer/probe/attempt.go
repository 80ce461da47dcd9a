package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// maxReadBytes limits what a probe reads from a backend, including TLS and framing. A certificate
// chain and the headers of a response take a few thousand bytes.
const maxReadBytes = 128 << 10

// backendFailure is why a probe failed. It never has bytes that the backend sent, nor numbers that
// change from probe to probe, since it appears in logs and reasons.
type backendFailure string

func (f backendFailure) Error() string { return string(f) }

// noValidResponse is also the failure of a connection that ends early: its end may overtake the bytes
// before it, so which of the two a probe sees depends on timing.
const noValidResponse = "no valid response"

// errInvalidSpec is for a spec that Validate rejects.
var errInvalidSpec = errors.New("invalid probe spec")

// attempt makes one probe of a canonical key within ctx, and returns why it did not pass.
func attempt(ctx context.Context, key Key) (Result, string) {
	ctx, cancel := context.WithTimeout(ctx, key.Spec.Timeout)
	defer cancel()
	err := connect(ctx, key)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // the other error comes from closing the connection
	}
	return classifyError(err, key.Spec)
}

// connect makes a probe over a connection of its own.
func connect(ctx context.Context, key Key) error {
	if key.Spec.Mode == Off || key.Spec.Validate() != nil {
		return errInvalidSpec
	}
	tcp, err := dialTCP(ctx, netip.AddrPortFrom(key.Address, key.Port))
	if err != nil {
		return err
	}
	// This closes the TCP connection itself: TLS and HTTP/2 would first send a close message and wait
	// for it to be written. It also ends all waiting reads and writes.
	defer tcp.Close() //nolint:errcheck // no written data can be lost
	if key.Spec.Mode == TCP {
		return nil
	}
	defer context.AfterFunc(ctx, func() { tcp.Close() })() //nolint:errcheck // as above
	return probeConn(ctx, tcp, key)
}

// probeConn makes a probe over a connection, which the caller closes.
func probeConn(ctx context.Context, tcp net.Conn, key Key) (err error) {
	var conn net.Conn = &limitedConn{tcp, maxReadBytes}
	if key.Spec.Mode == HTTPS || key.Spec.TLS {
		if conn, err = handshakeTLS(conn, key.Spec); err != nil {
			return err
		}
	}
	if key.Spec.Mode == GRPC {
		return checkGRPC(ctx, conn, func() { tcp.Close() }, key) //nolint:errcheck // as in connect
	}
	return getHTTP(ctx, conn, key)
}

// dialTCP connects with SO_LINGER 0, so that closing sends a reset and probes leave no sockets in
// TIME_WAIT. The option is set before connecting, since a connection may be established just when
// the attempt is abandoned.
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

// limitedConn is a connection that limits how many bytes are read.
type limitedConn struct {
	net.Conn

	remaining int
}

func (c *limitedConn) Read(p []byte) (int, error) {
	if c.remaining == 0 {
		return 0, backendFailure("response too large")
	}
	n, err := c.Conn.Read(p[:min(len(p), c.remaining)])
	c.remaining -= n
	return n, err
}

// handshakeTLS starts TLS on a connection without verifying the certificate. A probe checks only
// whether the backend responds; the certificate is for a name that its clients know.
func handshakeTLS(conn net.Conn, spec Spec) (net.Conn, error) {
	protocol := "http/1.1"
	if spec.Mode == GRPC {
		protocol = "h2"
	}
	name := strings.Trim(spec.Host, "[]")
	if host, _, err := net.SplitHostPort(spec.Host); err == nil {
		name = host
	}
	secured := tls.Client(conn, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // see above; probes send no secrets
		ServerName:         name,
		NextProtos:         []string{protocol},
		// Without the post-quantum key exchange, which is most of a handshake's cost.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
	})
	err := secured.Handshake() //nolint:noctx // the connection is closed when the context ends
	if err == nil {
		if protocol == "h2" && secured.ConnectionState().NegotiatedProtocol != protocol {
			return nil, backendFailure("no HTTP/2 over TLS")
		}
		return secured, nil
	}
	var record tls.RecordHeaderError
	var remote *net.OpError
	var errno syscall.Errno
	var failure backendFailure
	switch {
	case errors.As(err, &errno), errors.As(err, &failure), errors.Is(err, io.EOF):
		return nil, err
	case errors.As(err, &record):
		return nil, backendFailure("not a TLS server")
	case errors.As(err, &remote) && remote.Op == "remote error":
		// An alert is a number that crypto/tls converts to text, so it has no bytes of the backend.
		alert := strings.TrimPrefix(remote.Err.Error(), "tls: ")
		if alert == "no application protocol" {
			alert = map[string]string{"http/1.1": "no HTTP/1.1", "h2": "no HTTP/2"}[protocol]
		}
		return nil, backendFailure("TLS handshake rejected: " + alert)
	default:
		return nil, backendFailure("TLS handshake failed")
	}
}

// classifyError distinguishes failures of the backend (Fail) from failures of the writer (Inconclusive). The
// detail it returns is the same in each probe that fails for the same reason; the text of err is not,
// because it has the local port.
func classifyError(err error, spec Spec) (Result, string) {
	var failure backendFailure
	var timeout net.Error
	var errno syscall.Errno
	switch {
	case err == nil:
		return Pass, ""
	case errors.Is(err, context.Canceled):
		return Inconclusive, ""
	case errors.Is(err, errInvalidSpec):
		return Inconclusive, errInvalidSpec.Error()
	case errors.As(err, &failure):
		return Fail, string(failure)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return Fail, "no response within " + spec.Timeout.Round(time.Millisecond).String()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Fail, noValidResponse // which of these it is, or an invalid response, depends on timing
	case errors.As(err, &errno):
		switch errno {
		case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL:
			return Inconclusive, errno.Error()
		}
		return Fail, errno.Error()
	default:
		return Fail, noValidResponse
	}
}

const (
	// As in a kubelet's probe, the headers and the first part of the body must arrive within the
	// timeout. The rest is ignored.
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 10 << 10
	userAgent      = "slicefeed-probe"
)

// getHTTP is the probe of modes http and https.
func getHTTP(ctx context.Context, conn net.Conn, key Key) error {
	target, err := url.ParseRequestURI(key.Spec.Path)
	if err != nil {
		return errInvalidSpec
	}
	target.Scheme, target.Host = "http", key.HostPort()
	request := &http.Request{
		Method: http.MethodGet, URL: target, Host: key.Spec.Host,
		Header: http.Header{"User-Agent": {userAgent}},
	}
	transport := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		Protocols:              &http.Protocols{},
	}
	transport.Protocols.SetHTTP1(true)
	// A round trip, unlike http.Client, does not follow redirects.
	response, err := transport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // the rest of the body does not matter
	if response.StatusCode < 200 || response.StatusCode > 399 {
		return backendFailure(fmt.Sprintf("status %d", response.StatusCode))
	}
	if _, err := io.CopyN(io.Discard, response.Body, maxBodyBytes); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

package prober

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

const (
	// What a backend may make us read. Its headers and the first part of its body must
	// come within the timeout, as for a kubelet's probe; what follows is of no interest.
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 10 << 10
)

// asker asks backends. Each probe has a connection of its own.
type asker struct {
	transport http.Transport
}

func newAsker() *asker {
	a := &asker{}
	a.transport = http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return dial(ctx, address)
		},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	return a
}

// ask probes once, within ctx, and says in a word or two why it failed.
func (a *asker) ask(ctx context.Context, key Key) (Outcome, string) {
	ctx, cancel := context.WithTimeout(ctx, key.Spec.timeout())
	defer cancel()
	address := netip.AddrPortFrom(key.Address, key.Port).String()
	if key.Spec.Mode == HTTP {
		return a.get(ctx, address, key.Spec)
	}
	conn, err := dial(ctx, address)
	if err != nil {
		return judge(err, key.Spec)
	}
	conn.Close() //nolint:errcheck // it answered; nothing was written that could be lost
	return Pass, ""
}

func (a *asker) get(ctx context.Context, address string, spec Spec) (Outcome, string) {
	target := &url.URL{Path: "/"}
	if spec.Path != "" {
		var err error
		if target, err = url.ParseRequestURI(spec.Path); err != nil {
			return Void, "" // Validate refuses it; no backend is to blame
		}
	}
	target.Scheme, target.Host = "http", address
	request := &http.Request{
		Method: http.MethodGet, URL: target, Host: spec.Host,
		Header: http.Header{"User-Agent": {"slicefeed-probe"}},
	}
	// RoundTrip, not a client: that is how no redirect is ever followed.
	response, err := a.transport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return judge(err, spec)
	}
	defer response.Body.Close() //nolint:errcheck // read as far as we care
	if response.StatusCode < 200 || response.StatusCode > 399 {
		return Fail, fmt.Sprintf("status %d", response.StatusCode)
	}
	if _, err := io.CopyN(io.Discard, response.Body, maxBodyBytes); err != nil && !errors.Is(err, io.EOF) {
		return judge(err, spec)
	}
	return Pass, ""
}

// dial connects so that closing sends a reset: probes never pile up in TIME_WAIT.
func dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: false}, KeepAlive: -1}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil {
			conn.Close() //nolint:errcheck // the error that counts is the other
			return nil, fmt.Errorf("set linger: %w", err)
		}
	}
	return conn, nil
}

// judge tells a backend's failure from our own, and names it in words that are the same
// at every probe (an error's text has our port in it).
func judge(err error, spec Spec) (Outcome, string) {
	var timeout net.Error
	var errno syscall.Errno
	switch {
	case errors.Is(err, context.Canceled):
		return Void, ""
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return Fail, "no answer within " + spec.timeout().Round(time.Millisecond).String()
	case errors.As(err, &errno):
		switch errno {
		case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL:
			return Void, errno.Error()
		}
		return Fail, errno.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Fail, "closed without an answer"
	default:
		return Fail, "no valid answer"
	}
}

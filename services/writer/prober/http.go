package prober

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

const (
	// An answer's headers and the first part of its body must come within the timeout, as for
	// a kubelet's probe; what follows is of no interest.
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 10 << 10
	userAgent      = "slicefeed-probe"
)

// connKey is where a context has the connection that the transport is to use.
type connKey struct{}

func newProbeClient() *probeClient {
	give := func(ctx context.Context, _, _ string) (net.Conn, error) { return ctx.Value(connKey{}).(net.Conn), nil }
	a := &probeClient{&http.Transport{
		DialContext: give, DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		Protocols:              &http.Protocols{},
	}}
	a.http.Protocols.SetHTTP1(true)
	return a
}

// getHTTP is the probe of the modes http and https.
func (a *probeClient) getHTTP(ctx context.Context, conn net.Conn, key Key) error {
	target, err := url.ParseRequestURI(key.Spec.path())
	if err != nil {
		return errInvalidSpec
	}
	target.Scheme, target.Host = "http", key.hostPort()
	request := &http.Request{
		Method: http.MethodGet, URL: target, Host: key.Spec.Host,
		Header: http.Header{"User-Agent": {userAgent}},
	}
	// A round trip, not a client: that is how no redirect is ever followed.
	client, err := a.http.NewClientConn(context.WithValue(ctx, connKey{}, conn), "http", target.Host)
	if err != nil {
		return err
	}
	response, err := client.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // read as far as we care
	if response.StatusCode < 200 || response.StatusCode > 399 {
		return backendFailure(fmt.Sprintf("status %d", response.StatusCode))
	}
	if _, err := io.CopyN(io.Discard, response.Body, maxBodyBytes); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

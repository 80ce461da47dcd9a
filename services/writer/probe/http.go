package probe

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
	// As in a kubelet's probe, the headers and the first part of the body must arrive within the
	// timeout. The rest is ignored.
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 10 << 10
	userAgent      = "slicefeed-probe"
)

// connKey is the context key of the connection that the transport uses.
type connKey struct{}

// NewClient returns a client.
func NewClient() *Client {
	dialPreset := func(ctx context.Context, _, _ string) (net.Conn, error) { return ctx.Value(connKey{}).(net.Conn), nil }
	c := &Client{&http.Transport{
		DialContext: dialPreset, DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		Protocols:              &http.Protocols{},
	}}
	c.http.Protocols.SetHTTP1(true)
	return c
}

// getHTTP is the probe of modes http and https.
func (c *Client) getHTTP(ctx context.Context, conn net.Conn, key Key) error {
	target, err := url.ParseRequestURI(key.Spec.Path)
	if err != nil {
		return errInvalidSpec
	}
	target.Scheme, target.Host = "http", key.HostPort()
	request := &http.Request{
		Method: http.MethodGet, URL: target, Host: key.Spec.Host,
		Header: http.Header{"User-Agent": {userAgent}},
	}
	// A round trip, unlike http.Client, does not follow redirects.
	client, err := c.http.NewClientConn(context.WithValue(ctx, connKey{}, conn), "http", target.Host)
	if err != nil {
		return err
	}
	response, err := client.RoundTrip(request.WithContext(ctx))
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

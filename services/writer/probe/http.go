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

package prober

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
)

const (
	// An answer's headers and the first part of its body must come within the timeout, as for
	// a kubelet's probe; what follows is of no interest.
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 10 << 10
	maxGRPCBytes   = 1 << 10 // an answer is a number
	userAgent      = "slicefeed-probe"
)

// given is where a context has the connection that a transport is to use.
type given struct{}

func newAsker() *asker {
	a := &asker{http1: newTransport(), http2: newTransport()}
	a.http1.Protocols.SetHTTP1(true)
	a.http2.Protocols.SetHTTP2(true)
	a.http2.Protocols.SetUnencryptedHTTP2(true)
	return a
}

func newTransport() *http.Transport {
	give := func(ctx context.Context, _, _ string) (net.Conn, error) { return ctx.Value(given{}).(net.Conn), nil }
	return &http.Transport{
		DialContext: give, DialTLSContext: give,
		DisableKeepAlives: true, DisableCompression: true,
		// HTTP/2 keeps what it knows of a closed connection for so long, else for 5 s: tens of
		// thousands of them. No connection idles for half a second between its start and its use.
		IdleConnTimeout:        500 * time.Millisecond,
		MaxResponseHeaderBytes: maxHeaderBytes,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10},
		Protocols:              &http.Protocols{},
	}
}

// get is the probe of the modes http and https.
func (a *asker) get(ctx context.Context, conn net.Conn, key Key) error {
	target, err := url.ParseRequestURI(key.Spec.path())
	if err != nil {
		return errUnaskable
	}
	target.Scheme, target.Host = "http", key.hostPort()
	request := &http.Request{
		Method: http.MethodGet, URL: target, Host: key.Spec.Host,
		Header: http.Header{"User-Agent": {userAgent}},
	}
	response, err := roundTrip(ctx, a.http1, conn, request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // read as far as we care
	if response.StatusCode < 200 || response.StatusCode > 399 {
		return failure(fmt.Sprintf("status %d", response.StatusCode))
	}
	if _, err := io.CopyN(io.Discard, response.Body, maxBodyBytes); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// check is the probe of the mode grpc: one call of grpc.health.v1. It is made by hand, which
// takes a page: a grpc.ClientConn is made to last, with a resolver, a balancer and a record
// of its own for each probe, and warns of every connection that fails in the one log.
func (a *asker) check(ctx context.Context, conn net.Conn, key Key) error {
	message, err := proto.Marshal(&healthv1.HealthCheckRequest{Service: key.Spec.Service})
	if err != nil {
		return errUnaskable
	}
	scheme := "http"
	if key.Spec.TLS {
		scheme = "https"
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	request := &http.Request{
		Method: http.MethodPost, Host: key.Spec.Host,
		URL:           &url.URL{Scheme: scheme, Host: key.hostPort(), Path: healthv1.Health_Check_FullMethodName},
		Header:        http.Header{"User-Agent": {userAgent}, "Content-Type": {"application/grpc"}, "Te": {"trailers"}},
		Body:          io.NopCloser(bytes.NewReader(append(frame, message...))),
		ContentLength: int64(len(frame) + len(message)),
	}
	response, err := roundTrip(ctx, a.http2, conn, request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // read as far as we care
	switch {
	case response.StatusCode != http.StatusOK:
		return failure(fmt.Sprintf("status %d, which is no gRPC", response.StatusCode))
	case !strings.HasPrefix(response.Header.Get("Content-Type"), "application/grpc"):
		return failure("answers, but not in gRPC")
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxGRPCBytes+1))
	if err != nil {
		return err
	}
	status := response.Trailer.Get("Grpc-Status")
	if status == "" { // an answer without a message has it here
		status = response.Header.Get("Grpc-Status")
	}
	return serving(status, body)
}

// serving judges an answer of the health service.
func serving(status string, body []byte) error {
	code, err := strconv.ParseUint(status, 10, 8)
	switch {
	case err != nil || code > uint64(codes.Unauthenticated):
		return failure("no valid answer")
	case codes.Code(code) == codes.Unimplemented:
		return failure("has no grpc.health.v1.Health service (UNIMPLEMENTED)")
	case codes.Code(code) == codes.NotFound:
		return failure("its health service does not know the service asked for (NOT_FOUND)")
	case codes.Code(code) != codes.OK:
		return failure("gRPC status " + codes.Code(code).String())
	}
	var health healthv1.HealthCheckResponse
	if len(body) < 5 || len(body) > maxGRPCBytes || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-5 ||
		proto.Unmarshal(body[5:], &health) != nil {
		return failure("no valid answer")
	}
	if health.GetStatus() == healthv1.HealthCheckResponse_SERVING {
		return nil
	}
	return failure("health is " + health.GetStatus().String())
}

// roundTrip makes one request on a connection. A round trip, not a client: that is how no
// redirect is ever followed.
func roundTrip(ctx context.Context, transport *http.Transport, conn net.Conn, request *http.Request) (*http.Response, error) {
	client, err := transport.NewClientConn(context.WithValue(ctx, given{}, conn), request.URL.Scheme, request.URL.Host)
	if err != nil {
		return nil, err
	}
	return client.RoundTrip(request.WithContext(ctx))
}

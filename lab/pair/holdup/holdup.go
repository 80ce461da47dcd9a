// Package holdup is an HTTPS proxy in front of an API server that can keep one write of an
// EndpointSlice back, as a slow network or a slow API server does. It promises that the write
// goes on when it is told to, unchanged, whether or not its client still waits; it refuses
// to hold anything else up.
//
// The proxy of package apifault would not do: what it delays ends with its client.
package holdup

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/slicefeed/slicefeed/lab/pki"
)

// Options describe a proxy. All fields are mandatory.
type Options struct {
	Upstream   string // URL of the API server
	UpstreamCA []byte // PEM, which its certificate is verified with
	Listen     netip.Addr
}

// Proxy is a proxy that listens. Its methods may be called from any goroutine; its owner
// closes it.
type Proxy struct {
	url     string
	ca      []byte
	forward *httputil.ReverseProxy
	server  *http.Server
	serving sync.WaitGroup
	closed  chan struct{}

	mu   sync.Mutex
	next *Held // which the next write becomes
}

// Held is a write that is kept back.
type Held struct {
	// Slice is what it wants written, and Method how. They may be read once Arrived is closed.
	Slice  *discoveryv1.EndpointSlice // nil: it deletes
	Method string

	arrived, released chan struct{}
	status            chan int
}

// Start listens and serves until Close.
func Start(o Options) (*Proxy, error) {
	upstream, err := url.Parse(o.Upstream)
	if err != nil {
		return nil, fmt.Errorf("proxy in front of %q: %w", o.Upstream, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(o.UpstreamCA) {
		return nil, fmt.Errorf("proxy in front of %s: its CA is no PEM", o.Upstream)
	}
	leaf, ca, err := certify(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("proxy in front of %s: %w", o.Upstream, err)
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(o.Listen, 0).String())
	if err != nil {
		return nil, fmt.Errorf("proxy in front of %s: %w", o.Upstream, err)
	}
	quiet := log.New(io.Discard, "", 0) // clients that break off are no news here
	p := &Proxy{
		url: "https://" + listener.Addr().String(), ca: ca, closed: make(chan struct{}),
		forward: &httputil.ReverseProxy{
			Transport: &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, DisableCompression: true,
			},
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(upstream)
				r.SetXForwarded() // for the audit log
			},
			FlushInterval: -1, ErrorLog: quiet,
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		},
	}
	p.server = &http.Server{
		Handler: p, TLSConfig: &tls.Config{Certificates: []tls.Certificate{leaf}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: time.Minute, ErrorLog: quiet,
	}
	p.serving.Go(func() { _ = p.server.ServeTLS(listener, "", "") }) // it ends with Close
	return p, nil
}

func certify(listen netip.Addr) (leaf tls.Certificate, caPEM []byte, err error) {
	ca, err := pki.NewCA("proxy in front of an API server")
	if err != nil {
		return leaf, nil, err
	}
	pair, err := ca.Issue(pki.Cert{CommonName: "proxy", Usage: pki.Server, IPs: []netip.Addr{listen}})
	if err != nil {
		return leaf, nil, err
	}
	leaf, err = tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	return leaf, ca.PEM(), err
}

// URL is where clients find the proxy.
func (p *Proxy) URL() string { return p.url }

// CA is in PEM form what clients have to trust.
func (p *Proxy) CA() []byte { return p.ca }

// Hold keeps the next write of an EndpointSlice back. One at a time.
func (p *Proxy) Hold() *Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = &Held{arrived: make(chan struct{}), released: make(chan struct{}), status: make(chan int, 1)}
	return p.next
}

// Arrived is closed when the write is here.
func (h *Held) Arrived() <-chan struct{} { return h.arrived }

// Release lets the write go on, and returns the HTTP status that the API server answers.
// Once only.
func (h *Held) Release(ctx context.Context) (status int, err error) {
	close(h.released)
	select {
	case status = <-h.status:
		if status == 0 {
			err = errors.New("let a write go on: the API server gave no answer")
		}
		return status, err
	case <-ctx.Done():
		return 0, fmt.Errorf("let a write go on: %w", context.Cause(ctx))
	}
}

// Close ends all connections, and what is still kept back, and waits.
func (p *Proxy) Close() error {
	close(p.closed)
	err := p.server.Close()
	p.serving.Wait()
	return err
}

// ServeHTTP passes a request on, now or later.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.serving.Add(1)
	defer p.serving.Done()
	held := p.holds(r)
	if held == nil {
		p.forward.ServeHTTP(w, r)
		return
	}
	status := 0
	defer func() { held.status <- status }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	held.Method = r.Method
	if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		held.Slice, _ = object.(*discoveryv1.EndpointSlice)
	}
	close(held.arrived)
	select {
	case <-held.released:
	case <-p.closed:
		panic(http.ErrAbortHandler)
	}
	r = r.WithContext(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.forward.ServeHTTP(noted{w, &status}, r)
}

// holds returns what the request becomes if it is the one to be kept back.
func (p *Proxy) holds(r *http.Request) *Held {
	if r.Method == http.MethodGet || !strings.Contains(r.URL.Path, "/endpointslices") {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.next
	p.next = nil
	return held
}

// noted notes the status of an answer.
type noted struct {
	http.ResponseWriter

	status *int
}

// WriteHeader implements http.ResponseWriter.
func (n noted) WriteHeader(status int) {
	*n.status = status
	n.ResponseWriter.WriteHeader(status)
}

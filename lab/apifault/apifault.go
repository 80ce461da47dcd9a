// Package apifault is an HTTPS proxy between a client and a real kube-apiserver that can be
// told at any moment how to fail. It promises HTTP/2 to the client, credentials passed on
// unchanged, and that every request it saw is on record; it refuses to change a single
// object: what it lets through is the real server's word.
//
// A proxy of TCP connections, such as toxiproxy, would not do. One HTTP/2 connection carries
// the watches together with all else, so it cannot silence a watch and let a LIST pass,
// which is the fault that matters most here.
package apifault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/lab/pki"
)

// Fault is how the API server fails. The zero value: not at all.
type Fault struct {
	// BlackHole: connections stay open, and new ones are accepted, but not a byte comes through
	// in either direction. What is held up comes through when it ends.
	BlackHole bool
	// Silent: watches stay open and say nothing, also new ones. What they would have
	// said comes when it ends.
	Silent bool
	// Delay is how long each request waits before it is passed on.
	Delay time.Duration
	// Refuse is the HTTP status that each LIST is answered with, such as 429 or 500; 0: the true answer.
	Refuse int
	// RefuseWrites is the HTTP status that each write, of Resource if that is set (such as
	// endpointslices), is answered with; 0: the true answer.
	RefuseWrites int
	Resource     string
	// Lose: what RefuseWrites refuses is done all the same, and only the true answer is lost.
	Lose bool
	// RetryAfter goes with both of them, in whole seconds; 0: the header is absent.
	RetryAfter time.Duration
	// WatchesLast is after how long each watch ends, in due form; those that are open end at
	// once. 0: as the API server has it.
	WatchesLast time.Duration
	// Torn: the snapshot that a continue token names has always gone meanwhile (410).
	Torn bool
	// PageLimit is the most objects in a page of a LIST that asks for pages; 0: as many as it asks for.
	PageLimit int
}

// Options describe a proxy. All fields are mandatory.
type Options struct {
	Upstream   string // URL of the API server; the proxy listens at the same address, on a free port
	UpstreamCA []byte // PEM, which its certificate is verified with
}

// Proxy is a proxy that listens. Its methods may be called from any goroutine; its owner
// closes it.
type Proxy struct {
	url       string
	ca        []byte
	upstream  *url.URL
	transport *http.Transport
	server    *http.Server
	stop      chan struct{} // closed by Close
	close     sync.Once
	serving   sync.WaitGroup

	mu       sync.Mutex
	stopped  bool
	fault    Fault
	holdNext *HeldWrite    // what the next write of an EndpointSlice becomes
	expire   int           // watches that are still to be told that they are too old
	changed  chan struct{} // closed and replaced when anything above or about an exchange changes
	requests []*exchange
	forgot   int // requests that are no longer on record
}

// Start listens and serves until Close.
func Start(o Options) (*Proxy, error) {
	upstream, err := url.Parse(o.Upstream)
	if err != nil || upstream.Scheme != "https" {
		return nil, fmt.Errorf("proxy in front of %q: expected an https URL", o.Upstream)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(o.UpstreamCA) {
		return nil, fmt.Errorf("proxy in front of %s: its CA is no PEM", o.Upstream)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(upstream.Hostname(), "0"))
	if err != nil {
		return nil, fmt.Errorf("proxy in front of %s: %w", o.Upstream, err)
	}
	p := &Proxy{
		url: "https://" + listener.Addr().String(), upstream: upstream,
		stop: make(chan struct{}), changed: make(chan struct{}),
		transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true, DisableCompression: true, // what the client accepts is its own affair
		},
	}
	leaf, err := p.certify(listener.Addr())
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	p.server = &http.Server{
		Handler:           p,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{leaf}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // clients that break off are no news here
	}
	p.serving.Go(func() { // it ends with Close, and then says no more than that
		_ = p.server.ServeTLS(gatedListener{listener, p}, "", "")
	})
	return p, nil
}

// certify makes a certificate for the address, of an authority of its own.
func (p *Proxy) certify(listening net.Addr) (tls.Certificate, error) {
	at, err := netip.ParseAddrPort(listening.String())
	if err != nil {
		return tls.Certificate{}, err
	}
	ca, err := pki.NewCA("proxy in front of an API server")
	if err != nil {
		return tls.Certificate{}, err
	}
	p.ca = ca.PEM()
	pair, err := ca.Issue(pki.Cert{CommonName: "proxy", Usage: pki.Server, IPs: []netip.Addr{at.Addr()}})
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
}

// URL is where clients find the proxy.
func (p *Proxy) URL() string { return p.url }

// CA is in PEM form what clients have to trust.
func (p *Proxy) CA() []byte { return p.ca }

// Set has the API server fail in this way from now on, also for what is under way, and in
// no other.
func (p *Proxy) Set(f Fault) {
	p.change(func() {
		p.fault = f
		if f.WatchesLast > 0 {
			p.endWatches()
		}
	})
}

// Forget silences the watches that are open now for good, as a middlebox does that has lost
// its state: they stay open and say nothing, new ones work.
func (p *Proxy) Forget() {
	p.change(func() {
		for _, x := range p.requests {
			x.forgotten = x.forgotten || x.seen.Verb == Watch && !x.seen.Over
		}
	})
}

// Expire ends all watches that are open, and tells the next ones, so many, that the
// resourceVersion they want to go on from is too old (410): whoever hears it has to read anew.
func (p *Proxy) Expire(next int) {
	p.change(func() {
		p.expire = next
		p.endWatches()
	})
}

// endWatches needs mu.
func (p *Proxy) endWatches() {
	for _, x := range p.requests {
		if x.seen.Verb == Watch && !x.seen.Over {
			x.end()
		}
	}
}

// Close ends all connections, those that are held up too, and waits.
func (p *Proxy) Close() error {
	var err error
	p.close.Do(func() {
		p.change(func() { p.stopped = true })
		close(p.stop)
		err = p.server.Close()
		p.serving.Wait()
		p.transport.CloseIdleConnections()
	})
	return err
}

func (p *Proxy) change(what func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what()
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait waits as long as something is held up. It reports false if done, which may be nil, was
// closed before.
func (p *Proxy) wait(held func() bool, done <-chan struct{}) bool {
	for {
		p.mu.Lock()
		is, changed := held(), p.changed
		p.mu.Unlock()
		if !is {
			return true
		}
		select {
		case <-changed:
		case <-done:
			return false
		case <-p.stop:
			return false
		}
	}
}

// ServeHTTP takes one request to the API server, or answers as the fault has it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	x, fault := p.begin(r, cancel)
	if x == nil {
		panic(http.ErrAbortHandler)
	}
	defer p.serving.Done()
	defer p.change(x.finish)
	if x.held != nil {
		if r = x.held.keepBack(r, p.stop); r == nil {
			panic(http.ErrAbortHandler)
		}
		ctx, cancel = context.WithCancel(r.Context())
		defer cancel()
	}
	if !pause(ctx, fault.Delay, p.stop) {
		panic(http.ErrAbortHandler)
	}
	status, refusal := x.refused(fault)
	lost := status != 0 && fault.Lose && x.writes()
	if status != 0 && !lost {
		p.refuse(w, x, fault, status, refusal)
		return
	}
	if x.seen.Verb == Watch && fault.WatchesLast > 0 {
		timer := time.AfterFunc(fault.WatchesLast, func() { p.change(x.end) })
		defer timer.Stop()
	}
	forward := httputil.ReverseProxy{
		Transport: p.transport, FlushInterval: -1, ErrorLog: p.server.ErrorLog,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(p.upstream)
			r.SetXForwarded() // an audit log then names the client
			r.Out.URL.RawQuery = x.paged(r.In.URL.RawQuery, fault)
		},
		ModifyResponse: func(answer *http.Response) error {
			p.change(func() { x.seen.Status = answer.StatusCode })
			answer.Body = &body{answer.Body, p, x, ctx}
			return nil
		},
		// An API server that is away answers nothing, least of all 502.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	if lost {
		forward.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		p.refuse(w, x, fault, status, refusal)
		return
	}
	forward.ServeHTTP(w, r.WithContext(ctx))
}

// refuse answers instead of the API server.
func (p *Proxy) refuse(w http.ResponseWriter, x *exchange, fault Fault, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	if fault.RetryAfter > 0 && (status == fault.Refuse || status == fault.RefuseWrites) {
		w.Header().Set("Retry-After", strconv.Itoa(int(fault.RetryAfter.Seconds())))
	}
	p.change(func() { x.seen.Status = status })
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has gone
}

func pause(ctx context.Context, d time.Duration, stop <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	}
}

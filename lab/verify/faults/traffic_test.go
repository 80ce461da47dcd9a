package faults

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/client"
)

const (
	lanes           = 20 // every second one keeps its connections
	requestInterval = 400 * time.Millisecond
	requestTimeout  = 5 * time.Second
	// maxRequests is how many requests a kept connection serves. Then the lane chooses from the slices again.
	maxRequests = 15
)

// traffic is everyone who uses the Service: fifty requests a second, in steady lanes, each to an endpoint that the
// slices of that moment list. Half of the lanes keep a connection as long as its endpoint is listed and serves, as
// kube-proxy does.
type traffic struct {
	slices   func() []*discoveryv1.EndpointSlice
	backend  func(netip.Addr) string // its name
	requests atomic.Int64

	cancel context.CancelFunc
	all    sync.WaitGroup
	mu     sync.Mutex
	failed []client.Request
}

func startTraffic(ctx context.Context, e *env) *traffic {
	ctx, cancel := context.WithCancel(ctx)
	tr := &traffic{slices: e.Now, backend: func(a netip.Addr) string { return e.Truth(a).Name }, cancel: cancel}
	for n := range lanes {
		tr.all.Go(func() { tr.runLane(ctx, n) })
	}
	return tr
}

// stop returns when the last request is over.
func (tr *traffic) stop() []client.Request {
	tr.cancel()
	tr.all.Wait()
	return tr.failed
}

func (tr *traffic) runLane(ctx context.Context, n int) {
	wait(ctx, requestInterval*time.Duration(n)/lanes) // the lanes share the time evenly
	l := lane{keep: n%2 == 0}
	defer l.hangUp()
	tick := time.NewTicker(requestInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		tr.request(&l)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// request takes no context: the end of the row does not fail it.
func (tr *traffic) request(l *lane) {
	r := client.Request{Began: time.Now()}
	now := tr.slices()
	tr.requests.Add(1)
	if !l.mayReuse(now) {
		l.hangUp()
		to, ok := client.Choose(now)
		if !ok {
			r.Ended = time.Now()
			tr.addFailed(r)
			return
		}
		l.dial(to.Addr())
	}
	r.To = l.to
	r.AnsweredBy, r.Err = l.get()
	r.Ended = time.Now()
	if r.Err != nil || r.AnsweredBy != tr.backend(r.To) {
		tr.addFailed(r)
		l.hangUp()
	}
}

func (tr *traffic) addFailed(r client.Request) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.failed = append(tr.failed, r)
}

// lane has at most one connection.
type lane struct {
	keep  bool
	to    netip.Addr
	used  int
	http  *http.Client
	close func()
}

// mayReuse reports whether the open connection may serve another request.
func (l *lane) mayReuse(now []*discoveryv1.EndpointSlice) bool {
	if l.http == nil || !l.keep || l.used >= maxRequests {
		return false
	}
	condition := pair.Conditions(now)[l.to]
	return condition == pair.Ready || condition == pair.Draining
}

// dial connects to the backend itself, whatever port the slices list: there is a proxy for the probes.
func (l *lane) dial(to netip.Addr) {
	at := netip.AddrPortFrom(to, pair.NodePort).String()
	transport := &http.Transport{
		DisableKeepAlives: !l.keep, MaxConnsPerHost: 1,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, at)
		},
	}
	l.to, l.used = to, 0
	l.http = &http.Client{Timeout: requestTimeout, Transport: transport}
	l.close = transport.CloseIdleConnections
}

func (l *lane) hangUp() {
	if l.http != nil {
		l.close()
		l.http = nil
	}
}

// get returns the name of the backend that answered.
func (l *lane) get() (string, error) {
	l.used++
	return client.Ask(l.http, l.to.String())
}

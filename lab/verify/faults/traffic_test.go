package faults

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
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
	failed []failedRequest
}

type failedRequest struct {
	began, ended time.Time
	to           netip.Addr // invalid: no endpoint was listed
	answeredBy   string
	err          error
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
func (tr *traffic) stop() []failedRequest {
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
	r := failedRequest{began: time.Now()}
	now := tr.slices()
	tr.requests.Add(1)
	if !l.mayReuse(now) {
		l.hangUp()
		to, ok := client.Choose(now)
		if !ok {
			r.ended = time.Now()
			tr.addFailed(r)
			return
		}
		l.dial(to.Addr())
	}
	r.to = l.to
	r.answeredBy, r.err = l.get()
	r.ended = time.Now()
	if r.err != nil || r.answeredBy != tr.backend(r.to) {
		tr.addFailed(r)
		l.hangUp()
	}
}

func (tr *traffic) addFailed(r failedRequest) {
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

func TestKeepsConnectionWhileEndpointServes(t *testing.T) {
	yes, no := true, false
	here := netip.MustParseAddr("10.0.1.1")
	listed := func(ready, serving, terminating *bool) []*discoveryv1.EndpointSlice {
		return []*discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{
			{
				Addresses: []string{
					here.String(),
				},
				Conditions: discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating},
			},
		}}}
	}
	open := lane{keep: true, to: here, http: &http.Client{}}
	worn, single, closed := open, open, open
	worn.used, single.keep, closed.http = maxRequests, false, nil
	for _, c := range []struct {
		name string
		lane lane
		now  []*discoveryv1.EndpointSlice
		want bool
	}{
		{"ready", open, listed(&yes, &yes, &no), true},
		{"draining", open, listed(&no, &yes, &yes), true},
		{"not ready", open, listed(&no, &no, &no), false},
		{"not listed", open, nil, false},
		{"after many requests", worn, listed(&yes, &yes, &no), false},
		{"a lane that keeps none", single, listed(&yes, &yes, &no), false},
		{"no connection", closed, listed(&yes, &yes, &no), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.lane.mayReuse(c.now); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

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
	lanes = 20 // each a caller that waits for its answer; half of them keep their connections
	pace  = 400 * time.Millisecond
	limit = 5 * time.Second // of a request
	// keeps is how many requests a kept connection serves before it is made anew, so that it is a choice of
	// the slices again.
	keeps = 15
)

// load is everyone who uses the Service: fifty requests a second, in steady lanes, each to an endpoint
// that the slices of that moment offer. Half of the lanes keep their connections as long as the
// endpoint is listed and serves, as kube-proxy does.
type load struct {
	slices   func() []*discoveryv1.EndpointSlice
	name     func(netip.Addr) string // of the backend that ought to be there
	requests atomic.Int64

	mu   sync.Mutex
	lost []loss
}

// loss is a request that failed.
type loss struct {
	began, ended time.Time
	to           netip.Addr // invalid: none was offered
	by           string     // the backend that answered, if one did
	err          error
}

// run sends requests until ctx ends, and returns when the last is over.
func (l *load) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for n := range lanes {
		all.Go(func() { l.lane(ctx, n) })
	}
}

// lane is one caller.
func (l *load) lane(ctx context.Context, n int) {
	select { // the lanes share out the time
	case <-time.After(pace * time.Duration(n) / lanes):
	case <-ctx.Done():
		return
	}
	kept := caller{keep: n%2 == 0}
	defer kept.hangUp()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		l.request(&kept)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// request takes no context: it ends by its own limit, so that the end of the row does not fail it.
func (l *load) request(c *caller) {
	one := loss{began: time.Now()}
	now := l.slices()
	l.requests.Add(1)
	if !c.may(now) {
		c.hangUp()
		to, ok := client.Choose(now)
		if !ok {
			one.ended = time.Now()
			l.lose(one)
			return
		}
		c.dial(to.Addr())
	}
	one.to = c.to
	one.by, one.err = c.get()
	one.ended = time.Now()
	if one.err != nil || one.by != l.name(one.to) {
		l.lose(one)
		c.hangUp()
	}
}

func (l *load) lose(one loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = append(l.lost, one)
}

// caller has one connection at most.
type caller struct {
	keep  bool
	to    netip.Addr
	used  int
	http  *http.Client
	close func()
}

// may reports whether the open connection may be used once more.
func (c *caller) may(now []*discoveryv1.EndpointSlice) bool {
	if c.http == nil || !c.keep || c.used >= keeps {
		return false
	}
	is := pair.Conditions(now)[c.to]
	return is == pair.Ready || is == pair.Draining
}

func (c *caller) dial(to netip.Addr) {
	at := netip.AddrPortFrom(to, pair.NodePort).String()
	transport := &http.Transport{
		DisableKeepAlives: !c.keep, MaxConnsPerHost: 1,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, at)
		},
	}
	c.to, c.used = to, 0
	c.http = &http.Client{Timeout: limit, Transport: transport}
	c.close = transport.CloseIdleConnections
}

func (c *caller) hangUp() {
	if c.http != nil {
		c.close()
		c.http = nil
	}
}

// get returns the name that the backend gave itself.
func (c *caller) get() (string, error) {
	c.used++
	return client.Ask(c.http, c.to.String())
}

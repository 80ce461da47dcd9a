// Package client stands for everyone who uses the Service: it sends requests at a steady
// pace to endpoints that it chooses from the slices as kube-proxy would, and says of each
// failure whose fault it was. It promises to know the truth only afterwards, for the
// judgement; it refuses to retry.
package client

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
)

// Config describes a client. All fields are mandatory.
type Config struct {
	Slices func() []*discoveryv1.EndpointSlice // as the API server's watch tells them
	Truth  func(address netip.Addr) Truth
	Every  time.Duration // between two requests
	Limit  time.Duration // for one request
}

// Truth is what really became of the backend at an address.
type Truth struct {
	Known  bool // there is or was a backend
	Name   string
	Deaths []Death // in their order
}

// Death is a time in which a backend did not answer.
type Death struct {
	From  time.Time
	To    time.Time     // zero: still dead
	Bound time.Duration // within which it has to be found out
}

// Tally is how the requests went.
type Tally struct {
	Requests int
	OK       int
	// Wrong met an endpoint that no slice should have offered: one that never was a
	// backend, or that had been dead for longer than its bound; or there was none at all.
	Wrong int
	// JustDied is what no slice can prevent: the backend had died less than its bound ago, or died meanwhile; or no backend
	// lived.
	JustDied int
	// Other failed though the backend lived: nobody's slice was wrong, yet nobody should be content.
	Other int
	// Examples are the first few failures that were wrong or other, for people.
	Examples []string
}

// Client sends requests while Run runs.
type Client struct {
	cfg  Config
	http *http.Client

	mu     sync.Mutex
	tally  Tally
	flying map[int]chan struct{} // requests under way, by number
}

// New returns a client.
func New(cfg Config) *Client {
	return &Client{
		cfg:    cfg,
		flying: map[int]chan struct{}{},
		// A connection for each request: one that stays open would be no choice of the slices.
		http: &http.Client{Timeout: cfg.Limit, Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

// Run sends requests until ctx ends, and returns when the last one is over.
func (c *Client) Run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Every)
	defer tick.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		over := make(chan struct{})
		c.mu.Lock()
		c.flying[n] = over
		c.mu.Unlock()
		all.Go(func() {
			c.request()
			c.mu.Lock()
			delete(c.flying, n)
			c.mu.Unlock()
			close(over)
		})
	}
}

// Settle returns when the requests that are under way now are over: those to come choose
// from the slices as they are now, or newer ones.
func (c *Client) Settle(ctx context.Context) error {
	c.mu.Lock()
	flying := make([]chan struct{}, 0, len(c.flying))
	for _, over := range c.flying {
		flying = append(flying, over)
	}
	c.mu.Unlock()
	for _, over := range flying {
		select {
		case <-over:
		case <-ctx.Done():
			return fmt.Errorf("wait for requests under way: %w", context.Cause(ctx))
		}
	}
	return nil
}

// Tally returns how the requests that are over went.
func (c *Client) Tally() Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	tally := c.tally
	tally.Examples = append([]string(nil), tally.Examples...)
	return tally
}

// request takes no context: it ends by its own limit, so that Run's end does not fail it.
func (c *Client) request() {
	r := Request{Began: time.Now()}
	if address, ok := Choose(c.cfg.Slices()); ok {
		r.To = address.Addr()
		r.AnsweredBy, r.Err = Ask(c.http, address.String())
	}
	r.Ended = time.Now()
	cause, why := Judge{Truth: c.cfg.Truth}.Cause(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.count(r, cause, why)
}

// Ask sends a backend a request, and returns the name that it gave itself.
func Ask(by *http.Client, at string) (name string, err error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+at+"/", nil)
	if err != nil {
		return "", err
	}
	response, err := by.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("answered %s", response.Status)
	}
	return response.Header.Get(backend.NameHeader), nil
}

// Request is one that is over.
type Request struct {
	Began, Ended time.Time
	To           netip.Addr // invalid: no endpoint was listed
	AnsweredBy   string
	Err          error
}

// Cause is how a request ended, and why.
type Cause uint8

// The causes.
const (
	Fine Cause = iota
	Wrong
	JustDied
	Other
)

// Count judges requests, and adds them up.
func (j Judge) Count(all []Request) (t Tally) {
	for _, r := range all {
		cause, why := j.Cause(r)
		t.count(r, cause, why)
	}
	return t
}

func (t *Tally) count(r Request, cause Cause, why string) {
	t.Requests++
	switch cause {
	case Fine:
		t.OK++
	case Wrong:
		t.Wrong++
	case JustDied:
		t.JustDied++
	case Other:
		t.Other++
	}
	if why != "" && len(t.Examples) < 5 {
		t.Examples = append(t.Examples, fmt.Sprintf("%s %s: %s (%v)", r.Began.Format("15:04:05.000"), r.To, why, r.Err))
	}
}

// Judge says whose fault the end of a request was. It has to know the truth of the time of the request.
type Judge struct {
	Truth    func(address netip.Addr) Truth
	AnyAlive func(time.Time) bool // whether any backend that could be listed answered then; nil: one always did
	// No writer could write in this time.
	NoWritesFrom, NoWritesTo time.Time
	Allowance                time.Duration // added to the bound of each death
}

// Cause returns the cause, and for people why, unless nobody could have done better.
func (j Judge) Cause(r Request) (Cause, string) {
	anyAlive := j.AnyAlive == nil || j.AnyAlive(r.Began)
	if !r.To.IsValid() {
		if anyAlive {
			return Wrong, "no endpoint was listed, but a backend was alive"
		}
		return JustDied, ""
	}
	truth := j.Truth(r.To)
	switch {
	case !truth.Known:
		return Wrong, "there never was a backend"
	case r.Err == nil && r.AnsweredBy != truth.Name:
		return Wrong, fmt.Sprintf("answered by %s, want %s", r.AnsweredBy, truth.Name)
	case r.Err == nil:
		return Fine, ""
	}
	for _, death := range truth.Deaths {
		if death.From.After(r.Ended) || !death.To.IsZero() && death.To.Before(r.Began) {
			continue
		}
		if due := j.due(death); r.Began.After(due) && anyAlive { // else there was no better endpoint
			return Wrong, fmt.Sprintf("dead since %s, detection was due at %s", death.From.Format("15:04:05.000"),
				due.Format("15:04:05.000"))
		}
		return JustDied, ""
	}
	return Other, "the backend was alive and listed"
}

// due is when the slices have to show a death at the latest. One that was not written before writing became impossible
// may have to wait until it is possible again.
func (j Judge) due(death Death) time.Time {
	from, bound := death.From, death.Bound+j.Allowance
	if !j.NoWritesTo.IsZero() && from.Add(bound).After(j.NoWritesFrom) && from.Before(j.NoWritesTo) {
		from = j.NoWritesTo
	}
	return from.Add(bound)
}

// Choose picks an endpoint at random as kube-proxy would: among all ready ones; if there
// is none, among those that serve and terminate. What a slice does not say counts as yes.
func Choose(slices []*discoveryv1.EndpointSlice) (netip.AddrPort, bool) {
	var ready, draining []netip.AddrPort
	for _, slice := range slices {
		if len(slice.Ports) == 0 || slice.Ports[0].Port == nil {
			continue
		}
		port := uint16(*slice.Ports[0].Port)
		for _, endpoint := range slice.Endpoints {
			address, err := netip.ParseAddr(endpoint.Addresses[0])
			if err != nil {
				continue
			}
			is := endpoint.Conditions
			switch {
			case is.Ready == nil || *is.Ready:
				ready = append(ready, netip.AddrPortFrom(address, port))
			case (is.Serving == nil || *is.Serving) && is.Terminating != nil && *is.Terminating:
				draining = append(draining, netip.AddrPortFrom(address, port))
			}
		}
	}
	if len(ready) == 0 {
		ready = draining
	}
	if len(ready) == 0 {
		return netip.AddrPort{}, false
	}
	return ready[rand.IntN(len(ready))], true
}

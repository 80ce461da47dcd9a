package apis

import (
	"context"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/apifault"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// clinic is a setup whose writer reaches the consuming API server through a proxy.
type clinic struct {
	*e2e.Setup

	proxy *apifault.Proxy
	stay  []*pair.Worker // they work all the time
}

// fault is one row: how the API server is ill, and what that may lead to.
type fault struct {
	name  string
	proxy apifault.Fault
	// apply and lift are for a fault that is not the proxy's.
	apply, lift func(*clinic)
	lasts       time.Duration // from the first attempt on that meets it
	most        int           // requests for single slices, reads included, until it ends
	long        bool          // another row is of the same class
	log         string        // what the writer's log says
	event       string        // the reason of an Event on the Service, if there is one
	// also is what else must be so; the requests are those from the fault's beginning until
	// the slices were right.
	also func(c *clinic, requests []apifault.Request)
}

func TestTheConsumingAPIServerIsIll(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	c := &clinic{Setup: s, proxy: s.Behind(s.Writers[0])}
	s.StartAll()
	c.stay = c.Join(2)

	const slices = "endpointslices"
	const asked = 6 * time.Second // longer than a request may take
	for _, row := range []fault{
		{
			name: "writes answered 409", proxy: apifault.Fault{RefuseWrites: http.StatusConflict, Resource: slices},
			lasts: 3 * time.Second, most: 24, log: "slice write delayed",
		},
		{
			name: "writes answered 422", proxy: apifault.Fault{RefuseWrites: http.StatusUnprocessableEntity, Resource: slices},
			lasts: 3 * time.Second, most: 4, log: "the server was told to refuse writes", event: "WriteRejected",
		},
		{
			name: "writes answered 429 with Retry-After", proxy: apifault.Fault{RefuseWrites: http.StatusTooManyRequests, RetryAfter: asked},
			lasts: 2 * time.Second, most: 1, log: "slice write delayed",
			also: func(c *clinic, requests []apifault.Request) {
				writes := ofSlices(requests, http.MethodPut, http.MethodPost)
				if len(writes) != 2 || writes[1].At.Sub(writes[0].At) < asked {
					c.T.Errorf("the writes were %+v, want two, %s apart", writes, asked)
				}
			},
		},
		{
			name: "watches that end again and again", proxy: apifault.Fault{WatchesLast: 100 * time.Millisecond},
			lasts: 4 * time.Second, most: 4, log: "watch",
			apply: func(c *clinic) { c.edit() },
			also: func(c *clinic, requests []apifault.Request) {
				n := 0
				for _, r := range requests {
					if r.Verb == apifault.Watch || r.Verb == apifault.List {
						n++
					}
				}
				c.T.Logf("%d watches and lists", n)
				if n == 0 || n > 40 {
					c.T.Errorf("%d watches and lists: none has ended, or it is a hot loop", n)
				}
			},
		},
		{
			name: "writes made, and their answers lost", proxy: apifault.Fault{RefuseWrites: http.StatusInternalServerError, Resource: slices, Lose: true},
			lasts: 3 * time.Second, most: 4, log: "outcome unknown",
			also: func(c *clinic, requests []apifault.Request) {
				if writes := ofSlices(requests, http.MethodPut, http.MethodPost); len(writes) != 1 {
					c.T.Errorf("the writes were %+v, want the one that was made", writes)
				}
			},
		},
		{
			// Not right after the last one for all writes: the Lease has to be renewed between them.
			name: "writes answered 500", proxy: apifault.Fault{RefuseWrites: http.StatusInternalServerError},
			lasts: 4 * time.Second, most: 8, log: "slice write failed, retrying", long: true,
		},
		{
			name: "etcd too slow", lasts: 6 * time.Second, most: 6, log: "slice write failed, retrying",
			apply: func(c *clinic) { c.Must(c.Consuming.Signal(controlplane.Etcd, syscall.SIGSTOP)) },
			lift:  func(c *clinic) { c.Must(c.Consuming.Signal(controlplane.Etcd, syscall.SIGCONT)) },
		},
	} {
		s.Step(row.name, func(s *e2e.Setup) {
			if row.long {
				e2e.Long(s.T)
			}
			inner := *c
			inner.Setup = s
			inner.suffer(row)
		})
	}
}

// suffer has a worker join while the API server is ill.
func (c *clinic) suffer(row fault) {
	c.T.Helper()
	said := len(c.LogOf(c.Writers[0]))
	lift := func() {
		if row.lift != nil {
			row.lift(c)
		}
		c.proxy.Set(apifault.Fault{})
	}
	healthy := false
	defer func() {
		if !healthy { // the next test wants it well
			lift()
		}
	}()
	began, mark := time.Now(), c.proxy.Count()
	c.proxy.Set(row.proxy)
	if row.apply != nil {
		row.apply(c)
	}
	late := c.Machine(pair.WorkerOptions{})
	c.Must(late.Join(c.Ctx()))
	var first time.Time
	c.Until("a write is tried", func() bool {
		writes := ofSlices(c.proxy.RequestsSince(mark), http.MethodPut, http.MethodPost)
		if len(writes) > 0 {
			first = writes[0].At
		}
		return len(writes) > 0
	})
	c.Until("the fault has lasted", func() bool { return time.Since(first) >= row.lasts })
	if n := len(ofSlices(c.proxy.RequestsSince(mark))); n > row.most {
		c.T.Errorf("%d requests for slices within %s, want at most %d", n, row.lasts, row.most)
	} else {
		c.T.Logf("%d requests for slices within %s", n, row.lasts)
	}
	lift()
	healthy = true
	lifted := time.Now()
	right := pair.AreJust(pair.Ready, append(e2e.Addresses(c.stay), late.Address)...)
	_, err := c.WaitSlices(c.Ctx(), right)
	c.Must(err)
	c.T.Logf("right %s after its end", time.Since(lifted).Round(time.Millisecond))
	c.kept(began)
	if row.event != "" {
		c.AwaitEvent(row.event)
	}
	if log := c.LogOf(c.Writers[0])[said:]; !strings.Contains(log, row.log) {
		c.T.Errorf("the log does not say %q:\n%s", row.log, log)
	}
	if row.also != nil {
		row.also(c, c.proxy.RequestsSince(mark))
	}
	c.Must(late.Leave(c.Ctx()))
	c.Await("it has left", pair.AreJust(pair.Ready, e2e.Addresses(c.stay)...))
}

// kept wants the workers that stay to have been ready in every state of the slices since then.
func (c *clinic) kept(since time.Time) {
	c.T.Helper()
	past, cancel := context.WithCancel(c.T.Context())
	cancel()
	lost := func(all []*discoveryv1.EndpointSlice) bool {
		return !pair.Are(pair.Ready, e2e.Addresses(c.stay)...)(all)
	}
	if after, err := c.WaitSlicesSince(past, since, lost); err == nil {
		c.T.Errorf("after %s an endpoint that works was lost", after)
	}
}

// edit adds an address to our slice, as a person might.
func (c *clinic) edit() {
	c.T.Helper()
	slice := c.GetSlice(c.Slice().Name)
	slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.1.250"}})
	c.UpdateSlice(slice)
}

// ofSlices are the requests for single slices, of these verbs if any are given.
func ofSlices(requests []apifault.Request, verbs ...string) []apifault.Request {
	var some []apifault.Request
	for _, r := range requests {
		if !strings.Contains(r.Path, "/endpointslices") || r.Verb == apifault.List || r.Verb == apifault.Watch {
			continue
		}
		wanted := len(verbs) == 0
		for _, verb := range verbs {
			wanted = wanted || r.Verb == verb
		}
		if wanted {
			some = append(some, r)
		}
	}
	return some
}

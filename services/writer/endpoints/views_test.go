package endpoints

import (
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestViewsCompareDesiredWithCurrent(t *testing.T) {
	inSync := func(w *viewCase) {
		w.target.Input.Current = []verdict.CurrentEndpoint{
			{Address: mustParseAddr("10.0.0.1"), Conditions: ready},
			{Address: mustParseAddr("10.0.0.2"), Conditions: ready, Source: "default"},
		}
	}
	listed := func(number int32, endpoints ...discoveryv1.Endpoint) func(*viewCase) {
		return func(w *viewCase) {
			w.target.ManagedBy = "slicefeed-default"
			w.target.Slices = append(w.target.Slices, newSlice(w.target, []discoveryv1.EndpointPort{newPort("http", number)}, endpoints...))
		}
	}
	one := newEndpoint(mustParseAddr("10.0.0.1"), ready)
	for _, c := range []struct {
		name   string
		alter  func(*viewCase)
		differ []string // addresses
		ports  bool
		never  bool // nothing may be written
	}{
		{"all is as decided", func(*viewCase) {}, nil, false, false},
		{"nothing is written yet", func(w *viewCase) { w.target.Input.Current = nil }, []string{"10.0.0.1", "10.0.0.2"}, false, false},
		{"other conditions", func(w *viewCase) { w.target.Input.Current[1].Conditions = draining }, []string{"10.0.0.2"}, false, false},
		{"another source", func(w *viewCase) { w.target.Input.Current[0].Source = "blue" }, []string{"10.0.0.1"}, false, false},
		{"another zone", func(w *viewCase) { w.target.Input.Current[0].Zone = "z" }, []string{"10.0.0.1"}, false, false},
		{"another hostname", func(w *viewCase) { w.target.Input.Current[0].Hostname = "h" }, []string{"10.0.0.1"}, false, false},
		{"one too many", func(w *viewCase) { w.target.Decision.Endpoints[0].Listed = false }, []string{"10.0.0.1"}, false, false},
		{"one that nothing was decided about", func(w *viewCase) { w.target.Decision.Endpoints = w.target.Decision.Endpoints[1:] }, []string{"10.0.0.1"}, false, false},
		{"other ports", listed(1, one), nil, true, false},
		{"the same ports", listed(30080, one), nil, false, false},
		{"other ports, which the endpoint has", func(w *viewCase) {
			listed(1, one)(w)
			w.target.Decision.Endpoints[0].Ports.Text = "http/TCP:1"
		}, nil, false, false},
		{"other ports, which one endpoint of two has", func(w *viewCase) {
			listed(1, one, newEndpoint(mustParseAddr("10.0.0.2"), ready))(w)
			w.target.Decision.Endpoints[0].Ports.Text = "http/TCP:1"
		}, nil, true, false},
		{"other ports, of a slice without endpoints", listed(1), nil, false, false},
		{"other ports, of a slice that is another's", func(w *viewCase) { listed(1, one)(w); w.target.ManagedBy = "another" }, nil, false, false},
		{"a guard blocks writes", func(w *viewCase) { w.target.Decision.Write = false }, nil, false, true},
		{"paused, and by hand one is drained", func(w *viewCase) {
			w.target.State = Paused
			listed(1, newEndpoint(mustParseAddr("10.0.0.1"), draining), newEndpoint(mustParseAddr("10.0.0.2"), ready))(w)
		}, []string{"10.0.0.1"}, false, false},
		{"rejected", func(w *viewCase) {
			w.target.State, w.target.Decision, w.target.Input = Rejected, verdict.Decision{}, verdict.Input{}
			listed(1, one)(w)
		}, []string{"10.0.0.1"}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := viewCase{target: managedTarget("a", ready, "10.0.0.1", "10.0.0.2")}
			w.target.Decision.Write = true
			inSync(&w)
			c.alter(&w)
			b := newSyncedStore()
			b.Put(w.target)
			views, status := b.Views(nil)
			if len(views) != 1 || !status.Synced {
				t.Fatalf("%d views, status %+v", len(views), status)
			}
			v := views[0]
			var differ []string
			for i := range v.Addresses {
				if !v.Addresses[i].InSync() {
					differ = append(differ, v.Addresses[i].Address.String())
				}
			}
			checkEqual(t, "differ", differ, c.differ)
			checkEqual(t, "other ports", v.PortsDiffer, c.ports)
			checkEqual(t, "forbidden", v.WritesBlocked, c.never)
		})
	}
}

// viewCase is a target before it is put.
type viewCase struct{ target Target }

func TestViewMatchesStoreAndIsImmutable(t *testing.T) {
	now := time.Unix(100, 0)
	rapid.Check(t, func(t *rapid.T) {
		b := newSyncedStore()
		for range rapid.IntRange(0, 4).Draw(t, "targets") {
			b.Put(drawTarget(t))
		}
		filter := SelectServices(rapid.SampledFrom([][]ServiceName{nil, {{"web", "s1"}}, {{Namespace: "mail"}}}).Draw(t, "selects"))
		views, status := b.Views(filter)
		listings, same := b.List(filter)
		checkEqual(t, "status", status, same)
		var seen []Summary
		for i := range views {
			v := &views[i]
			seen = append(seen, v.Summary)
			for n, e := range v.Addresses {
				if n > 0 && v.Addresses[n-1].Address.Compare(e.Address) >= 0 {
					t.Errorf("%s is not after %s", e.Address, v.Addresses[n-1].Address)
				}
				store, _ := b.Explain(ServiceName{v.Namespace, v.Service}, e.Address, now)
				checkEqual(t, "explanation", v.Explain(e.Address, now), store)
			}
			b.Remove(v.Namespace, v.Service)
			if n := v.Ready + v.Draining + v.NotReady; len(v.Addresses) < n {
				t.Errorf("%d addresses of %d are left", len(v.Addresses), n)
			}
		}
		checkEqual(t, "listings", seen, listings)
	})
}

package applier

import (
	"errors"
	"net/http"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// Found by the search of small worlds (lab/search): the last leader took one address away, which the new
// one's cache still showed, and the new one took the other away: nothing was left.
func TestANewLeaderReadsTheSlicesBeforeItsFirstWrite(t *testing.T) {
	for name, edit := range map[string]func(*discoveryv1.EndpointSlice){
		"which was emptied": func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil },
		"which was deleted": nil,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t, nil)
			d := desired("10.0.0.1", "10.0.0.2")
			d.MaxPerSlice = 1
			w.must(t, d)
			w.api.sent()
			old, version := w.api.cache()
			w.Forget()
			w.api.edit("shop-nodes", edit)

			d.Endpoints = d.Endpoints[:1]
			_, err := w.Apply(t.Context(), Order{Service: shop, Desired: d, Current: w.Current(old, version)})
			if stale := (*Stale)(nil); !errors.As(err, &stale) || stale.Slice != "shop-nodes" {
				t.Fatalf("got %v", err)
			}
			w.wantSent(t)
			current := w.Current(old, version)
			if got := listed(current); got != "10.0.0.2" {
				t.Fatalf("after the look the slices are %q", got)
			}
			if _, err := w.Apply(t.Context(), Order{Service: shop, Desired: d, Current: current}); err != nil {
				t.Fatal(err)
			}
			if now, _ := w.api.cache(); listed(now) != "10.0.0.1" {
				t.Errorf("left as %q", listed(now))
			}
		})
	}
}

func TestALeaderReadsTheSlicesOnceAndOnlyIfItHasSomethingToWrite(t *testing.T) {
	w := newWriter(t, nil)
	w.must(t, desired("10.0.0.1"))
	w.Forget()
	reads := 0
	w.api.setFault(false, func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			reads++
		}
		return nil, nil
	})
	for _, step := range []struct {
		address string
		reads   int
	}{{"10.0.0.1", 0}, {"10.0.0.2", 1}, {"10.0.0.3", 1}} {
		if w.must(t, desired(step.address)); reads != step.reads {
			t.Errorf("%s: %d reads, want %d", step.address, reads, step.reads)
		}
	}
}

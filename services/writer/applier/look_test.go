package applier

import (
	"errors"
	"net/http"
	"slices"
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

// Found by simulated worlds: a leader with nothing to write took for right what a cache showed that was behind.
// When the cache caught up, the last leader's write looked like an edit, and was undone.
func TestANewLeaderTakesTheLastOnesWriteForNoEditThoughItHasNothingToWrite(t *testing.T) {
	w := newWriter(t, nil)
	w.must(t, desired("10.0.0.1", "10.0.0.2"))
	old, version := w.api.cache()
	w.Forget()
	w.api.edit("shop-nodes", func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[:1] })
	w.api.sent()

	_, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.1", "10.0.0.2"), Current: w.Current(old, version)})
	if stale := (*Stale)(nil); !errors.As(err, &stale) || stale.Slice != "shop-nodes" {
		t.Fatalf("got %v", err)
	}
	w.wantSent(t)
	for name, current := range map[string][]*discoveryv1.EndpointSlice{
		"before the cache catches up": w.Current(old, version), "after it": w.Current(w.api.cache()),
	} {
		if got := listed(w.Held(shop, current)); got != "10.0.0.1" {
			t.Errorf("%s %q is held", name, got)
		}
	}
	w.must(t, desired("10.0.0.1"))
	w.wantSent(t)
}

func TestWhatACacheShowsOnlyLaterIsReadThen(t *testing.T) {
	w := newWriter(t, nil)
	d := desired("10.0.0.1", "10.0.0.2")
	d.MaxPerSlice = 1
	w.must(t, d)
	all, version := w.api.cache()
	first := slices.DeleteFunc(slices.Clone(all), func(s *discoveryv1.EndpointSlice) bool { return s.Name != "shop-nodes" })
	again := newWriter(t, nil) // after a restart
	again.api.slices, again.api.version = w.api.slices, w.api.version
	if _, err := again.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.1"), Current: again.Current(first, "1")}); err != nil {
		t.Fatal(err)
	}
	again.api.edit("shop-nodes-2", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.0.0.3" })
	_, err := again.Apply(t.Context(), Order{Service: shop, Desired: d, Current: again.Current(all, version)})
	if stale := (*Stale)(nil); !errors.As(err, &stale) || stale.Slice != "shop-nodes-2" {
		t.Fatalf("got %v", err)
	}
	if got := listed(again.Held(shop, again.Current(all, version))); got != "10.0.0.1 10.0.0.3" {
		t.Errorf("held is %q", got)
	}
}

func TestAnAnswerFromBeforeAnotherOneLedIsNoWordOfOurs(t *testing.T) {
	w := newWriter(t, nil)
	w.api.setFault(true, func(*http.Request) (*http.Response, error) { w.Forget(); return nil, nil })
	w.must(t, desired("10.0.0.1"))
	w.api.setFault(false, nil)
	old, version := w.api.cache()
	w.api.edit("shop-nodes", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.0.0.2" })

	if got := listed(w.Held(shop, w.Current(w.api.cache()))); got != "10.0.0.2" {
		t.Errorf("held is %q, which another one has changed since", got)
	}
	_, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.1"), Current: w.Current(old, version)})
	if stale := (*Stale)(nil); !errors.As(err, &stale) {
		t.Errorf("got %v", err)
	}
}

func TestALeaderReadsEachSliceOnceThatItHasNotWritten(t *testing.T) {
	w := newWriter(t, nil)
	reads := 0
	w.api.setFault(false, func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			reads++
		}
		return nil, nil
	})
	for _, step := range []struct {
		name, address string
		reign         bool
		reads         int
	}{
		{"makes it", "10.0.0.1", false, 0},
		{"changes what it made", "10.0.0.2", false, 0},
		{"leads anew, with nothing to write", "10.0.0.2", true, 1},
		{"has nothing to write again", "10.0.0.2", false, 1},
		{"writes", "10.0.0.3", false, 1},
		{"leads anew, and writes", "10.0.0.4", true, 2},
		{"writes again", "10.0.0.5", false, 2},
	} {
		if step.reign {
			w.Forget()
		}
		if w.must(t, desired(step.address)); reads != step.reads {
			t.Errorf("a leader %s: %d reads, want %d", step.name, reads, step.reads)
		}
	}
}

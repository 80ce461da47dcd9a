package applier

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Found by the search of small worlds (lab/search): the last leader took one address away, which the new
// one's cache still showed, and the new one took the other away: nothing was left.
func TestNewLeaderListsSlicesBeforeItsFirstWrite(t *testing.T) {
	for name, edit := range map[string]func(*discoveryv1.EndpointSlice){
		"which was emptied": func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil },
		"which was deleted": nil,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t)
			d := desired("10.0.0.1", "10.0.0.2")
			d.MaxPerSlice = 1
			w.must(t, d)
			w.api.sent()
			old, version := w.api.cache()
			w.StartTerm()
			w.api.edit("shop-nodes", edit)

			d.Endpoints = d.Endpoints[:1]
			_, err := w.Apply(t.Context(), Order{Service: shop, Desired: d, Current: w.Observed(old, version)})
			if stale := (*StaleError)(nil); !errors.As(err, &stale) || stale.Slice != "shop-nodes" {
				t.Fatalf("got %v", err)
			}
			w.wantSent(t)
			current := w.Observed(old, version)
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
func TestNewLeaderDoesNotRepairTheLastLeadersWrite(t *testing.T) {
	w := newWriter(t)
	w.must(t, desired("10.0.0.1", "10.0.0.2"))
	old, version := w.api.cache()
	w.StartTerm()
	w.api.edit("shop-nodes", func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[:1] })
	w.api.sent()

	_, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.1", "10.0.0.2"), Current: w.Observed(old, version)})
	if stale := (*StaleError)(nil); !errors.As(err, &stale) || stale.Slice != "shop-nodes" {
		t.Fatalf("got %v", err)
	}
	w.wantSent(t)
	for name, current := range map[string][]*discoveryv1.EndpointSlice{
		"before the cache catches up": w.Observed(old, version), "after it": w.Observed(w.api.cache()),
	} {
		if got := listed(w.LastApplied(shop, current)); got != "10.0.0.1" {
			t.Errorf("%s %q is held", name, got)
		}
	}
	w.must(t, desired("10.0.0.1"))
	w.wantSent(t)
}

func TestNewLeaderListsSlicesThatItsCacheDoesNotShowYet(t *testing.T) {
	w := newWriter(t)
	d := desired("10.0.0.1", "10.0.0.2")
	d.MaxPerSlice = 1
	w.must(t, d)
	all, _ := w.api.cache()
	first := slices.DeleteFunc(all, func(s *discoveryv1.EndpointSlice) bool { return s.Name != "shop-nodes" })
	w.api.edit("shop-nodes-2", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.0.0.3" })
	restarted := newWriter(t)
	restarted.api.slices, restarted.api.version = w.api.slices, w.api.version

	_, err := restarted.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.1"), Current: restarted.Observed(first, "1")})
	if stale := (*StaleError)(nil); !errors.As(err, &stale) || stale.Slice != "shop-nodes-2" {
		t.Fatalf("got %v", err)
	}
	restarted.wantSent(t)
	if got := listed(restarted.LastApplied(shop, restarted.Observed(first, "1"))); got != "10.0.0.1 10.0.0.3" {
		t.Errorf("current is %q", got)
	}
}

// Somebody has removed the label by which slices are listed, but not the owner by which the cache finds them.
func TestReadsSlicesWithoutLabelByName(t *testing.T) {
	w := newWriter(t)
	w.must(t, desired("10.0.0.1"))
	w.api.edit("shop-nodes", func(s *discoveryv1.EndpointSlice) { delete(s.Labels, discoveryv1.LabelServiceName) })
	w.StartTerm()
	w.api.sent()
	all, version := w.api.cache()
	if _, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired("10.0.0.1"), Current: w.Observed(all, version)}); err != nil {
		t.Fatal(err)
	}
	w.wantSent(t, "PUT shop-nodes")
}

func TestNewTermEndsThePlanOfTheLastOne(t *testing.T) {
	w := newWriter(t)
	w.api.setFault(true, onWrite(w.StartTerm))
	d := desired("10.0.0.1", "10.0.0.2")
	d.MaxPerSlice = 1
	if err := w.apply(t, d); !errors.Is(err, ErrNotLeader) {
		t.Errorf("got %v", err)
	}
	w.wantSent(t, "POST endpointslices")
}

// A slice that is deleted in the foreground stays until its finalizers are gone, and other slices may change meanwhile.
func TestCacheCountsAlthoughADeletedSliceWaitsForItsFinalizers(t *testing.T) {
	w := newWriter(t)
	d := desired("10.0.0.1", "10.0.0.2")
	d.MaxPerSlice = 1
	w.must(t, d)
	d.Endpoints = d.Endpoints[:1]
	before, version := w.api.cache()
	w.must(t, d)
	if got := listed(w.Observed(before, version)); got != "10.0.0.1" {
		t.Errorf("a cache from before the delete shows %q", got)
	}
	w.api.edit("shop-nodes", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.0.0.9" })
	cached, version := w.api.cache()
	for _, slice := range before {
		if slice.Name == "shop-nodes-2" {
			slice.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			cached = append(cached, slice)
		}
	}
	if got := listed(w.Observed(cached, version)); got != "10.0.0.2 10.0.0.9" { // consumers use it until it is gone
		t.Errorf("the cache shows %q", got)
	}
}

func TestAnswerOfEarlierTermIsForgotten(t *testing.T) {
	w := newWriter(t)
	w.api.setFault(true, onWrite(w.StartTerm))
	w.must(t, desired("10.0.0.1"))
	w.api.setFault(false, nil)
	old, version := w.api.cache()
	w.api.edit("shop-nodes", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.0.0.2" })

	if got := listed(w.LastApplied(shop, w.Observed(w.api.cache()))); got != "10.0.0.2" {
		t.Errorf("held is %q, which another one has changed since", got)
	}
	if got := listed(w.Observed(old, version)); got != "10.0.0.2" {
		t.Errorf("an older cache shows %q", got)
	}
}

func TestListsSlicesOncePerTerm(t *testing.T) {
	w := newWriter(t)
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
		{"makes it", "10.0.0.1", false, 1},
		{"changes what it made", "10.0.0.2", false, 1},
		{"leads anew, with nothing to write", "10.0.0.2", true, 2},
		{"has nothing to write again", "10.0.0.2", false, 2},
		{"writes", "10.0.0.3", false, 2},
		{"leads anew, and writes", "10.0.0.4", true, 3},
		{"writes again", "10.0.0.5", false, 3},
	} {
		if step.reign {
			w.StartTerm()
		}
		if w.must(t, desired(step.address)); reads != step.reads {
			t.Errorf("a leader %s: %d reads, want %d", step.name, reads, step.reads)
		}
	}
}

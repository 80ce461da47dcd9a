package targets

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// classed is the test Service with another class; empty: without the label, as an old manifest has it.
func classed(class string) *corev1.Service {
	svc := service()
	svc.Labels, svc.Annotations = nil, nil
	if class != "" {
		svc.Labels = map[string]string{LabelClass: class}
	}
	return svc
}

// history resolves a Service's versions one after the other.
type history struct {
	cfg    Config
	memory Memory
	now    time.Time
}

func (h *history) see(svc *corev1.Service, existing ...*discoveryv1.EndpointSlice) View {
	var view View
	view, h.memory = Resolve(h.cfg, Found{Key: shop, Service: svc, Slices: existing, Before: h.memory, Now: h.now})
	return view
}

func since(cfg Config) *history { return &history{cfg: cfg, now: time.Unix(1_000_000, 0)} }

// endpoint is one of a slice.
func endpoint(ready, serving bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving}}
}

func listing(s *discoveryv1.EndpointSlice, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	s.Endpoints = endpoints
	return s
}

func TestRemovedLabelIsNoOptOutForAMinute(t *testing.T) {
	tuned := service()
	tuned.Annotations["slicefeed.dev/probe-interval"] = "3s"
	mine := ours("shop-slicefeed", "svc-1")
	managed := func(t *testing.T, view View) {
		t.Helper()
		if !view.Ours || view.Leaving || view.Refusal != nil || view.Mistake != nil || len(view.Target.Ports) != 1 || view.Target.Settings.Probe.Interval != 3*time.Second {
			t.Errorf("not managed as before: leaving %t, rejected %v, mistake %v, target %+v", view.Leaving, view.Refusal, view.Mistake, view.Target)
		}
	}
	for name, missing := range map[string]*corev1.Service{"removed": classed(""), "emptied": func() *corev1.Service {
		svc := classed("")
		svc.Labels = map[string]string{LabelClass: ""}
		return svc
	}()} {
		t.Run(name, func(t *testing.T) {
			h := since(config())
			h.see(tuned, mine)
			removed := h.now
			view := h.see(missing, mine)
			managed(t, view)
			if view.Departing == nil || view.Departing.Reason != "LabelRemoved" || !strings.Contains(view.Departing.Message, "slicefeed.dev/class=default") || !view.Wake.Equal(removed.Add(time.Minute)) {
				t.Errorf("%+v at %s", view.Departing, view.Wake)
			}
			h.now = removed.Add(time.Minute - 1)
			managed(t, h.see(missing, mine))
			h.now = removed.Add(time.Minute)
			view = h.see(missing, mine, slice("by-hand", "hand"))
			if diff := cmp.Diff([]string{"shop-slicefeed"}, names(view.Slices)); !view.Leaving || view.Departing != nil || diff != "" {
				t.Errorf("after the minute: leaving %t %s", view.Leaving, diff)
			}
			if view = h.see(missing, mine); !view.Leaving {
				t.Error("it stops leaving while a slice is left")
			}
			if view = h.see(missing); view.Ours || h.memory != (Memory{}) {
				t.Errorf("it is still ours: %+v, remembered %+v", view, h.memory)
			}
		})
	}
	t.Run("put back, and the next removal has a minute of its own", func(t *testing.T) {
		h := since(config())
		h.see(tuned, mine)
		h.see(classed(""), mine)
		h.now = h.now.Add(50 * time.Second)
		if view := h.see(tuned, mine); view.Departing != nil || !view.Wake.IsZero() {
			t.Errorf("%+v at %s", view.Departing, view.Wake)
		}
		h.now = h.now.Add(50 * time.Second)
		managed(t, h.see(classed(""), mine))
		h.now = h.now.Add(50 * time.Second)
		managed(t, h.see(classed(""), mine))
	})
	t.Run("managed though a slice is not in the cache yet", func(t *testing.T) {
		h := since(config())
		h.see(tuned)
		managed(t, h.see(classed("")))
	})
	t.Run("a restart forgets it and leaves the slices", func(t *testing.T) {
		h := since(config())
		for range 3 {
			view := h.see(classed(""), mine)
			if view.Leaving || view.Refusal == nil || view.Refusal.Reason != "SlicesLeftBehind" {
				t.Errorf("leaving %t, rejected %v", view.Leaving, view.Refusal)
			}
			h.now = h.now.Add(time.Hour)
		}
	})
	t.Run("class none acts at once", func(t *testing.T) {
		h := since(config())
		h.see(tuned, mine)
		if view := h.see(classed("none"), mine); !view.Leaving || view.Departing != nil {
			t.Errorf("leaving %t, %v", view.Leaving, view.Departing)
		}
	})
	t.Run("a pause counts", func(t *testing.T) {
		h := since(config())
		h.see(tuned, mine)
		paused := classed("")
		paused.Annotations = map[string]string{"slicefeed.dev/paused": "true"}
		if view := h.see(paused, mine); !view.Paused || !view.Target.Settings.Paused {
			t.Errorf("%+v", view)
		}
	})
	t.Run("the Service given by name has no label to lose", func(t *testing.T) {
		h := since(naming())
		h.see(service(), mine)
		if view := h.see(classed(""), mine); view.Departing != nil || !view.Ours {
			t.Errorf("%+v", view.Departing)
		}
	})
	t.Run("never accepted, it waits without a write", func(t *testing.T) {
		h := since(config())
		wrong := service()
		wrong.Annotations["slicefeed.dev/probe"] = "icmp"
		h.see(wrong, mine)
		view := h.see(classed(""), mine)
		if view.Leaving || view.Refusal == nil || view.Refusal.Reason != "LabelRemoved" || view.Wake.IsZero() {
			t.Errorf("leaving %t, rejected %v", view.Leaving, view.Refusal)
		}
	})
}

func TestChangedClassKeepsSlicesUntilTheNewWriterServes(t *testing.T) {
	theirs := func(endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return listing(slice("shop-slicefeed-2", "slicefeed-blue"), endpoints...)
	}
	v6 := func(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		s.Name, s.AddressType = s.Name+"-v6", discoveryv1.AddressTypeIPv6
		return s
	}
	mine := func() *discoveryv1.EndpointSlice { return ours("shop-slicefeed", "svc-1") }
	elsewhere := theirs(endpoint(true, true))
	elsewhere.Labels[discoveryv1.LabelServiceName] = "cart"
	ending := theirs(endpoint(true, true))
	ending.DeletionTimestamp = &metav1.Time{}
	for name, tc := range map[string]struct {
		existing []*discoveryv1.EndpointSlice
		leaves   bool
	}{
		"nothing of the new class":                {[]*discoveryv1.EndpointSlice{mine()}, false},
		"an empty slice of it":                    {[]*discoveryv1.EndpointSlice{mine(), theirs()}, false},
		"one that lists nothing ready":            {[]*discoveryv1.EndpointSlice{mine(), theirs(endpoint(false, true), endpoint(false, false))}, false},
		"one that lists a ready endpoint":         {[]*discoveryv1.EndpointSlice{mine(), theirs(endpoint(false, false), endpoint(true, true))}, true},
		"ready where the condition is left out":   {[]*discoveryv1.EndpointSlice{mine(), theirs(discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})}, true},
		"one of another Service":                  {[]*discoveryv1.EndpointSlice{mine(), elsewhere}, false},
		"one that is being deleted":               {[]*discoveryv1.EndpointSlice{mine(), ending}, false},
		"one of a third class":                    {[]*discoveryv1.EndpointSlice{mine(), listing(slice("x", "slicefeed-red"), endpoint(true, true))}, false},
		"only one of two families":                {[]*discoveryv1.EndpointSlice{mine(), v6(mine()), theirs(endpoint(true, true))}, false},
		"both families":                           {[]*discoveryv1.EndpointSlice{mine(), v6(mine()), theirs(endpoint(true, true)), v6(theirs(endpoint(true, true)))}, true},
		"a family of ours that nobody is sent to": {[]*discoveryv1.EndpointSlice{mine(), v6(listing(mine(), endpoint(false, false))), theirs(endpoint(true, true))}, true},
		"nothing of ours is of use":               {[]*discoveryv1.EndpointSlice{listing(mine(), endpoint(false, false))}, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := since(config())
			h.see(service(), mine())
			view := h.see(classed("blue"), tc.existing...)
			if view.Leaving != tc.leaves || !view.Ours {
				t.Fatalf("leaving %t", view.Leaving)
			}
			if !tc.leaves && (view.Refusal != nil || view.Departing == nil || view.Departing.Reason != "ClassChanged" || len(view.Target.Foreign) > 0) {
				t.Errorf("rejected %v, departing %v, foreign %v", view.Refusal, view.Departing, view.Target.Foreign)
			}
			h.now = h.now.Add(time.Minute)
			if view := h.see(classed("blue"), tc.existing...); !view.Leaving {
				t.Error("it stays for more than a minute")
			}
		})
	}
	t.Run("after a restart it waits as long, without a write", func(t *testing.T) {
		h := since(config())
		view := h.see(classed("blue"), mine())
		if view.Leaving || view.Refusal == nil || view.Refusal.Reason != "ClassChanged" || !view.Wake.Equal(h.now.Add(time.Minute)) {
			t.Errorf("leaving %t, rejected %v, again at %s", view.Leaving, view.Refusal, view.Wake)
		}
		if view := h.see(classed("blue"), mine(), theirs(endpoint(true, true))); !view.Leaving {
			t.Error("the new class serves, and it stays")
		}
	})
	t.Run("from one class to the next, it is one minute in all", func(t *testing.T) {
		h := since(config())
		h.see(service(), mine())
		h.see(classed("blue"), mine())
		h.now = h.now.Add(40 * time.Second)
		h.see(classed("red"), mine())
		h.now = h.now.Add(20 * time.Second)
		if view := h.see(classed(""), mine()); !view.Leaving {
			t.Error("it stays")
		}
	})
	t.Run("without a slice of ours there is nothing to keep", func(t *testing.T) {
		h := since(config())
		h.see(service())
		if view := h.see(classed("blue")); view.Ours || h.memory != (Memory{}) {
			t.Errorf("%+v", view)
		}
	})
}

func TestSlicesOfAnotherClassAreNoForeignOnes(t *testing.T) {
	view := judge(config(), service(), slice("by-hand", "hand"), slice("of-blue", "slicefeed-blue"))
	if diff := cmp.Diff([]string{"by-hand"}, view.Target.Foreign); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"of-blue"}, view.Target.OtherClasses); diff != "" {
		t.Error(diff)
	}
}

func TestRemovedLabelLeavesTheServiceReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, config(), fake.NewClientset(service(), ours("shop-slicefeed", "svc-1"), listing(slice("of-blue", "slicefeed-blue"), endpoint(false, true), endpoint(true, true), endpoint(true, true))))
		synctest.Wait()
		if view := r.Get(shop); !served(view) {
			t.Fatalf("%+v", view)
		}
		without := classed("")
		without.ResourceVersion = "7"
		r.apply(without)
		synctest.Wait()
		view := r.Get(shop)
		if !served(view) || view.Departing == nil || len(view.Target.Ports) != 1 {
			t.Fatalf("the Service cannot be managed on: %+v, rejected %v", view, view.Refusal)
		}
		if others := view.Slices[0]; others.Name != "of-blue" || len(others.Endpoints) != 1 || !*others.Endpoints[0].Conditions.Ready {
			t.Errorf("whether another class serves is not known: %+v", others)
		}
		time.Sleep(time.Until(view.Wake))
		if view := r.Get(shop); !view.Leaving {
			t.Errorf("it is not left: %+v", view)
		}
	})
}

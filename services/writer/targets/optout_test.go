package targets

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serviceOfClass returns the test Service with another class; empty: without the label, as in an old
// manifest.
func serviceOfClass(class string) *corev1.Service {
	svc := newService()
	svc.Labels, svc.Annotations = nil, nil
	if class != "" {
		svc.Labels = map[string]string{LabelClass: class}
	}
	return svc
}

// resolver resolves successive versions of a Service.
type resolver struct {
	cfg    Config
	memory Memory
	now    time.Time

	leadingSince time.Time
}

func (h *resolver) resolve(svc *corev1.Service, existing ...*discoveryv1.EndpointSlice) Resolution {
	var resolution Resolution
	resolution, h.memory = Resolve(h.cfg, Input{
		Key: shop, Service: svc, Slices: existing, Previous: h.memory, Now: h.now, LeadingSince: h.leadingSince,
	})
	return resolution
}

func newResolver(cfg Config) *resolver { return &resolver{cfg: cfg, now: time.Unix(1_000_000, 0)} }

// newEndpoint returns an endpoint of a slice.
func newEndpoint(ready, serving bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  []string{"10.0.0.1"},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving},
	}
}

func setEndpoints(s *discoveryv1.EndpointSlice, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	s.Endpoints = endpoints
	return s
}

func TestRemovedLabelOptsOutAfterGracePeriod(t *testing.T) {
	tuned := newService()
	tuned.Annotations["slicefeed.dev/probe-interval"] = "3s"
	mine := ownedSlice("shop-slicefeed", "svc-1")
	managed := func(t *testing.T, resolution Resolution) {
		t.Helper()
		if resolution.State != Managed || len(resolution.Ports) != 1 || resolution.Settings.Probe.Interval != 3*time.Second {
			t.Errorf(
				"not managed as before: state %d, rejected %v, warning %v, ports %v, settings %+v",
				resolution.State,
				resolution.Rejection,
				resolution.Warning,
				resolution.Ports,
				resolution.Settings,
			)
		}
	}
	for name, missing := range map[string]*corev1.Service{"removed": serviceOfClass(""), "emptied": func() *corev1.Service {
		svc := serviceOfClass("")
		svc.Labels = map[string]string{LabelClass: ""}
		return svc
	}()} {
		t.Run(name, func(t *testing.T) {
			h := newResolver(newConfig())
			h.resolve(tuned, mine)
			removed := h.now
			resolution := h.resolve(missing, mine)
			managed(t, resolution)
			if resolution.Warning == nil || resolution.Warning.Reason != "LabelRemoved" ||
				!strings.Contains(resolution.Warning.Message, "slicefeed.dev/class was removed") ||
				!resolution.RecheckAt.Equal(removed.Add(time.Minute)) {
				t.Errorf("%+v at %s", resolution.Warning, resolution.RecheckAt)
			}
			h.now = removed.Add(time.Minute - 1)
			managed(t, h.resolve(missing, mine))
			h.now = removed.Add(time.Minute)
			resolution = h.resolve(missing, mine, newSlice("by-hand", "hand"))
			if diff := cmp.Diff(
				[]string{"shop-slicefeed"},
				sliceNames(resolution.Slices),
			); resolution.State != Leaving || resolution.Warning != nil ||
				diff != "" {
				t.Errorf("after the minute: state %d %s", resolution.State, diff)
			}
			if resolution = h.resolve(missing, mine); resolution.State != Leaving {
				t.Error("it stops leaving while a slice is left")
			}
			if resolution = h.resolve(missing); resolution.State != Gone || h.memory != (Memory{}) {
				t.Errorf("still relevant: %+v, remembered %+v", resolution, h.memory)
			}
		})
	}
	t.Run("put back, and the next removal has a minute of its own", func(t *testing.T) {
		h := newResolver(newConfig())
		h.resolve(tuned, mine)
		h.resolve(serviceOfClass(""), mine)
		h.now = h.now.Add(50 * time.Second)
		if resolution := h.resolve(tuned, mine); resolution.Warning != nil || !resolution.RecheckAt.IsZero() {
			t.Errorf("%+v at %s", resolution.Warning, resolution.RecheckAt)
		}
		h.now = h.now.Add(50 * time.Second)
		managed(t, h.resolve(serviceOfClass(""), mine))
		h.now = h.now.Add(50 * time.Second)
		managed(t, h.resolve(serviceOfClass(""), mine))
	})
	t.Run("managed though a slice is not in the cache yet", func(t *testing.T) {
		h := newResolver(newConfig())
		h.resolve(tuned)
		managed(t, h.resolve(serviceOfClass("")))
	})
	t.Run("a restart forgets it and leaves the slices", func(t *testing.T) {
		h := newResolver(newConfig())
		for range 3 {
			resolution := h.resolve(serviceOfClass(""), mine)
			if resolution.State == Leaving || resolution.Rejection == nil || resolution.Rejection.Reason != "OrphanedSlices" {
				t.Errorf("state %d, rejected %v", resolution.State, resolution.Rejection)
			}
			h.now = h.now.Add(time.Hour)
		}
	})
	t.Run("so do slices of a former named target, with a label of their own", func(t *testing.T) {
		former, other := ownedSlice("shop-nodes", "svc-1"), ownedSlice("shop-blue", "svc-1")
		former.Labels[discoveryv1.LabelManagedBy], other.Labels[discoveryv1.LabelManagedBy] = "custom", "slicefeed-blue"
		resolution := newResolver(newConfig()).resolve(serviceOfClass(""), former, other)
		if resolution.State == Leaving || resolution.Rejection == nil || resolution.Rejection.Reason != "OrphanedSlices" ||
			!strings.HasSuffix(resolution.Rejection.Message, ": shop-nodes.") {
			t.Errorf("state %d, rejected %v", resolution.State, resolution.Rejection)
		}
		other.Labels[discoveryv1.LabelManagedBy], other.Labels["slicefeed.dev/writer"] = "custom", "elsewhere"
		if resolution := newResolver(newConfig()).resolve(serviceOfClass(""), other); resolution.State != Gone {
			t.Errorf("it concerns another installation: %v", resolution.Rejection)
		}
	})
	t.Run("class none acts immediately", func(t *testing.T) {
		h := newResolver(newConfig())
		h.resolve(tuned, mine)
		if resolution := h.resolve(serviceOfClass("none"), mine); resolution.State != Leaving || resolution.Warning != nil {
			t.Errorf("state %d, %v", resolution.State, resolution.Warning)
		}
	})
	t.Run("a pause counts", func(t *testing.T) {
		h := newResolver(newConfig())
		h.resolve(tuned, mine)
		paused := serviceOfClass("")
		paused.Annotations = map[string]string{"slicefeed.dev/paused": "true"}
		if resolution := h.resolve(paused, mine); !resolution.Settings.Paused {
			t.Errorf("%+v", resolution)
		}
	})
	t.Run("the Service given by name has no label to lose", func(t *testing.T) {
		h := newResolver(configWithNamedTarget())
		h.resolve(newService(), mine)
		if resolution := h.resolve(serviceOfClass(""), mine); resolution.Warning != nil || resolution.State == Gone {
			t.Errorf("%+v", resolution.Warning)
		}
	})
	t.Run("never accepted, it waits without a write", func(t *testing.T) {
		h := newResolver(newConfig())
		invalid := newService()
		invalid.Annotations["slicefeed.dev/probe"] = "icmp"
		h.resolve(invalid, mine)
		resolution := h.resolve(serviceOfClass(""), mine)
		if resolution.State == Leaving || resolution.Rejection == nil || resolution.Rejection.Reason != "LabelRemoved" ||
			resolution.RecheckAt.IsZero() {
			t.Errorf("state %d, rejected %v", resolution.State, resolution.Rejection)
		}
	})
}

func TestChangedClassKeepsSlicesUntilReplaced(t *testing.T) {
	theirs := func(endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return setEndpoints(newSlice("shop-slicefeed-2", "slicefeed-blue"), endpoints...)
	}
	v6 := func(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		s.Name, s.AddressType = s.Name+"-v6", discoveryv1.AddressTypeIPv6
		return s
	}
	mine := func() *discoveryv1.EndpointSlice { return ownedSlice("shop-slicefeed", "svc-1") }
	elsewhere := theirs(newEndpoint(true, true))
	elsewhere.Labels[discoveryv1.LabelServiceName] = "cart"
	ending := theirs(newEndpoint(true, true))
	ending.DeletionTimestamp = &metav1.Time{}
	for name, tc := range map[string]struct {
		existing []*discoveryv1.EndpointSlice
		leaves   bool
	}{
		"nothing of the new class":                 {[]*discoveryv1.EndpointSlice{mine()}, false},
		"an empty slice of it":                     {[]*discoveryv1.EndpointSlice{mine(), theirs()}, false},
		"one that lists nothing ready":             {[]*discoveryv1.EndpointSlice{mine(), theirs(newEndpoint(false, true), newEndpoint(false, false))}, false},
		"one that lists a ready endpoint":          {[]*discoveryv1.EndpointSlice{mine(), theirs(newEndpoint(false, false), newEndpoint(true, true))}, true},
		"ready where the condition is left out":    {[]*discoveryv1.EndpointSlice{mine(), theirs(discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})}, true},
		"one of another Service":                   {[]*discoveryv1.EndpointSlice{mine(), elsewhere}, false},
		"one that is being deleted":                {[]*discoveryv1.EndpointSlice{mine(), ending}, false},
		"one of a third class":                     {[]*discoveryv1.EndpointSlice{mine(), setEndpoints(newSlice("x", "slicefeed-red"), newEndpoint(true, true))}, false},
		"only one of two families":                 {[]*discoveryv1.EndpointSlice{mine(), v6(mine()), theirs(newEndpoint(true, true))}, false},
		"both families":                            {[]*discoveryv1.EndpointSlice{mine(), v6(mine()), theirs(newEndpoint(true, true)), v6(theirs(newEndpoint(true, true)))}, true},
		"an owned family without usable endpoints": {[]*discoveryv1.EndpointSlice{mine(), v6(setEndpoints(mine(), newEndpoint(false, false))), theirs(newEndpoint(true, true))}, true},
		"no usable owned endpoint":                 {[]*discoveryv1.EndpointSlice{setEndpoints(mine(), newEndpoint(false, false))}, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newResolver(newConfig())
			h.resolve(newService(), mine())
			resolution := h.resolve(serviceOfClass("blue"), tc.existing...)
			if (resolution.State == Leaving) != tc.leaves || resolution.State == Gone {
				t.Fatalf("state %d", resolution.State)
			}
			if want := map[bool]string{true: "blue"}[tc.leaves]; resolution.Successor != want {
				t.Errorf("successor %q, want %q", resolution.Successor, want)
			}
			if !tc.leaves && (resolution.Rejection != nil || resolution.Warning == nil || resolution.Warning.Reason != "ClassChanged") {
				t.Errorf("rejected %v, warning %v", resolution.Rejection, resolution.Warning)
			}
			// The warning says why there are slices of another class.
			if len(resolution.ForeignSlices) > 0 || len(resolution.OtherClassSlices) > 0 {
				t.Errorf("foreign %v, of another class %v", resolution.ForeignSlices, resolution.OtherClassSlices)
			}
			h.now = h.now.Add(time.Minute)
			if resolution := h.resolve(serviceOfClass("blue"), tc.existing...); resolution.State != Leaving || resolution.Successor != "" {
				t.Error("it stays for more than a minute")
			}
		})
	}
	t.Run("after a restart it waits as long, without a write", func(t *testing.T) {
		h := newResolver(newConfig())
		resolution := h.resolve(serviceOfClass("blue"), mine())
		if resolution.State == Leaving || resolution.Rejection == nil || resolution.Rejection.Reason != "ClassChanged" ||
			!resolution.RecheckAt.Equal(h.now.Add(time.Minute)) {
			t.Errorf("state %d, rejected %v, again at %s", resolution.State, resolution.Rejection, resolution.RecheckAt)
		}
		if resolution := h.resolve(serviceOfClass("blue"), mine(), theirs(newEndpoint(true, true))); resolution.State != Leaving {
			t.Error("the new class serves, and it stays")
		}
	})
	t.Run("while it does not lead, as when the API server is away, the minute does not run", func(t *testing.T) {
		for _, class := range []string{"blue", ""} {
			h := newResolver(newConfig())
			h.leadingSince = h.now
			h.resolve(newService(), mine())
			h.resolve(serviceOfClass(class), mine())
			h.now, h.leadingSince = h.now.Add(75*time.Second), time.Time{}
			h.resolve(serviceOfClass(class), mine())
			h.leadingSince = h.now
			resolution := h.resolve(serviceOfClass(class), mine())
			if end := h.now.Add(
				time.Minute,
			); resolution.State == Leaving || resolution.Rejection != nil ||
				!resolution.RecheckAt.Equal(end) {
				t.Errorf(
					"class %q: state %d, rejected %v, again at %s",
					class,
					resolution.State,
					resolution.Rejection,
					resolution.RecheckAt,
				)
			}
			h.now = h.now.Add(time.Minute)
			if resolution := h.resolve(serviceOfClass(class), mine()); resolution.State != Leaving {
				t.Errorf("class %q: it stays for more than a minute", class)
			}
		}
	})
	t.Run("from one class to the next, it is one minute in all", func(t *testing.T) {
		h := newResolver(newConfig())
		h.resolve(newService(), mine())
		h.resolve(serviceOfClass("blue"), mine())
		h.now = h.now.Add(40 * time.Second)
		h.resolve(serviceOfClass("red"), mine())
		h.now = h.now.Add(20 * time.Second)
		if resolution := h.resolve(serviceOfClass(""), mine()); resolution.State != Leaving {
			t.Error("it stays")
		}
	})
	t.Run("without owned slices there is nothing to keep", func(t *testing.T) {
		h := newResolver(newConfig())
		h.resolve(newService())
		if resolution := h.resolve(serviceOfClass("blue")); resolution.State != Gone || h.memory != (Memory{}) {
			t.Errorf("%+v", resolution)
		}
	})
}

func TestOtherClassSlicesAreNotForeign(t *testing.T) {
	resolution := resolve(newConfig(), newService(), newSlice("by-hand", "hand"), newSlice("of-blue", "slicefeed-blue"))
	if diff := cmp.Diff([]string{"by-hand"}, resolution.ForeignSlices); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"of-blue"}, resolution.OtherClassSlices); diff != "" {
		t.Error(diff)
	}
}

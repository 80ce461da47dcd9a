package targets

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
)

func TestIndexKeysNameEveryAffectedService(t *testing.T) {
	c := Config{NamedTarget: Target{Key: Key{Namespace: "web", Name: "front"}, FirstName: "nodes"}}
	for name, want := range map[string][]string{
		"shop-x7k2p":               {"web/shop"},
		"cart-slicefeed":           {"web/shop", "web/cart"},
		"cart-slicefeed-blue-2":    {"web/shop", "web/cart"},
		"cart-slicefeeder":         {"web/shop"},
		"-slicefeed":               {"web/shop"},
		"a-slicefeed-slicefeed":    {"web/shop", "web/a", "web/a-slicefeed"},
		"nodes":                    {"web/shop", "web/front"},
		"nodes-blue":               {"web/shop", "web/front"},
		"node":                     {"web/shop"},
		"nodesby":                  {"web/shop"},
		"nodes-slicefeed-ipv6-a-b": {"web/shop", "web/nodes", "web/front"},
	} {
		if diff := cmp.Diff(want, indexKeys(c, newSlice(name, "hand"))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	owned := ownedSlice("cart-slicefeed", "svc-7")
	owned.OwnerReferences = append(owned.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", UID: "d"})
	delete(owned.Labels, discoveryv1.LabelServiceName)
	if diff := cmp.Diff([]string{"web/cart", "web#svc-7"}, indexKeys(c, owned)); diff != "" {
		t.Error(diff)
	}
	elsewhere := newSlice("nodes", "hand")
	elsewhere.Namespace = "api"
	if diff := cmp.Diff([]string{"api/shop"}, indexKeys(c, elsewhere)); diff != "" {
		t.Errorf("names count in their namespace: %s", diff)
	}
}

// Each slice with a name that the planner may use must be visible to the Service: otherwise the planner
// would try that name forever.
func TestIndexKeysCoverPlannerSliceNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := newConfig()
		name := rapid.StringMatching(`[a-z]([a-z0-9-]{0,61}[a-z0-9])?`).Draw(t, "service")
		key := Key{Namespace: "web", Name: name}
		if rapid.Bool().Draw(t, "named") {
			first := rapid.OneOf(
				rapid.StringMatching(`[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?`),
				rapid.StringMatching(`[a-z0-9][-.]{240,251}[a-z0-9]`),
				rapid.StringMatching(`[a-z0-9]{253}`),
			).Draw(t, "first name")
			cfg.NamedTarget = Target{Key: Key{Namespace: "web", Name: name}, FirstName: first}
		}
		source := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?`)).Draw(t, "source")
		desired := cfg.newTarget(key)
		desired.Owner.UID = "u"
		d := desired.Desired()
		d.Families = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
		d.MaxPerSlice = 1
		var taken []*discoveryv1.EndpointSlice
		for range rapid.IntRange(0, 3).Draw(t, "names taken") {
			for _, made := range planner.Compute(withEndpoints(d, source), taken).Create {
				other := newSlice(made.Name, "hand")
				other.Labels[discoveryv1.LabelServiceName] = "another"
				taken = append(taken, other)
			}
		}
		for _, made := range planner.Compute(withEndpoints(d, source), taken).Create {
			made.Labels = nil // all but the name could be another's
			made.OwnerReferences = nil
			if all := indexKeys(cfg, made); !slices.Contains(all, key.String()) {
				t.Fatalf("%s does not concern %s, only %v", made.Name, key, all)
			}
		}
	})
}

func withEndpoints(d planner.Desired, source string) planner.Desired {
	for _, a := range []string{"10.0.0.1", "10.0.0.2", "fd00::1"} {
		d.Endpoints = append(d.Endpoints, planner.Endpoint{Address: netip.MustParseAddr(a), Ready: true, Group: source})
	}
	return d
}

func TestIndexKeysCoverTruncatedNames(t *testing.T) {
	c := Config{NamedTarget: Target{Key: Key{Namespace: "web", Name: "front"}, FirstName: "a" + strings.Repeat("-", 251) + "b"}}
	if got := indexKeys(c, newSlice("a-blue-2", "hand")); !slices.Contains(got, "web/front") {
		t.Errorf("the planner cuts trailing dashes off: %v", got)
	}
}

func TestDropsUnusedFields(t *testing.T) {
	cfg := configWithNamedTarget()
	fat := namedService("cart", "svc-2")
	fat.Labels = map[string]string{"a": "b", LabelClass: "blue"}
	fat.Annotations = map[string]string{"kubectl": "much", "slicefeed.dev/paused": "true", "slicefeed.dev/probe": "tcp"}
	want := &corev1.Service{}
	want.Namespace, want.Name, want.UID = "web", "cart", "svc-2"
	want.Labels, want.Annotations = map[string]string{LabelClass: "blue"}, map[string]string{"slicefeed.dev/paused": "true"}
	want.Spec.ClusterIP, want.Spec.ClusterIPs = "None", []string{"None"}
	if diff := cmp.Diff(want, cfg.trimService(fat, false)); diff != "" {
		t.Error(diff)
	}
	listed := discoveryv1.Endpoint{
		Addresses: []string{
			"10.0.0.1",
		},
		Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		Zone:       new("z"),
		Hostname:   new("db-0"),
	}
	slice := newSlice("shop-x7k2p", "endpointslice-controller.k8s.io")
	slice.Endpoints = []discoveryv1.Endpoint{*listed.DeepCopy()}
	slice.Endpoints[0].NodeName, slice.Endpoints[0].TargetRef = new("node"), &corev1.ObjectReference{Kind: "Pod"}
	cfg.trimSlice(slice)
	if diff := cmp.Diff([]discoveryv1.Endpoint{listed}, slice.Endpoints); diff != "" {
		t.Errorf("of another's slice, what is published stays: %s", diff)
	}
	mine := newService()
	mine.Labels = nil
	if got := cfg.trimService(mine, false); len(got.Spec.Ports) != 1 {
		t.Errorf("the named one is needed whole: %+v", got)
	}
}

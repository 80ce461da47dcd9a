package planner

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	nodeOwner     = metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "n"}
	previousOwner = metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: "shop", UID: "svc-0"}
	knativeOwner  = metav1.OwnerReference{APIVersion: "serving.knative.dev/v1", Kind: "Service", Name: "shop", UID: "k"}
)

func TestOwnsSliceWithChangedServiceName(t *testing.T) {
	for name, c := range map[string]struct {
		slice  string
		owners []metav1.OwnerReference
		owner  metav1.OwnerReference
		want   bool
	}{
		"its owner is the Service":               {"another", []metav1.OwnerReference{nodeOwner, testTarget(0).Owner}, testTarget(0).Owner, true},
		"it has the first name and no owner":     {"shop-nodes", nil, testTarget(0).Owner, true},
		"it has the first name, and a Node's":    {"shop-nodes", []metav1.OwnerReference{nodeOwner}, testTarget(0).Owner, true},
		"it has the first name, and a Service's": {"shop-nodes", []metav1.OwnerReference{previousOwner, nodeOwner}, testTarget(0).Owner, false},
		"it has neither":                         {"another", nil, testTarget(0).Owner, false},
		"nobody is to own it, and nobody does":   {"another", []metav1.OwnerReference{{}}, metav1.OwnerReference{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := testTarget(0)
			d.Owner = c.owner
			s := testSlice(c.slice, "default", 1, 1)
			s.Labels[discoveryv1.LabelServiceName], s.OwnerReferences = "another", c.owners
			if got := d.Owns(s); got != c.want {
				t.Errorf("ours: %t", got)
			}
		})
	}
}

func TestRenderedSliceFields(t *testing.T) {
	t.Run("an update brings no field managers, which the server knows", func(t *testing.T) {
		was := testSlice("shop-nodes", "default", 1, 2)
		was.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "somebody"}}
		if got := Compute(testTarget(1), []*discoveryv1.EndpointSlice{was}).Update[0].ManagedFields; got != nil {
			t.Errorf("it brings %v", got)
		}
	})
	t.Run("a slice that is emptied lists nothing, which is not null", func(t *testing.T) {
		if got := Compute(testTarget(0), []*discoveryv1.EndpointSlice{testSlice("shop-nodes", "default", 1, 2)}).Update[0].Endpoints; got == nil || len(got) > 0 {
			t.Errorf("it lists %#v", got)
		}
	})
	t.Run("who names no writer leaves that label alone", func(t *testing.T) {
		d := testTarget(2)
		d.Writer = ""
		was := testSlice("shop-nodes", "default", 1, 1)
		if got := Compute(d, []*discoveryv1.EndpointSlice{was}).Update[0].Labels[LabelWriter]; got != was.Labels[LabelWriter] {
			t.Errorf("it is %q", got)
		}
		if plan := Compute(d, []*discoveryv1.EndpointSlice{testSlice("shop-nodes", "default", 1, 2)}); !plan.Empty() {
			t.Errorf("it is written by %v", describePlan(plan))
		}
		if got, is := Compute(d, nil).Create[0].Labels[LabelWriter]; is {
			t.Errorf("it is %q", got)
		}
	})
}

func TestSlicesHaveOnlyServiceLabels(t *testing.T) {
	own := map[string]string{
		discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: testTarget(0).ManagedBy,
		LabelSource: DefaultSource, LabelWriter: testTarget(0).Writer,
	}
	with := func(more map[string]string) map[string]string {
		all := maps.Clone(own)
		maps.Copy(all, more)
		return all
	}
	for name, c := range map[string]struct {
		was      map[string]string // besides our own
		labels   map[string]string
		headless bool
		want     map[string]string // besides our own
		written  bool
	}{
		"none":                          {nil, nil, false, nil, false},
		"one that it has":               {map[string]string{"team": "a"}, map[string]string{"team": "a"}, false, map[string]string{"team": "a"}, false},
		"one that is new":               {nil, map[string]string{"team": "a"}, false, map[string]string{"team": "a"}, true},
		"one that changed":              {map[string]string{"team": "a"}, map[string]string{"team": "b"}, false, map[string]string{"team": "b"}, true},
		"one that the Service dropped":  {map[string]string{"team": "a"}, nil, false, nil, true},
		"one that would replace ours":   {nil, map[string]string{discoveryv1.LabelManagedBy: "x", LabelSource: "x", LabelWriter: "x"}, false, nil, false},
		"headless":                      {nil, nil, true, map[string]string{corev1.IsHeadlessService: ""}, true},
		"headless, as it is":            {map[string]string{corev1.IsHeadlessService: ""}, nil, true, map[string]string{corev1.IsHeadlessService: ""}, false},
		"headless, as it no longer is":  {map[string]string{corev1.IsHeadlessService: ""}, nil, false, nil, true},
		"an adopted slice's own labels": {map[string]string{"app.kubernetes.io/managed-by": "Helm"}, nil, false, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := testTarget(1)
			d.Labels, d.Headless = c.labels, c.headless
			was := testSlice("shop-nodes", "default", 1, 1)
			was.Labels = with(c.was)
			plan := Compute(d, []*discoveryv1.EndpointSlice{was})
			if c.written {
				checkCounts(t, plan, 0, 1, 0)
				if diff := cmp.Diff(was.Endpoints, plan.Update[0].Endpoints); diff != "" {
					t.Errorf("endpoints change with the labels (-was +is):\n%s", diff)
				}
				if diff := cmp.Diff(with(c.want), plan.Update[0].Labels); diff != "" {
					t.Errorf("labels (-want +got):\n%s", diff)
				}
			} else {
				checkCounts(t, plan, 0, 0, 0)
			}
			if diff := cmp.Diff(with(c.want), Compute(d, nil).Create[0].Labels); diff != "" {
				t.Errorf("labels of a new slice (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRemovesTriggerTimeAnnotation(t *testing.T) {
	was := testSlice("shop-nodes", "default", 1, 1)
	was.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-01-01T00:00:00Z", "a": "b"}
	plan := Compute(testTarget(1), []*discoveryv1.EndpointSlice{was})
	checkCounts(t, plan, 0, 1, 0)
	if diff := cmp.Diff(map[string]string{"a": "b"}, plan.Update[0].Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if len(was.Annotations) != 2 {
		t.Error("the given slice was changed")
	}
}

func TestOwnerIsTheService(t *testing.T) {
	is := testTarget(0).Owner
	flagged, renamed, lower, old := is, is, is, is
	flagged.Controller, renamed.Name, lower.Kind, old.APIVersion = new(true), "another", "service", "v0"
	refs := func(all ...metav1.OwnerReference) []metav1.OwnerReference { return all }
	for name, c := range map[string]struct {
		owner     metav1.OwnerReference
		was, want []metav1.OwnerReference
		written   bool
	}{
		"it is":                              {is, refs(is), refs(is), false},
		"it is, with flags of others":        {is, refs(flagged, nodeOwner), refs(flagged, nodeOwner), false},
		"it is not yet":                      {is, refs(nodeOwner), refs(nodeOwner, is), true},
		"one of before is, as well":          {is, refs(is, previousOwner), refs(is), true},
		"one of before is, and was before":   {is, refs(previousOwner, nodeOwner, is), refs(nodeOwner, is), true},
		"one of another kind of Service is":  {is, refs(knativeOwner, is), refs(knativeOwner, is), false},
		"it is, by another name":             {is, refs(renamed), refs(is), true},
		"it is, as another kind":             {is, refs(lower), refs(lower, is), true},
		"it is, by another version":          {is, refs(old), refs(old, is), true},
		"nobody is to be, and somebody is":   {metav1.OwnerReference{}, refs(previousOwner), refs(previousOwner), false},
		"nobody is to be, and nobody is yet": {metav1.OwnerReference{}, nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			was := testSlice("shop-nodes", "default", 1, 1)
			was.OwnerReferences = c.was
			d := testTarget(1)
			d.Owner = c.owner
			if plan := Compute(d, []*discoveryv1.EndpointSlice{was}); plan.Empty() == c.written {
				t.Errorf("written: %t", !plan.Empty())
			}
			d = testTarget(2)
			d.Owner = c.owner
			if diff := cmp.Diff(c.want, Compute(d, []*discoveryv1.EndpointSlice{was}).Update[0].OwnerReferences); diff != "" {
				t.Errorf("owners after a change (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWritesEachEndpointDifference(t *testing.T) {
	for name, alter := range map[string]func(*discoveryv1.Endpoint){
		"it is not ready":      func(e *discoveryv1.Endpoint) { e.Conditions.Ready = new(false) },
		"it does not serve":    func(e *discoveryv1.Endpoint) { e.Conditions.Serving = new(false) },
		"it terminates":        func(e *discoveryv1.Endpoint) { e.Conditions.Terminating = new(true) },
		"it has a hostname":    func(e *discoveryv1.Endpoint) { e.Hostname = new("one") },
		"it has a topology":    func(e *discoveryv1.Endpoint) { e.DeprecatedTopology = map[string]string{"a": "b"} },
		"it is no address":     func(e *discoveryv1.Endpoint) { e.Addresses = []string{"one"} },
		"it is another family": func(e *discoveryv1.Endpoint) { e.Addresses = []string{"fd00::1"} },
	} {
		t.Run(name, func(t *testing.T) {
			was := testSlice("shop-nodes", "default", 1, 1)
			alter(&was.Endpoints[0])
			plan := Compute(testTarget(1), []*discoveryv1.EndpointSlice{was})
			checkCounts(t, plan, 0, 1, 0)
			if diff := cmp.Diff(testSlice("shop-nodes", "default", 1, 1).Endpoints, plan.Update[0].Endpoints); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWritesEachPortDifference(t *testing.T) {
	one, two, three := discoveryv1.EndpointPort{Port: new(int32(1))}, discoveryv1.EndpointPort{Port: new(int32(2))}, discoveryv1.EndpointPort{Port: new(int32(3))}
	all, udp := discoveryv1.EndpointPort{}, discoveryv1.EndpointPort{Protocol: new(corev1.ProtocolUDP), Port: new(int32(1))}
	ports := func(all ...discoveryv1.EndpointPort) []discoveryv1.EndpointPort { return all }
	for name, c := range map[string]struct{ was, want []discoveryv1.EndpointPort }{
		"one more":                          {ports(one), ports(one, two)},
		"one less":                          {ports(one, two), ports(one)},
		"another one":                       {ports(one, two), ports(one, three)},
		"one twice":                         {ports(one, two), ports(one, one)},
		"one instead of every port":         {ports(all), ports(one)},
		"every port instead of one":         {ports(one), ports(all)},
		"none, which is not all":            {ports(all), nil},
		"another one, of a single":          {ports(one), ports(two)},
		"the same one, of another protocol": {ports(one), ports(udp)},
		"one that is there with none":       {nil, ports(one)},
	} {
		t.Run(name, func(t *testing.T) {
			was, d := testSlice("shop-nodes", "default", 1, 1), testTarget(1)
			was.Ports, d.Ports = c.was, c.want
			plan := Compute(d, []*discoveryv1.EndpointSlice{was})
			checkCounts(t, plan, 0, 1, 0)
			if got := plan.Update[0].Ports; !slices.EqualFunc(c.want, got, func(a, b discoveryv1.EndpointPort) bool { return cmp.Equal(a, b) }) {
				t.Errorf("ports are %v", got)
			}
		})
	}
}

func TestCurrentEndpointsSkipsInvalidAddresses(t *testing.T) {
	was := testSlice("shop-nodes", "default", 1, 1)
	was.Endpoints = append(was.Endpoints, discoveryv1.Endpoint{}, discoveryv1.Endpoint{Addresses: []string{"one"}})
	held := CurrentEndpoints(testTarget(0), []*discoveryv1.EndpointSlice{was})
	if len(held) != 1 || held[0].Address != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("held is %v", held)
	}
}

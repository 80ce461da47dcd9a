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
	aNode    = metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "n"}
	itBefore = metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: "shop", UID: "svc-0"}
	knative  = metav1.OwnerReference{APIVersion: "serving.knative.dev/v1", Kind: "Service", Name: "shop", UID: "k"}
)

func TestASliceWhoseServiceNameWasAlteredIsOursByItsOwnerOrTheFirstName(t *testing.T) {
	for name, c := range map[string]struct {
		slice  string
		owners []metav1.OwnerReference
		owner  metav1.OwnerReference
		want   bool
	}{
		"its owner is the Service":               {"another", []metav1.OwnerReference{aNode, target(0).Owner}, target(0).Owner, true},
		"it has the first name and no owner":     {"shop-nodes", nil, target(0).Owner, true},
		"it has the first name, and a Node's":    {"shop-nodes", []metav1.OwnerReference{aNode}, target(0).Owner, true},
		"it has the first name, and a Service's": {"shop-nodes", []metav1.OwnerReference{itBefore, aNode}, target(0).Owner, false},
		"it has neither":                         {"another", nil, target(0).Owner, false},
		"nobody is to own it, and nobody does":   {"another", []metav1.OwnerReference{{}}, metav1.OwnerReference{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := target(0)
			d.Owner = c.owner
			s := listing(c.slice, "default", 1, 1)
			s.Labels[discoveryv1.LabelServiceName], s.OwnerReferences = "another", c.owners
			if got := d.Owns(s); got != c.want {
				t.Errorf("ours: %t", got)
			}
		})
	}
}

func TestWhatIsWrittenSaysNoMoreThanItHasTo(t *testing.T) {
	t.Run("an update brings no field managers, which the server knows", func(t *testing.T) {
		was := listing("shop-nodes", "default", 1, 2)
		was.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "somebody"}}
		if got := Make(target(1), []*discoveryv1.EndpointSlice{was}).Update[0].ManagedFields; got != nil {
			t.Errorf("it brings %v", got)
		}
	})
	t.Run("a slice that is emptied lists nothing, which is not null", func(t *testing.T) {
		if got := Make(target(0), []*discoveryv1.EndpointSlice{listing("shop-nodes", "default", 1, 2)}).Update[0].Endpoints; got == nil || len(got) > 0 {
			t.Errorf("it lists %#v", got)
		}
	})
	t.Run("who names no writer leaves that label alone", func(t *testing.T) {
		d := target(2)
		d.Writer = ""
		was := listing("shop-nodes", "default", 1, 1)
		if got := Make(d, []*discoveryv1.EndpointSlice{was}).Update[0].Labels[LabelWriter]; got != was.Labels[LabelWriter] {
			t.Errorf("it is %q", got)
		}
		if plan := Make(d, []*discoveryv1.EndpointSlice{listing("shop-nodes", "default", 1, 2)}); !plan.Empty() {
			t.Errorf("it is written by %v", outcome(plan))
		}
		if got, is := Make(d, nil).Create[0].Labels[LabelWriter]; is {
			t.Errorf("it is %q", got)
		}
	})
}

func TestSlicesHaveTheServicesLabelsAndNoOthers(t *testing.T) {
	own := map[string]string{
		discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: target(0).ManagedBy,
		LabelSource: DefaultSource, LabelWriter: target(0).Writer,
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
			d := target(1)
			d.Labels, d.Headless = c.labels, c.headless
			was := listing("shop-nodes", "default", 1, 1)
			was.Labels = with(c.was)
			plan := Make(d, []*discoveryv1.EndpointSlice{was})
			if c.written {
				counts(t, plan, 0, 1, 0)
				if diff := cmp.Diff(was.Endpoints, plan.Update[0].Endpoints); diff != "" {
					t.Errorf("endpoints change with the labels (-was +is):\n%s", diff)
				}
				if diff := cmp.Diff(with(c.want), plan.Update[0].Labels); diff != "" {
					t.Errorf("labels (-want +got):\n%s", diff)
				}
			} else {
				counts(t, plan, 0, 0, 0)
			}
			if diff := cmp.Diff(with(c.want), Make(d, nil).Create[0].Labels); diff != "" {
				t.Errorf("labels of a new slice (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTriggerTimeThatAnotherWriterLeftIsRemoved(t *testing.T) {
	was := listing("shop-nodes", "default", 1, 1)
	was.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-01-01T00:00:00Z", "a": "b"}
	plan := Make(target(1), []*discoveryv1.EndpointSlice{was})
	counts(t, plan, 0, 1, 0)
	if diff := cmp.Diff(map[string]string{"a": "b"}, plan.Update[0].Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if len(was.Annotations) != 2 {
		t.Error("the given slice was changed")
	}
}

func TestTheOwnerIsTheServiceAndNoOther(t *testing.T) {
	is := target(0).Owner
	flagged, renamed, lower, old := is, is, is, is
	flagged.Controller, renamed.Name, lower.Kind, old.APIVersion = new(true), "another", "service", "v0"
	refs := func(all ...metav1.OwnerReference) []metav1.OwnerReference { return all }
	for name, c := range map[string]struct {
		owner     metav1.OwnerReference
		was, want []metav1.OwnerReference
		written   bool
	}{
		"it is":                              {is, refs(is), refs(is), false},
		"it is, with flags of others":        {is, refs(flagged, aNode), refs(flagged, aNode), false},
		"it is not yet":                      {is, refs(aNode), refs(aNode, is), true},
		"one of before is, as well":          {is, refs(is, itBefore), refs(is), true},
		"one of before is, and was before":   {is, refs(itBefore, aNode, is), refs(aNode, is), true},
		"one of another kind of Service is":  {is, refs(knative, is), refs(knative, is), false},
		"it is, by another name":             {is, refs(renamed), refs(is), true},
		"it is, as another kind":             {is, refs(lower), refs(lower, is), true},
		"it is, by another version":          {is, refs(old), refs(old, is), true},
		"nobody is to be, and somebody is":   {metav1.OwnerReference{}, refs(itBefore), refs(itBefore), false},
		"nobody is to be, and nobody is yet": {metav1.OwnerReference{}, nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			was := listing("shop-nodes", "default", 1, 1)
			was.OwnerReferences = c.was
			d := target(1)
			d.Owner = c.owner
			if plan := Make(d, []*discoveryv1.EndpointSlice{was}); plan.Empty() == c.written {
				t.Errorf("written: %t", !plan.Empty())
			}
			d = target(2)
			d.Owner = c.owner
			if diff := cmp.Diff(c.want, Make(d, []*discoveryv1.EndpointSlice{was}).Update[0].OwnerReferences); diff != "" {
				t.Errorf("owners after a change (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEachDifferenceOfAnEndpointIsWritten(t *testing.T) {
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
			was := listing("shop-nodes", "default", 1, 1)
			alter(&was.Endpoints[0])
			plan := Make(target(1), []*discoveryv1.EndpointSlice{was})
			counts(t, plan, 0, 1, 0)
			if diff := cmp.Diff(listing("shop-nodes", "default", 1, 1).Endpoints, plan.Update[0].Endpoints); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestEachDifferenceOfThePortsIsWritten(t *testing.T) {
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
			was, d := listing("shop-nodes", "default", 1, 1), target(1)
			was.Ports, d.Ports = c.was, c.want
			plan := Make(d, []*discoveryv1.EndpointSlice{was})
			counts(t, plan, 0, 1, 0)
			if got := plan.Update[0].Ports; !slices.EqualFunc(c.want, got, func(a, b discoveryv1.EndpointPort) bool { return cmp.Equal(a, b) }) {
				t.Errorf("ports are %v", got)
			}
		})
	}
}

func TestWhatIsNoAddressIsNotHeld(t *testing.T) {
	was := listing("shop-nodes", "default", 1, 1)
	was.Endpoints = append(was.Endpoints, discoveryv1.Endpoint{}, discoveryv1.Endpoint{Addresses: []string{"one"}})
	held := Held(target(0), []*discoveryv1.EndpointSlice{was})
	if len(held) != 1 || held[0].Address != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("held is %v", held)
	}
}

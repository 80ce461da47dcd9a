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
	"k8s.io/utils/ptr"
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
		"owned by the Service":                 {"another", []metav1.OwnerReference{nodeOwner, testTarget(0).Owner}, testTarget(0).Owner, true},
		"first name, no owner":                 {"shop-nodes", nil, testTarget(0).Owner, true},
		"first name, owned by a Node":          {"shop-nodes", []metav1.OwnerReference{nodeOwner}, testTarget(0).Owner, true},
		"first name, owned by another Service": {"shop-nodes", []metav1.OwnerReference{previousOwner, nodeOwner}, testTarget(0).Owner, false},
		"other name, no owner":                 {"another", nil, testTarget(0).Owner, false},
		"Service without UID, other name":      {"another", []metav1.OwnerReference{{}}, metav1.OwnerReference{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := testTarget(0)
			d.Owner = c.owner
			s := testSlice(c.slice, "default", 1, 1)
			s.Labels[discoveryv1.LabelServiceName], s.OwnerReferences = "another", c.owners
			if got := d.Owns(s); got != c.want {
				t.Errorf("Owns: %t", got)
			}
		})
	}
}

func TestRenderedSliceFields(t *testing.T) {
	t.Run("an update has no managed fields", func(t *testing.T) {
		was := testSlice("shop-nodes", "default", 1, 2)
		was.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "other"}}
		if got := Compute(testTarget(1), []*discoveryv1.EndpointSlice{was}).Update[0].ManagedFields; got != nil {
			t.Errorf("managed fields: %v", got)
		}
	})
	t.Run("an emptied slice has an empty list, not null", func(t *testing.T) {
		if got := Compute(testTarget(0), []*discoveryv1.EndpointSlice{testSlice("shop-nodes", "default", 1, 2)}).Update[0].Endpoints; got == nil ||
			len(got) > 0 {
			t.Errorf("endpoints: %#v", got)
		}
	})
}

func TestSlicesHaveOnlyServiceLabels(t *testing.T) {
	own := map[string]string{
		discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: testTarget(0).ManagedBy,
		labelGroup: defaultGroup, labelInstance: "a",
	}
	with := func(more map[string]string) map[string]string {
		all := maps.Clone(own)
		maps.Copy(all, more)
		return all
	}
	for name, c := range map[string]struct {
		was      map[string]string // besides the planner's
		labels   map[string]string
		headless bool
		want     map[string]string // besides the planner's
		written  bool
	}{
		"none":                          {nil, nil, false, nil, false},
		"unchanged":                     {map[string]string{"team": "a"}, map[string]string{"team": "a"}, false, map[string]string{"team": "a"}, false},
		"added":                         {nil, map[string]string{"team": "a"}, false, map[string]string{"team": "a"}, true},
		"changed":                       {map[string]string{"team": "a"}, map[string]string{"team": "b"}, false, map[string]string{"team": "b"}, true},
		"removed":                       {map[string]string{"team": "a"}, nil, false, nil, true},
		"conflicts with the planner's":  {nil, map[string]string{discoveryv1.LabelManagedBy: "x", labelGroup: "x", labelInstance: "x"}, false, nil, false},
		"headless":                      {nil, nil, true, map[string]string{corev1.IsHeadlessService: ""}, true},
		"headless, unchanged":           {map[string]string{corev1.IsHeadlessService: ""}, nil, true, map[string]string{corev1.IsHeadlessService: ""}, false},
		"no longer headless":            {map[string]string{corev1.IsHeadlessService: ""}, nil, false, nil, true},
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
					t.Errorf("endpoints change with the labels (-old +new):\n%s", diff)
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
		t.Error("the existing slice was modified")
	}
}

func TestOwnerIsTheService(t *testing.T) {
	is := testTarget(0).Owner
	flagged, renamed, lower, old := is, is, is, is
	flagged.Controller, renamed.Name, lower.Kind, old.APIVersion = ptr.To(true), "another", "service", "v0"
	refs := func(all ...metav1.OwnerReference) []metav1.OwnerReference { return all }
	for name, c := range map[string]struct {
		owner     metav1.OwnerReference
		was, want []metav1.OwnerReference
		written   bool
	}{
		"the Service":                     {is, refs(is), refs(is), false},
		"the Service, with foreign flags": {is, refs(flagged, nodeOwner), refs(flagged, nodeOwner), false},
		"only a Node":                     {is, refs(nodeOwner), refs(nodeOwner, is), true},
		"also an earlier Service":         {is, refs(is, previousOwner), refs(is), true},
		"an earlier Service first":        {is, refs(previousOwner, nodeOwner, is), refs(nodeOwner, is), true},
		"also a Knative Service":          {is, refs(knativeOwner, is), refs(knativeOwner, is), false},
		"the Service, with another name":  {is, refs(renamed), refs(is), true},
		"the UID, with another kind":      {is, refs(lower), refs(lower, is), true},
		"the UID, with another version":   {is, refs(old), refs(is), true},
		"no UID, with an owner":           {metav1.OwnerReference{}, refs(previousOwner), refs(previousOwner), false},
		"no UID, without an owner":        {metav1.OwnerReference{}, nil, nil, false},
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
		"not ready":   func(e *discoveryv1.Endpoint) { e.Conditions.Ready = ptr.To(false) },
		"not serving": func(e *discoveryv1.Endpoint) { e.Conditions.Serving = ptr.To(false) },
		"terminating": func(e *discoveryv1.Endpoint) { e.Conditions.Terminating = ptr.To(true) },
		"hostname":    func(e *discoveryv1.Endpoint) { e.Hostname = ptr.To("one") },
		"hints":       func(e *discoveryv1.Endpoint) { e.Hints = zoneHints("a") },
		"node hints": func(e *discoveryv1.Endpoint) {
			e.Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: "n"}}}
		},
		"node name":       func(e *discoveryv1.Endpoint) { e.NodeName = ptr.To("n") },
		"reference":       func(e *discoveryv1.Endpoint) { e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "p"} },
		"topology":        func(e *discoveryv1.Endpoint) { e.DeprecatedTopology = map[string]string{"a": "b"} },
		"invalid address": func(e *discoveryv1.Endpoint) { e.Addresses = []string{"one"} },
		"other family":    func(e *discoveryv1.Endpoint) { e.Addresses = []string{"fd00::1"} },
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
	one, two, three := discoveryv1.EndpointPort{
		Port: ptr.To(int32(1)),
	}, discoveryv1.EndpointPort{
		Port: ptr.To(int32(2)),
	}, discoveryv1.EndpointPort{
		Port: ptr.To(int32(3)),
	}
	all, udp := discoveryv1.EndpointPort{}, discoveryv1.EndpointPort{Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To(int32(1))}
	ports := func(all ...discoveryv1.EndpointPort) []discoveryv1.EndpointPort { return all }
	for name, c := range map[string]struct{ was, want []discoveryv1.EndpointPort }{
		"added port":               {ports(one), ports(one, two)},
		"removed port":             {ports(one, two), ports(one)},
		"changed port":             {ports(one, two), ports(one, three)},
		"duplicate port":           {ports(one, two), ports(one, one)},
		"one port instead of all":  {ports(all), ports(one)},
		"all ports instead of one": {ports(one), ports(all)},
		"no ports instead of all":  {ports(all), nil},
		"changed single port":      {ports(one), ports(two)},
		"changed protocol":         {ports(one), ports(udp)},
		"one port instead of none": {nil, ports(one)},
	} {
		t.Run(name, func(t *testing.T) {
			was, d := testSlice("shop-nodes", "default", 1, 1), testTarget(1)
			was.Ports, d.Ports = c.was, c.want
			plan := Compute(d, []*discoveryv1.EndpointSlice{was})
			checkCounts(t, plan, 0, 1, 0)
			if got := plan.Update[0].Ports; !slices.EqualFunc(
				c.want,
				got,
				func(a, b discoveryv1.EndpointPort) bool { return cmp.Equal(a, b) },
			) {
				t.Errorf("ports are %v", got)
			}
		})
	}
}

func TestCurrentEndpointsSkipsInvalidAddresses(t *testing.T) {
	was := testSlice("shop-nodes", "default", 1, 1)
	was.Endpoints = append(was.Endpoints, discoveryv1.Endpoint{}, discoveryv1.Endpoint{Addresses: []string{"one"}})
	current := CurrentEndpoints(testTarget(0), []*discoveryv1.EndpointSlice{was})
	if len(current) != 1 || current[0].Address != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("current endpoints: %v", current)
	}
}

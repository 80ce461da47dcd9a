package planner

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestAdjustExistingChangesOnlyConditions(t *testing.T) {
	yes, no, zone, port := true, false, "z-1", int32(30080)
	conditions := func(ready, serving *bool) discoveryv1.EndpointConditions {
		return discoveryv1.EndpointConditions{Ready: ready, Serving: serving}
	}
	of := func(name, service, manager string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "web", Name: name, UID: "u", ResourceVersion: "7", Annotations: map[string]string{"a": "b"},
				Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: manager, "kept": "as it is"},
			},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints, Ports: []discoveryv1.EndpointPort{{Port: &port}},
		}
	}
	at := func(address string, c discoveryv1.EndpointConditions) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: c, Zone: &zone}
	}
	d := Desired{
		Namespace: "web", Service: "shop", ManagedBy: "nodes-controller", FirstName: "shop-nodes",
		Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6}, Ports: nil, // ignored
		Endpoints: []Endpoint{
			{Address: netip.MustParseAddr("10.0.0.1"), Ready: true, Serving: true},
			{Address: netip.MustParseAddr("10.0.0.2")},
			{Address: netip.MustParseAddr("10.0.0.9"), Ready: true, Serving: true}, // not listed
		},
	}
	mine := of("shop-nodes", "shop", "nodes-controller",
		at("10.0.0.1", conditions(nil, nil)), at("10.0.0.2", conditions(&yes, &yes)), at("10.0.0.3", conditions(&yes, &yes)))
	existing := []*discoveryv1.EndpointSlice{
		mine,
		of("up-to-date", "shop", "nodes-controller", at("10.0.0.1", conditions(&yes, nil))),
		of("with-a-node", "shop", "nodes-controller", withNode(at("10.0.0.1", conditions(&yes, nil)))),
		of("relabeled", "cart", "nodes-controller", at("10.0.0.2", conditions(&yes, &yes))),
		of("foreign", "shop", "hand", at("10.0.0.2", conditions(&yes, &yes))),
	}
	mine.Endpoints[0] = withNode(mine.Endpoints[0])
	before := mine.DeepCopy()
	out := discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &no}
	want := of("shop-nodes", "shop", "nodes-controller", at("10.0.0.1", conditions(nil, nil)), at("10.0.0.2", out))
	if diff := cmp.Diff(Plan{Update: []*discoveryv1.EndpointSlice{want}}, AdjustExisting(d, existing)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, mine); diff != "" {
		t.Errorf("existing slice modified: %s", diff)
	}
	if plan := AdjustExisting(d, []*discoveryv1.EndpointSlice{want}); !plan.Empty() {
		t.Errorf("planned again: %+v", plan)
	}
	if plan := AdjustExisting(d, nil); !plan.Empty() {
		t.Errorf("created a slice: %+v", plan)
	}
}

// withNode adds what an adopted slice may have, and the admission policy lets no writer write.
func withNode(e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.NodeName, e.TargetRef, e.Hints = ptr.To("node-1"), &corev1.ObjectReference{Kind: "Pod"}, &discoveryv1.EndpointHints{
		ForZones: []discoveryv1.ForZone{{Name: "z-1"}},
	}
	e.Addresses = append(e.Addresses, "10.0.0.77")
	return e
}

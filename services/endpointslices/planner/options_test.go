package planner

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// Each change of an option is one write of the one slice, and none is another one again.
func TestOptionsOfSlices(t *testing.T) {
	when := time.Date(2026, 11, 28, 12, 0, 0, 5, time.FixedZone("", 3600))
	endpoint := func(alter func(*Endpoint)) func(*Desired) { return func(d *Desired) { alter(&d.Endpoints[0]) } }
	pod := &corev1.ObjectReference{Kind: "Pod", Namespace: "web", Name: "shop-0", UID: "pod-1"}
	for name, c := range map[string]struct {
		alter func(*Desired)
		has   func(*discoveryv1.EndpointSlice) bool
	}{
		"a node name": {
			endpoint(func(e *Endpoint) { e.NodeName = "node-1" }),
			func(s *discoveryv1.EndpointSlice) bool { return ptr.Deref(s.Endpoints[0].NodeName, "") == "node-1" },
		},
		"a target": {
			endpoint(func(e *Endpoint) { e.TargetRef = pod }),
			func(s *discoveryv1.EndpointSlice) bool { return ptr.Equal(s.Endpoints[0].TargetRef, pod) },
		},
		"an annotation": {
			func(d *Desired) { d.Annotations = map[string]string{"example.com/note": "a"} },
			func(s *discoveryv1.EndpointSlice) bool { return s.Annotations["example.com/note"] == "a" },
		},
		"a label of the instance": {
			func(d *Desired) { d.InstanceLabels = instance("b") },
			func(s *discoveryv1.EndpointSlice) bool { return s.Labels[labelInstance] == "b" },
		},
		"a label of the group": {
			func(d *Desired) { d.GroupLabels = append(d.GroupLabels, labelCluster) },
			func(s *discoveryv1.EndpointSlice) bool { return s.Labels[labelCluster] == defaultGroup },
		},
		"a function that changes slices": {
			func(d *Desired) {
				d.Mutate = func(s *discoveryv1.EndpointSlice) {
					s.Labels["example.com/team"] = "a"
					for i := range s.Endpoints {
						s.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zone-1"}}}
					}
				}
			},
			func(s *discoveryv1.EndpointSlice) bool {
				return s.Labels["example.com/team"] == "a" && s.Endpoints[1].Hints != nil
			},
		},
		"the time of the last change, with a change": {
			func(d *Desired) { d.TriggerTime, d.Endpoints[0].Ready = when, false },
			func(s *discoveryv1.EndpointSlice) bool {
				return s.Annotations[corev1.EndpointsLastChangeTriggerTime] == "2026-11-28T11:00:00.000000005Z"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := appliedCluster(t, testTarget(2))
			d := testTarget(2)
			c.alter(&d)
			plan := Compute(d, cluster.slices)
			checkCounts(t, plan, 0, 1, 0)
			if !c.has(plan.Update[0]) {
				t.Errorf("written is %+v", plan.Update[0])
			}
			cluster.apply(t, plan, func() {})
			checkCounts(t, Compute(d, cluster.slices), 0, 0, 0)
			if got := Compute(testTarget(2), cluster.slices); len(got.Update) > 1 || len(got.Create)+len(got.Delete) > 0 {
				t.Errorf("without it again: %v", describePlan(got))
			}
			if created := Compute(d, nil).Create; len(created) != 1 || !c.has(created[0]) {
				t.Errorf("created is %+v", created)
			}
		})
	}
}

// The time of the last change alone is no reason to write.
func TestTriggerTimeIsWrittenWithChangesOnly(t *testing.T) {
	d := testTarget(2)
	d.TriggerTime = time.Unix(1, 0)
	cluster := appliedCluster(t, d)
	d.TriggerTime = time.Unix(2, 0)
	checkCounts(t, Compute(d, cluster.slices), 0, 0, 0)
	d.Labels = map[string]string{"team": "a"}
	if got := Compute(d, cluster.slices).Update[0].Annotations[corev1.EndpointsLastChangeTriggerTime]; got != "1970-01-01T00:00:01Z" {
		t.Errorf("with other labels the time is %s", got)
	}
	d.Ports[0].Port = ptr.To(int32(8080))
	if got := Compute(d, cluster.slices).Update[0].Annotations[corev1.EndpointsLastChangeTriggerTime]; got != "1970-01-01T00:00:02Z" {
		t.Errorf("with other ports the time is %s", got)
	}
}

func TestSlicesOfDNSNames(t *testing.T) {
	d := testTarget(1)
	d.Families = append(d.Families, discoveryv1.AddressTypeFQDN)
	d.Endpoints = append(d.Endpoints, Endpoint{FQDN: "b.example.com", Ready: true}, Endpoint{FQDN: "a.example.com", Ready: true})
	cluster := appliedCluster(t, d)
	var listed []string
	for _, e := range CurrentEndpoints(d, cluster.slices) {
		listed = append(listed, string(e.Family())+" "+e.FQDN)
	}
	want := []string{"FQDN a.example.com", "FQDN b.example.com", "IPv4 "}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	d.Endpoints[1].Ready = false
	plan := Compute(d, cluster.slices)
	checkCounts(t, plan, 0, 1, 0)
	if got := plan.Update[0]; got.AddressType != discoveryv1.AddressTypeFQDN || len(got.Endpoints) != 2 {
		t.Errorf("updated is %+v", got)
	}
	d.Endpoints[1].Address = netip.MustParseAddr("10.0.0.9") // both: it is neither
	checkCounts(t, Compute(d, cluster.slices), 0, 1, 0)
}

// A caller's own label names the slices' owner and manager, and Kubernetes' labels mean nothing then.
func TestOwnLabelsForNameAndManager(t *testing.T) {
	d := testTarget(1)
	d.NameLabel, d.ManagedByLabel = "example.com/pool", "example.com/managed-by"
	d.Owner.APIVersion, d.Owner.Kind, d.OwnerKinds = "example.com/v1", "Pool", nil
	cluster := appliedCluster(t, d)
	slice := cluster.slices[0]
	if slice.Labels["example.com/pool"] != "shop" || slice.Labels["example.com/managed-by"] != d.ManagedBy ||
		slice.Labels[discoveryv1.LabelServiceName] != "" || slice.Labels[discoveryv1.LabelManagedBy] != "" {
		t.Errorf("labels: %v", slice.Labels)
	}
	other := testTarget(1)
	if other.Owns(slice) || !d.Owns(slice) {
		t.Error("the slice is not the pool's, or it is the Service's")
	}
	d.OwnerKinds = []schema.GroupKind{{Kind: "Service"}}
	other.Owner.UID = "another"
	slice.OwnerReferences = append(slice.OwnerReferences[:0:0], other.Owner)
	if d.Owns(slice) {
		t.Error("a slice that a Service owns is the pool's, which names Services among the kinds with slices of their own")
	}
	checkCounts(t, Withdraw(d, []*discoveryv1.EndpointSlice{slice}), 0, 0, 0)
}

func TestWithoutGroupLabelsGroupsShareSlices(t *testing.T) {
	d := testTarget(2)
	d.GroupLabels, d.Endpoints[0].Group = nil, "blue"
	checkCounts(t, Compute(d, nil), 1, 0, 0)
}

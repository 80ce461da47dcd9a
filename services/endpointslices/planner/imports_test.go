package planner

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var importOwner = metav1.OwnerReference{APIVersion: "multicluster.x-k8s.io/v1beta1", Kind: "ServiceImport", Name: "shop", UID: "import-1"}

// importTarget is testTarget of a ServiceImport with the same name.
func importTarget(endpoints int) Desired {
	d := testTarget(endpoints)
	d.Owner, d.FirstName = importOwner, "shop.serviceimport-nodes"
	d.NameLabel, d.GroupLabels = labelImport, []string{labelGroup, labelCluster}
	return d
}

func TestSlicesOfServiceImportNameItAndTheSourceCluster(t *testing.T) {
	d := importTarget(0)
	d.Labels = map[string]string{"app": "shop", discoveryv1.LabelServiceName: "copied"}
	d.Endpoints = []Endpoint{{Address: netip.MustParseAddr("10.0.0.1"), Ready: true, Group: "blue"}}
	want := map[string]string{
		"app": "shop", labelImport: "shop", labelCluster: "blue", labelGroup: "blue", discoveryv1.LabelManagedBy: d.ManagedBy,
		labelInstance: "a",
	}
	created := Compute(d, nil).Create
	if len(created) != 1 {
		t.Fatalf("%d slices", len(created))
	}
	if diff := cmp.Diff(want, created[0].Labels); diff != "" {
		t.Error(diff)
	}
	t.Run("and nothing is written again", func(t *testing.T) {
		if plan := Compute(d, created); !plan.Empty() {
			t.Errorf("%+v", plan)
		}
	})
	t.Run("a changed label is repaired in place", func(t *testing.T) {
		for _, label := range []string{labelImport, labelCluster} {
			changed := created[0].DeepCopy()
			delete(changed.Labels, label)
			changed.Labels[discoveryv1.LabelServiceName] = "shop"
			plan := Compute(d, []*discoveryv1.EndpointSlice{changed})
			if len(plan.Update) != 1 || plan.Writes() != 1 || !cmp.Equal(plan.Update[0].Labels, want) {
				t.Errorf("without %s: %+v", label, plan)
			}
		}
	})
	t.Run("when the source changes, so does the cluster", func(t *testing.T) {
		moved := d
		moved.Endpoints = []Endpoint{{Address: netip.MustParseAddr("10.0.0.1"), Ready: true, Group: "green"}}
		plan := Compute(moved, created)
		if len(plan.Update) != 1 || plan.Update[0].Labels[labelCluster] != "green" {
			t.Errorf("%+v", plan)
		}
	})
}

// A slice belongs to its owner: to the Service or to the ServiceImport, whatever names its labels have.
func TestServiceAndServiceImportOwnDifferentSlices(t *testing.T) {
	service, imported := testTarget(1), importTarget(1)
	ofService, ofImport := Compute(service, nil).Create[0], Compute(imported, nil).Create[0]
	other := importOwner
	other.UID = "import-0" // of an earlier one
	for name, tc := range map[string]struct {
		slice             *discoveryv1.EndpointSlice
		alter             func(*discoveryv1.EndpointSlice)
		service, imported bool
	}{
		"of the Service":                                 {ofService, func(*discoveryv1.EndpointSlice) {}, true, false},
		"of the ServiceImport":                           {ofImport, func(*discoveryv1.EndpointSlice) {}, false, true},
		"of the Service, with the other label too":       {ofService, func(s *discoveryv1.EndpointSlice) { s.Labels[labelImport] = "shop" }, true, false},
		"of the ServiceImport, with the other label too": {ofImport, func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "shop" }, false, true},
		"of an earlier ServiceImport":                    {ofImport, func(s *discoveryv1.EndpointSlice) { s.OwnerReferences[0] = other }, false, true},
		"of an earlier ServiceImport, with the other label alone": {ofImport, func(s *discoveryv1.EndpointSlice) {
			s.OwnerReferences[0], s.Labels = other, ofService.Labels
		}, false, false},
		"without an owner": {ofImport, func(s *discoveryv1.EndpointSlice) { s.OwnerReferences = nil }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			slice := tc.slice.DeepCopy()
			tc.alter(slice)
			if ofService, ofImport := service.Owns(slice), imported.Owns(slice); ofService != tc.service || ofImport != tc.imported {
				t.Errorf("the Service owns it: %t, the ServiceImport: %t", ofService, ofImport)
			}
		})
	}
	t.Run("the last owner alone stays", func(t *testing.T) {
		both := ofService.DeepCopy()
		both.OwnerReferences = append(both.OwnerReferences, importOwner, nodeOwner)
		plan := Compute(service, []*discoveryv1.EndpointSlice{both})
		if len(plan.Update) != 1 || !cmp.Equal(plan.Update[0].OwnerReferences, []metav1.OwnerReference{nodeOwner, service.Owner}) {
			t.Errorf("%+v", plan)
		}
	})
}

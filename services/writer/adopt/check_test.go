package adopt

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// foreignSlice returns a slice made by hand, with default conditions and protocol.
func foreignSlice() *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "by-hand", UID: "slice-1", ResourceVersion: "7",
			Labels: map[string]string{discoveryv1.LabelServiceName: "shop"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(30080))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.1.1"}}, {Addresses: []string{"10.0.1.2"}}},
	}
}

func newService() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "web", Name: "shop", UID: "service-1", Labels: map[string]string{targets.LabelClass: "default"},
	}}
}

func withManager(by string) func(*discoveryv1.EndpointSlice, *corev1.Service) {
	return func(s *discoveryv1.EndpointSlice, _ *corev1.Service) { s.Labels[discoveryv1.LabelManagedBy] = by }
}

func TestAcceptsSlices(t *testing.T) {
	classed := &Config{Class: "default"}
	named := &Config{Class: "default", Namespace: "web", Service: "shop", ManagedBy: "endpoint-updater"}
	unlabeled := func(_ *discoveryv1.EndpointSlice, svc *corev1.Service) { svc.Labels = nil }
	for name, tc := range map[string]struct {
		to    *Config
		alter func(*discoveryv1.EndpointSlice, *corev1.Service)
		label string
		warns []string // parts of the warnings, one each
	}{
		"made by hand, without the label":          {classed, func(*discoveryv1.EndpointSlice, *corev1.Service) {}, "slicefeed-default", nil},
		"with an empty label":                      {classed, withManager(""), "slicefeed-default", nil},
		"a running controller's":                   {classed, withManager("endpoint-updater"), "slicefeed-default", []string{`"endpoint-updater". Stop`}},
		"of the target given by name":              {named, unlabeled, "endpoint-updater", nil},
		"of that target, under the installation's": {&Config{Class: "blue", Namespace: "web", Service: "shop"}, unlabeled, "slicefeed-blue", nil},
		"of a labeled Service beside that target":  {&Config{Class: "default", Namespace: "web", Service: "cart", ManagedBy: "x"}, withManager(""), "slicefeed-default", nil},
		"owned already":                            {classed, withManager("slicefeed-default"), "slicefeed-default", nil},
		"the named target's already":               {named, withManager("endpoint-updater"), "endpoint-updater", nil},
		"IPv6":                                     {classed, func(s *discoveryv1.EndpointSlice, _ *corev1.Service) { s.AddressType = discoveryv1.AddressTypeIPv6 }, "slicefeed-default", nil},
		"headless":                                 {classed, func(_ *discoveryv1.EndpointSlice, svc *corev1.Service) { svc.Spec.ClusterIP = "None" }, "slicefeed-default", nil},
		"applied by kubectl on the client's side": {classed, func(s *discoveryv1.EndpointSlice, _ *corev1.Service) {
			s.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}
			s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-client-side-apply", Operation: metav1.ManagedFieldsOperationUpdate}}
		}, "slicefeed-default", []string{`field manager "kubectl-client-side-apply", and the next apply`}},
		"applied on the server's side, by two": {classed, func(s *discoveryv1.EndpointSlice, _ *corev1.Service) {
			s.ManagedFields = []metav1.ManagedFieldsEntry{
				{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply},
				{Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate},
				{Manager: "argocd-controller", Operation: metav1.ManagedFieldsOperationApply},
			}
		}, "slicefeed-default", []string{`"argocd-controller", "kubectl", and`}},
		"created and edited, which comes to an end": {classed, func(s *discoveryv1.EndpointSlice, _ *corev1.Service) {
			s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-create", Operation: metav1.ManagedFieldsOperationUpdate}}
		}, "slicefeed-default", nil},
	} {
		t.Run(name, func(t *testing.T) {
			slice, service := foreignSlice(), newService()
			tc.alter(slice, service)
			before := slice.DeepCopy()
			managedBy, warnings, err := check(tc.to, slice, service)
			if err != nil || managedBy != tc.label || len(warnings) != len(tc.warns) {
				t.Fatalf("%s, %q, rejected: %v; want %q and %d warnings", managedBy, warnings, err, tc.label, len(tc.warns))
			}
			for n, part := range tc.warns {
				if !strings.Contains(warnings[n], part) {
					t.Errorf("it does not warn of %s: %s", part, warnings[n])
				}
			}
			if diff := cmp.Diff(before, slice); diff != "" {
				t.Errorf("the slice was changed:\n%s", diff)
			}
		})
	}
}

func TestRejectedSlicesGiveAdvice(t *testing.T) {
	for name, tc := range map[string]struct {
		alter  func(*discoveryv1.EndpointSlice, *corev1.Service)
		advice string
	}{
		"of a selector":             {withManager(selectorController), "Remove spec.selector"},
		"a mirror":                  {withManager(mirroringController), "endpointslice.kubernetes.io/managed-by=slicefeed-default, then delete the Endpoints object"},
		"of another of Kubernetes'": {withManager("something.k8s.io"), "Leave it as it is"},
		"of host names":             {func(s *discoveryv1.EndpointSlice, _ *corev1.Service) { s.AddressType = discoveryv1.AddressTypeFQDN }, "delete this one"},
		"of no Service":             {func(s *discoveryv1.EndpointSlice, _ *corev1.Service) { s.Labels = nil }, "endpointslice by-hand kubernetes.io/service-name=SERVICE"},
		"of a Service with a selector": {func(_ *discoveryv1.EndpointSlice, svc *corev1.Service) {
			svc.Spec.Selector = map[string]string{"a": "b"}
		}, "Remove spec.selector, then delete"},
		"of an ExternalName": {func(_ *discoveryv1.EndpointSlice, svc *corev1.Service) {
			svc.Spec.Type = corev1.ServiceTypeExternalName
		}, "Use ClusterIP"},
		"of a Service that is going": {func(_ *discoveryv1.EndpointSlice, svc *corev1.Service) { svc.DeletionTimestamp = &metav1.Time{} }, "being deleted"},
		"going itself":               {func(s *discoveryv1.EndpointSlice, _ *corev1.Service) { s.DeletionTimestamp = &metav1.Time{} }, "being deleted"},
		"of an unmanaged Service": {
			func(_ *discoveryv1.EndpointSlice, svc *corev1.Service) { svc.Labels = nil },
			"kubectl -n web annotate service shop slicefeed.dev/paused=true && kubectl -n web label service shop slicefeed.dev/class=default",
		},
		"of a Service of another class": {func(_ *discoveryv1.EndpointSlice, svc *corev1.Service) { svc.Labels[targets.LabelClass] = "blue" }, "not of class default"},
		"of another installation": {func(s *discoveryv1.EndpointSlice, _ *corev1.Service) {
			s.Labels[discoveryv1.LabelManagedBy], s.Labels[planner.LabelWriter] = "slicefeed-blue", "elsewhere"
		}, "kubectl -n web label endpointslice by-hand slicefeed.dev/writer-"},
	} {
		t.Run(name, func(t *testing.T) {
			slice, service := foreignSlice(), newService()
			tc.alter(slice, service)
			_, _, err := check(&Config{Class: "default"}, slice, service)
			if err == nil || !strings.Contains(err.Error(), tc.advice) {
				t.Errorf("rejected: %v; want %q", err, tc.advice)
			}
		})
	}
	t.Run("of a Service that is not there", func(t *testing.T) {
		_, _, err := check(&Config{Class: "default"}, foreignSlice(), nil)
		if err == nil || !strings.Contains(err.Error(), "Service web/shop in its label") {
			t.Errorf("rejected: %v", err)
		}
	})
}

// The planner maintains an adopted slice in place, without changing its endpoints or ports.
func TestPlannerKeepsAdoptedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slice, service := foreignSlice(), newService()
		label := func(name string, values ...string) {
			if value := rapid.SampledFrom(append(values, "absent")).Draw(t, name); value != "absent" {
				slice.Labels[name] = value
			} else {
				delete(slice.Labels, name)
			}
		}
		label(
			discoveryv1.LabelManagedBy,
			"",
			"hand",
			"slicefeed-default",
			"slicefeed-blue",
			"endpoint-updater",
			selectorController,
			mirroringController,
		)
		label(discoveryv1.LabelServiceName, "shop", "")
		label(planner.LabelWriter, "", "elsewhere")
		service.Labels[targets.LabelClass] = rapid.SampledFrom([]string{"default", "blue"}).Draw(t, "class")
		to := &Config{Class: "default"}
		if rapid.Bool().Draw(t, "named") {
			to.Namespace, to.Service, to.ManagedBy = "web", "shop", rapid.SampledFrom([]string{"", "endpoint-updater"}).Draw(t, "as")
		}
		managedBy, _, err := check(to, slice, service)
		if err != nil || managedBy == slice.Labels[discoveryv1.LabelManagedBy] {
			return
		}
		slice.Labels[discoveryv1.LabelManagedBy] = managedBy
		if again, _, err := check(to, slice, service); err != nil || again != managedBy {
			t.Errorf("checked again: %s, %v", again, err)
		}
		desired := planner.Desired{
			Namespace: "web",
			Service:   "shop",
			ManagedBy: managedBy,
			Owner: metav1.OwnerReference{
				APIVersion: "v1",
				Kind:       "Service",
				Name:       "shop",
				UID:        "service-1",
			},
			Writer:    "web",
			FirstName: "shop-slicefeed",
			Families:  []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
			Ports:     slice.Ports,
		}
		for _, a := range []string{"10.0.1.1", "10.0.1.2"} {
			desired.Endpoints = append(desired.Endpoints, planner.Endpoint{Address: netip.MustParseAddr(a), Ready: true, Serving: true})
		}
		plan := planner.Compute(desired, []*discoveryv1.EndpointSlice{slice})
		if len(plan.Create)+len(plan.Delete) > 0 || len(plan.Update) != 1 {
			t.Fatalf("the writer would write %+v", plan)
		}
		if diff := cmp.Diff([]any{slice.Endpoints, slice.Ports}, []any{plan.Update[0].Endpoints, plan.Update[0].Ports}); diff != "" {
			t.Errorf("more than the metadata:\n%s", diff)
		}
	})
}

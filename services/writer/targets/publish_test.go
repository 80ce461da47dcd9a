package targets

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestServiceThatIsNoTargetIsPublishedIfItAsks(t *testing.T) {
	foreign, other := newSlice("shop-abc", "endpointslice-controller.k8s.io"), newSlice("cart-abc", "endpointslice-controller.k8s.io")
	other.Labels[discoveryv1.LabelServiceName] = "cart"
	for name, tc := range map[string]struct {
		alter              func(*corev1.Service)
		published, managed bool
		reason             string
	}{
		"it asks":           {func(s *corev1.Service) { s.Annotations["slicefeed.dev/publish"] = "true" }, true, false, ""},
		"it does not ask":   {func(*corev1.Service) {}, false, false, ""},
		"it says no":        {func(s *corev1.Service) { s.Annotations["slicefeed.dev/publish"] = "false" }, false, false, ""},
		"it cannot be read": {func(s *corev1.Service) { s.Annotations["slicefeed.dev/publish"] = "maybe" }, false, false, "InvalidAnnotation"},
		"it is a target anyway": {func(s *corev1.Service) {
			s.Annotations["slicefeed.dev/publish"] = "true"
			s.Labels[LabelClass] = "default"
			s.Spec.Selector = nil
		}, false, true, ""},
		"a target by mistake": {func(s *corev1.Service) {
			s.Annotations["slicefeed.dev/publish"] = "true"
			s.Labels[LabelClass] = "default"
		}, false, false, "ServiceHasSelector"},
	} {
		t.Run(name, func(t *testing.T) {
			svc := newService()
			delete(svc.Labels, LabelClass)
			svc.Spec.Selector = map[string]string{"app": "shop"}
			tc.alter(svc)
			resolution, _ := Resolve(newConfig(), Input{Key: shop, Service: svc, Slices: []*discoveryv1.EndpointSlice{foreign, other}})
			reason := ""
			if resolution.Rejection != nil {
				reason = resolution.Rejection.Reason
			}
			if (resolution.State == ReadOnly) != tc.published || reason != tc.reason || resolution.Active() != tc.managed {
				t.Fatalf("state %d, reason %q, active %t", resolution.State, reason, resolution.Active())
			}
			if relevant := tc.published || tc.managed || tc.reason != ""; (resolution.State != Gone) != relevant {
				t.Errorf("state %d", resolution.State)
			}
			if tc.published && (len(resolution.Slices) != 1 || resolution.Slices[0] != foreign) {
				t.Errorf("published from %v", sliceNames(resolution.Slices))
			}
		})
	}
}

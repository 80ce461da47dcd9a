package people

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestAServiceWithASelectorIsPublishedAndNotWritten(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	d := open(s, s.Writers[0])
	s.StartAll()
	s.Await("nothing is listed", pair.AreJust(pair.Ready))
	cart := s.CreateService(e2e.NewService("cart", e2e.Annotated("publish", "true"), func(service *corev1.Service) {
		service.Spec.Selector = map[string]string{"app": "cart"}
	}))
	// As Kubernetes' own controller writes it.
	name, number, ready := "http", int32(8080), true
	slice := s.CreateSlice(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "cart-x7k2q", Labels: map[string]string{
			discoveryv1.LabelServiceName: cart.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &number}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.7"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	})

	d.reports(s, s.Writers[0], personSAN, "web/cart", `"TARGET_STATE_READ_ONLY"`, `"ready": 1`, `"number": 8080`, `"10.244.0.7"`)
	d.lists(s, s.Writers[0], proxySAN, "cart", `"TARGET_STATE_READ_ONLY"`, `"ready": 1`)
	s.Step("a change of its slice is published", func(s *e2e.Setup) {
		slice.Endpoints[0].Addresses[0] = "10.244.0.8"
		slice = s.UpdateSlice(slice)
		d.reports(s, s.Writers[0], personSAN, "web/cart", `"ready": 1`, `"10.244.0.8"`)
	})
	s.Step("without the annotation it is not published", func(s *e2e.Setup) {
		s.Annotate(cart, "publish", "")
		d.reports(s, s.Writers[0], personSAN, "web/cart", `"NoServices"`)
	})
	writes, err := s.WritesBy(s.Ctx(), pair.WriterUser)
	s.Must(err)
	for _, write := range writes {
		if write.Name == pair.Namespace+"/"+slice.Name {
			t.Errorf("the writer wrote %s", write.Name)
		}
	}
}

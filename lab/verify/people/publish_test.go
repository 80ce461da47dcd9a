package people

import (
	"context"
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
	client := s.ConsumingClient()
	cart, err := client.CoreV1().Services(pair.Namespace).Create(s.Ctx(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "cart", Annotations: map[string]string{"slicefeed.dev/publish": "true"}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "cart"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	s.Must(err)
	t.Cleanup(func() {
		s.Must(client.CoreV1().Services(pair.Namespace).Delete(context.Background(), cart.Name, metav1.DeleteOptions{}))
	})
	// As Kubernetes' own controller writes it.
	name, number, ready := "http", int32(8080), true
	slice, err := client.DiscoveryV1().EndpointSlices(pair.Namespace).Create(s.Ctx(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "cart-x7k2q", Labels: map[string]string{
			discoveryv1.LabelServiceName: cart.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &number}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.7"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}, metav1.CreateOptions{})
	s.Must(err)
	t.Cleanup(func() {
		s.Must(client.DiscoveryV1().EndpointSlices(pair.Namespace).Delete(context.Background(), slice.Name, metav1.DeleteOptions{}))
	})

	d.reports(s, s.Writers[0], personSAN, "web/cart", `"TARGET_STATE_READ_ONLY"`, `"ready": 1`, `"number": 8080`, `"10.244.0.7"`)
	d.lists(s, s.Writers[0], proxySAN, "cart", `"TARGET_STATE_READ_ONLY"`, `"ready": 1`)
	s.Step("a change of its slice is published", func(s *e2e.Setup) {
		slice.Endpoints[0].Addresses[0] = "10.244.0.8"
		slice, err = client.DiscoveryV1().EndpointSlices(pair.Namespace).Update(s.Ctx(), slice, metav1.UpdateOptions{})
		s.Must(err)
		d.reports(s, s.Writers[0], personSAN, "web/cart", `"ready": 1`, `"10.244.0.8"`)
	})
	s.Step("without the annotation it is not published", func(s *e2e.Setup) {
		cart.Annotations = nil
		_, err := client.CoreV1().Services(pair.Namespace).Update(s.Ctx(), cart, metav1.UpdateOptions{})
		s.Must(err)
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

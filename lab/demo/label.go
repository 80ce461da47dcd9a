package demo

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// cart is a Service of people who know nothing of Slicefeed but its label.
var cart = types.NamespacedName{Namespace: pair.OtherNamespace, Name: "cart"}

// label takes a Service of another namespace under management, by nothing but the Service.
func (s *story) label(ctx context.Context) error {
	var all []netip.Addr
	for _, w := range s.workers {
		all = append(all, w.Address)
	}
	services := s.pair.ConsumingClient().CoreV1().Services(cart.Namespace)
	begun := time.Now()
	service, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: cart.Name, Labels: map[string]string{"slicefeed.dev/class": "default"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(pair.NodePort)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	d, err := s.pair.WaitOf(ctx, begun, cart, pair.AreJust(pair.Ready, all...))
	if err != nil {
		return err
	}
	for _, writer := range s.pair.Writers {
		probed, err := writer.Metric(ctx, `slicefeed_writer_probed_endpoints{health="passing"}`)
		if err != nil {
			return err
		}
		if int(probed) != len(all) {
			return fmt.Errorf("%s probes %v backends for two Services that share %d", writer.Name, probed, len(all))
		}
	}
	s.tookf(
		d,
		"%s is created, with the label slicefeed.dev/class: default. Its slice has all three workers. Their backends are probed already, so it causes no more probes.",
		cart,
	)

	service.Annotations = map[string]string{"slicefeed.dev/probe": "ping"}
	if service, err = services.Update(ctx, service, metav1.UpdateOptions{}); err != nil {
		return err
	}
	event, err := s.pair.WaitEventOn(ctx, service.UID, func(e *eventsv1.Event) bool { return e.Reason == "InvalidAnnotation" })
	if err != nil {
		return err
	}
	s.sayf("Someone mistypes an annotation. The Service keeps its previous settings, and an Event says so:")
	s.quote(event.Type + " " + event.Reason + ": " + event.Note)
	if are := pair.AreJust(pair.Ready, all...); !are(s.pair.Of(cart)) {
		return fmt.Errorf("a mistyped annotation changed the slices: %s", pair.Describe(s.pair.Of(cart)))
	}

	service.Annotations, service.Labels = nil, map[string]string{"slicefeed.dev/class": "none"}
	begun = time.Now()
	if _, err := services.Update(ctx, service, metav1.UpdateOptions{}); err != nil {
		return err
	}
	d, err = s.pair.WaitOf(ctx, begun, cart, func(all []*discoveryv1.EndpointSlice) bool { return len(all) == 0 })
	if err != nil {
		return err
	}
	s.tookf(d, "The label becomes slicefeed.dev/class: none: its owned slice is deleted, and nothing else.")
	return nil
}

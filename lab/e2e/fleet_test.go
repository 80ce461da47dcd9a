package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// fleet is the stage with any number of Services. The stage's own Service is one of them:
// like the others it is known by its label, and no Service is given by name.
type fleet struct {
	*stage

	seen *pair.Fleet
}

func enterFleet(t *testing.T, sc script) *fleet {
	t.Helper()
	f := &fleet{}
	t.Cleanup(func() { f.clearFleet() }) // the last of all: no half runs any more
	writer := map[string]string{"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": ""}
	maps.Copy(writer, sc.writer)
	sc.writer = writer
	given := sc.service
	sc.service = func(service *corev1.Service) {
		inClass(service)
		if given != nil {
			given(service)
		}
	}
	f.stage = enter(t, sc)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var err error
	f.seen, err = f.Follow(ctx)
	t.Cleanup(stop)
	f.must(err)
	t.Cleanup(func() { stop(); f.seen.Wait() })
	return f
}

// clearFleet takes away what the stage itself does not know of.
func (f *fleet) clearFleet() {
	if f.stage == nil {
		return
	}
	ctx, at := context.WithoutCancel(f.t.Context()), metav1.DeleteOptions{}
	client := f.ConsumingClient()
	for _, namespace := range []string{pair.Namespace, pair.OtherNamespace} {
		services, err := client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			f.t.Error(err)
			return
		}
		for _, service := range services.Items {
			if err := client.CoreV1().Services(namespace).Delete(ctx, service.Name, at); err != nil && !apierrors.IsNotFound(err) {
				f.t.Error(err)
			}
		}
		if err := client.DiscoveryV1().EndpointSlices(namespace).DeleteCollection(ctx, at, metav1.ListOptions{}); err != nil {
			f.t.Error(err)
		}
	}
}

// step is stage.step with the fleet.
func (f *fleet) step(name string, play func(*fleet)) {
	f.t.Helper()
	f.stage.step(name, func(s *stage) { play(&fleet{stage: s, seen: f.seen}) })
}

// inClass is what makes a Service ours.
func inClass(service *corev1.Service) {
	service.Labels = map[string]string{"slicefeed.dev/class": "default"}
}

// plain is a Service that points to the workers, changed as told.
func plain(name string, change ...func(*corev1.Service)) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: pair.Namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{portTo("http", corev1.ProtocolTCP, 80, pair.NodePort)}},
	}
	for _, one := range change {
		one(service)
	}
	return service
}

// labelled is a plain Service that is ours.
func labelled(name string, change ...func(*corev1.Service)) *corev1.Service {
	return plain(name, append([]func(*corev1.Service){inClass}, change...)...)
}

func portTo(name string, protocol corev1.Protocol, from, to int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: protocol, Port: from, TargetPort: intstr.FromInt32(to)}
}

// annotated sets annotations of ours, each a name and a value.
func annotated(pairs ...string) func(*corev1.Service) {
	return func(service *corev1.Service) {
		if service.Annotations == nil {
			service.Annotations = map[string]string{}
		}
		for ; len(pairs) > 1; pairs = pairs[2:] {
			service.Annotations["slicefeed.dev/"+pairs[0]] = pairs[1]
		}
	}
}

func inNamespace(namespace string) func(*corev1.Service) {
	return func(service *corev1.Service) { service.Namespace = namespace }
}

// make makes a Service.
func (f *fleet) make(service *corev1.Service) *corev1.Service {
	f.t.Helper()
	made, err := f.ConsumingClient().CoreV1().Services(service.Namespace).Create(f.ctx(), service, metav1.CreateOptions{})
	f.must(err)
	return made
}

// patch changes a Service by a merge patch.
func (f *fleet) patch(service *corev1.Service, patch string) {
	f.t.Helper()
	_, err := f.ConsumingClient().
		CoreV1().
		Services(service.Namespace).
		Patch(f.ctx(), service.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	f.must(err)
}

// annotate sets annotations of ours on a Service; an empty value takes one away.
func (f *fleet) annotate(service *corev1.Service, pairs ...string) {
	f.t.Helper()
	annotations := map[string]any{}
	for ; len(pairs) > 1; pairs = pairs[2:] {
		annotations["slicefeed.dev/"+pairs[0]] = pairs[1]
		if pairs[1] == "" {
			annotations["slicefeed.dev/"+pairs[0]] = nil
		}
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	f.must(err)
	f.patch(service, string(raw))
}

// label sets the class of a Service; an empty one takes the label away.
func (f *fleet) label(service *corev1.Service, class string) {
	f.t.Helper()
	value := fmt.Sprintf("%q", class)
	if class == "" {
		value = "null"
	}
	f.patch(service, `{"metadata":{"labels":{"slicefeed.dev/class":`+value+`}}}`)
}

func nameOf(service *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
}

// of returns a Service's slices.
func (f *fleet) of(service *corev1.Service) []*discoveryv1.EndpointSlice {
	return f.seen.Of(nameOf(service))
}

// wait waits until a Service's slices are as told, and says how long that took.
func (f *fleet) wait(service *corev1.Service, what string, are func([]*discoveryv1.EndpointSlice) bool) time.Duration {
	f.t.Helper()
	took, err := f.seen.WaitSince(f.ctx(), time.Now(), nameOf(service), are)
	if err != nil {
		f.t.Fatalf("waited until %s: %v\nEvents: %s", what, err, f.events(service))
	}
	return took
}

// tells waits for an Event about a Service with a note that says all of this.
func (f *fleet) tells(service *corev1.Service, reason string, says ...string) *eventsv1.Event {
	f.t.Helper()
	event, err := f.seen.WaitEvent(f.ctx(), service.UID, func(e *eventsv1.Event) bool {
		return e.Reason == reason && containsAll(e.Note, says...)
	})
	if err != nil {
		f.t.Fatalf("waited for an Event %s on %s that says %q: %v\nEvents: %s", reason, service.Name, says, err, f.events(service))
	}
	return event
}

// events are what the writers have told on a Service.
func (f *fleet) events(service *corev1.Service) string {
	text := ""
	for _, e := range f.seen.Events(service.UID) {
		if e.ReportingController == "slicefeed.dev/writer" { // the API server has its own to say of ClusterIPs
			text += fmt.Sprintf("\n%s: %s", e.Reason, e.Note)
		}
	}
	return text
}

// writesOf is how many answered writes there have been of a Service's slices, by whomever.
func (f *fleet) writesOf(service *corev1.Service) int {
	f.t.Helper()
	all, err := f.WritesBy(f.ctx(), pair.WriterUser)
	f.must(err)
	n := 0
	for _, write := range all {
		if write.Name == service.Namespace+"/"+service.Name+"-slicefeed" {
			n++
		}
	}
	return n
}

// join is that of the stage; the fleet has a watch of its own, which may hear of it later.
func (f *fleet) join(n int) []*pair.Worker {
	f.t.Helper()
	workers := f.stage.join(n)
	f.wait(f.service, "the new workers serve", pair.Are(pair.Ready, addresses(workers)...))
	return workers
}

// versions are those of a Service's slices.
func (f *fleet) versions(service *corev1.Service) map[string]string {
	versions := map[string]string{}
	for _, one := range f.of(service) {
		versions[one.Name] = one.ResourceVersion
	}
	return versions
}

func none(all []*discoveryv1.EndpointSlice) bool { return len(all) == 0 }

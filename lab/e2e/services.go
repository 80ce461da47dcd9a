package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// InClass makes a Service one of the writers'.
func InClass(service *corev1.Service) {
	service.Labels = map[string]string{"slicefeed.dev/class": "default"}
}

// NewService is a Service that points to the workers, with changes.
func NewService(name string, change ...func(*corev1.Service)) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: pair.Namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{PortTo("http", corev1.ProtocolTCP, 80, pair.NodePort)}},
	}
	for _, one := range change {
		one(service)
	}
	return service
}

// NewLabeledService is a Service of the writers' class.
func NewLabeledService(name string, change ...func(*corev1.Service)) *corev1.Service {
	return NewService(name, append([]func(*corev1.Service){InClass}, change...)...)
}

// PortTo is a port of a Service.
func PortTo(name string, protocol corev1.Protocol, from, to int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: protocol, Port: from, TargetPort: intstr.FromInt32(to)}
}

// Annotated sets annotations of ours, each a name and a value.
func Annotated(pairs ...string) func(*corev1.Service) {
	return func(service *corev1.Service) {
		if service.Annotations == nil {
			service.Annotations = map[string]string{}
		}
		for ; len(pairs) > 1; pairs = pairs[2:] {
			service.Annotations["slicefeed.dev/"+pairs[0]] = pairs[1]
		}
	}
}

// InNamespace moves a Service.
func InNamespace(namespace string) func(*corev1.Service) {
	return func(service *corev1.Service) { service.Namespace = namespace }
}

// CreateService creates a Service.
func (s *Setup) CreateService(service *corev1.Service) *corev1.Service {
	s.T.Helper()
	made, err := s.ConsumingClient().CoreV1().Services(service.Namespace).Create(s.Ctx(), service, metav1.CreateOptions{})
	s.Must(err)
	return made
}

// PatchService changes a Service by a merge patch.
func (s *Setup) PatchService(service *corev1.Service, patch string) {
	s.T.Helper()
	_, err := s.ConsumingClient().CoreV1().Services(service.Namespace).
		Patch(s.Ctx(), service.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
}

// Annotate sets annotations of ours on a Service; an empty value removes one.
func (s *Setup) Annotate(service *corev1.Service, pairs ...string) {
	s.T.Helper()
	annotations := map[string]any{}
	for ; len(pairs) > 1; pairs = pairs[2:] {
		annotations["slicefeed.dev/"+pairs[0]] = pairs[1]
		if pairs[1] == "" {
			annotations["slicefeed.dev/"+pairs[0]] = nil
		}
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	s.Must(err)
	s.PatchService(service, string(raw))
}

// SetClass sets the class of a Service; an empty one removes the label.
func (s *Setup) SetClass(service *corev1.Service, class string) {
	s.T.Helper()
	value := fmt.Sprintf("%q", class)
	if class == "" {
		value = "null"
	}
	s.PatchService(service, `{"metadata":{"labels":{"slicefeed.dev/class":`+value+`}}}`)
}

// NameOf is the namespace and name of a Service.
func NameOf(service *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
}

// SlicesOf returns a Service's slices.
func (s *Setup) SlicesOf(service *corev1.Service) []*discoveryv1.EndpointSlice {
	return s.Of(NameOf(service))
}

// AwaitOf waits for the slices of a Service, and returns how long that took.
func (s *Setup) AwaitOf(service *corev1.Service, what string, are func([]*discoveryv1.EndpointSlice) bool) time.Duration {
	s.T.Helper()
	took, err := s.WaitOf(s.Ctx(), time.Now(), NameOf(service), are)
	if err != nil {
		s.T.Fatalf("waited until %s: %v\nEvents: %s", what, err, s.DescribeEvents(service))
	}
	return took
}

// AwaitEventOn waits for an Event on a Service with a note that contains all of this.
func (s *Setup) AwaitEventOn(service *corev1.Service, reason string, says ...string) *eventsv1.Event {
	s.T.Helper()
	event, err := s.WaitEventOn(s.Ctx(), service.UID, func(e *eventsv1.Event) bool {
		return e.Reason == reason && ContainsAll(e.Note, says...)
	})
	if err != nil {
		s.T.Fatalf("waited for an Event %s on %s that says %q: %v\nEvents: %s", reason, service.Name, says, err, s.DescribeEvents(service))
	}
	return event
}

// DescribeEvents are the writers' Events on a Service.
func (s *Setup) DescribeEvents(service *corev1.Service) string {
	var text strings.Builder
	for _, e := range s.Events(service.UID) {
		if e.ReportingController == "slicefeed.dev/writer" { // the API server has its own on ClusterIPs
			fmt.Fprintf(&text, "\n%s: %s", e.Reason, e.Note)
		}
	}
	return text.String()
}

// WriteCountOf is how many writes of a Service's slice by the writers have been answered.
func (s *Setup) WriteCountOf(service *corev1.Service) int {
	s.T.Helper()
	all, err := s.WritesBy(s.Ctx(), pair.WriterUser)
	s.Must(err)
	n := 0
	for _, write := range all {
		if write.Name == service.Namespace+"/"+service.Name+"-slicefeed" {
			n++
		}
	}
	return n
}

// VersionsOf are those of a Service's slices.
func (s *Setup) VersionsOf(service *corev1.Service) map[string]string {
	versions := map[string]string{}
	for _, one := range s.SlicesOf(service) {
		versions[one.Name] = one.ResourceVersion
	}
	return versions
}

// None accepts no slice.
func None(all []*discoveryv1.EndpointSlice) bool { return len(all) == 0 }

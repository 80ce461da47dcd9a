package people

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// Two sources, two namespaces and Services of which some cannot be served: the lines that say so.
func TestWriterPeoplePreflightOfMany(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	w := s.Machine(pair.WorkerOptions{})
	s.Must(w.Join(s.Ctx()))
	s.Must(s.Inventory.Start(s.Ctx()))
	s.Must(s.OpenNamespace(s.Ctx(), pair.OtherNamespace))
	olive, err := s.AddSource("olive", netip.MustParseAddr("10.0.0.47"), "10.0.1.0/24")
	s.Must(err)
	olive.Namespaces = []string{pair.Namespace}
	s.Must(olive.Tell(w))
	t.Cleanup(func() {
		if err := olive.Kill(); err != nil {
			t.Error(err)
		}
	})
	create := func(namespace, name string, port int32, change func(*corev1.Service)) {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace,
				Name:      name,
				Labels: map[string]string{
					"slicefeed.dev/class": "default",
				},
				Annotations: map[string]string{"slicefeed.dev/source": "default"},
			},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(port)}}},
		}
		if change != nil {
			change(service)
		}
		services := s.ConsumingClient().CoreV1().Services(namespace)
		_, err := services.Create(s.Ctx(), service, metav1.CreateOptions{})
		s.Must(err)
		t.Cleanup(func() {
			if err := services.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	from := func(source string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Annotations["slicefeed.dev/source"] = source }
	}
	create(pair.Namespace, "both", pair.NodePort, from("default,olive"))
	create(pair.OtherNamespace, "cart", pair.NodePort, nil)
	file := filepath.Join(t.TempDir(), "sources.yaml")
	s.WriteFile(file, pair.SourcesFile(s.Default(), olive))
	settings := []string{
		"SOURCES_FILE=" + file, "INVENTORY_ADDRESS=", "INVENTORY_SAN=", "SECURED_SUBNET_CIDR=", "TLS_PEER_CA_FILE=",
		"TARGET_NAMESPACE=", "TARGET_SERVICE_NAME=", "TARGET_ENDPOINTSLICE_NAME=", "TARGET_MANAGED_BY=", "TARGET_PORT=",
		"WATCH_NAMESPACES=" + pair.Namespace + "," + pair.OtherNamespace,
	}
	// says wants these lines, with their blanks folded, and this exit code.
	says := func(want int, lines ...string) {
		t.Helper()
		code, text := asked(s, "preflight", settings...)
		var folded strings.Builder
		for line := range strings.Lines(text) {
			folded.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
		}
		if code != want || !e2e.ContainsAll(folded.String(), lines...) {
			t.Errorf("exit code %d, want %d and %q:\n%s", code, want, lines, text)
		}
	}

	says(
		1,
		"ok default: initial sync",
		"FAIL olive: inventory",
		"check address of olive in SOURCES_FILE",
		"- olive: initial sync",
		"- olive: probes",
		"ok Services 2 of 2 can be managed: checkout/cart, web/both",
		"ok default: probes 1 of 1 addresses",
	)
	s.Must(olive.Start(s.Ctx()))
	says(
		0,
		"ok olive: peer CA",
		"ok default: inventory",
		"ok olive: inventory",
		"ok olive: initial sync members: 1, ready: 1",
		"ok list services in "+pair.OtherNamespace+", "+pair.Namespace,
		"ok admission policy",
		"all allowlists of SOURCES_FILE was not",
		"ok default: allowlist cidrs of default in SOURCES_FILE=[10.0.1.0/24]",
		"also allowed for olive",
		"ok olive: probes 1 of 1 addresses",
	)
	create(pair.OtherNamespace, "stranger", pair.NodePort, from("olive"))
	create(pair.Namespace, "deaf", pair.NodePort+1, nil)
	create(pair.Namespace, "outside", 22, nil)
	says(
		1,
		"ok Services 3 of 5 can be managed",
		"FAIL Service checkout/stranger Services in namespace checkout may not use source olive",
		"FAIL Service web/outside Port 22",
		"ok default: probes connections are accepted at 1 of 2 ports",
		"FAIL default: probes at 30081 0 of 1 addresses",
		"ok olive: probes",
	)
}

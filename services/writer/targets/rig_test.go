package targets

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

var shop = Key{"web", "shop"}

func defaultSettings() Settings {
	return Settings{
		Probe:        probe.Spec{Mode: probe.TCP, Path: "/", Interval: 2 * time.Second, Timeout: time.Second},
		MaxStaleness: 15 * time.Minute, ShrinkWindow: time.Minute, EmptyThreshold: 3, ListUnready: true,
	}
}

// newConfig returns a writer with one source.
func newConfig() Config {
	return Config{
		Class: "default", Writer: "slicefeed", Namespaces: []string{"web"}, Defaults: defaultSettings(),
		Sources: []Source{{Name: "default"}},
	}
}

// configWithNamedTarget returns a writer that also has a named target.
func configWithNamedTarget() Config {
	cfg := newConfig()
	cfg.NamedTarget = NamedTarget{Namespace: "web", Service: "shop", FirstName: "shop-nodes"}
	return cfg
}

// newService returns a valid, labeled Service.
func newService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "shop", UID: "svc-1",
			Labels: map[string]string{LabelClass: "default"}, Annotations: map[string]string{},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.9", ClusterIPs: []string{"10.96.0.9"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(30080), Protocol: corev1.ProtocolTCP}},
		},
	}
}

// namedService returns a Service of that name.
func namedService(name string, uid types.UID) *corev1.Service {
	svc := newService()
	svc.Name, svc.UID = name, uid
	svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "None", []string{"None"}
	return svc
}

// newSlice returns a slice of the Service shop.
func newSlice(name, manager string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: manager,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
}

// ownedSlice returns a slice that this writer wrote for the Service shop of that UID.
func ownedSlice(name string, owner types.UID) *discoveryv1.EndpointSlice {
	s := newSlice(name, "slicefeed-default")
	s.Labels["slicefeed.dev/writer"] = "slicefeed"
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "shop", UID: owner}}
	return s
}

func sliceNames(list []*discoveryv1.EndpointSlice) []string {
	var all []string
	for _, s := range list {
		all = append(all, s.Name)
	}
	return all
}

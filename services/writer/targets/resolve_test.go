package targets

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func spec() Spec {
	return Spec{Namespace: "web", Service: "shop", ManagedBy: "slicefeed-default", Writer: "slicefeed", FirstName: "shop-nodes", Probing: true}
}

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", UID: "svc-1"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.9", ClusterIPs: []string{"10.96.0.9"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(30080), Protocol: corev1.ProtocolTCP}},
		},
	}
}

func slice(name, manager string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: manager,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
}

var compareAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestAServiceIsResolvedToItsPortsFamiliesAndOwner(t *testing.T) {
	got, refusal := Resolve(spec(), service(), nil)
	if refusal != nil {
		t.Fatal(refusal)
	}
	want := Target{
		Namespace: "web", Name: "shop", UID: "svc-1",
		Owner:      metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: "shop", UID: "svc-1"},
		Families:   []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
		Ports:      []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(30080))}},
		ProbePort:  30080,
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.9")},
	}
	if diff := cmp.Diff(want, got, compareAddr); diff != "" {
		t.Error(diff)
	}
}

func TestShapesThatWork(t *testing.T) {
	for name, tc := range map[string]struct {
		alter func(*Spec, *corev1.Service)
		check func(Target) bool
	}{
		"TARGET_PORT is written for the only port, whatever its targetPort says": {
			func(s *Spec, svc *corev1.Service) {
				s.Port, svc.Spec.Ports[0].TargetPort = 31000, intstr.FromString("http")
			},
			func(t Target) bool { return *t.Ports[0].Port == 31000 && t.ProbePort == 31000 },
		},
		"several ports each by their targetPort, the probe on the first TCP one": {
			func(_ *Spec, svc *corev1.Service) {
				svc.Spec.Ports = []corev1.ServicePort{
					{Name: "dns", Port: 53, TargetPort: intstr.FromInt32(30053), Protocol: corev1.ProtocolUDP},
					{Name: "web", Port: 80, TargetPort: intstr.FromInt32(30080)},
				}
			},
			func(t Target) bool { return len(t.Ports) == 2 && *t.Ports[0].Port == 30053 && t.ProbePort == 30080 },
		},
		"a UDP Service with a port to probe": {
			func(s *Spec, svc *corev1.Service) {
				s.ProbePort, svc.Spec.Ports[0].Protocol = 30001, corev1.ProtocolUDP
			},
			func(t Target) bool { return t.ProbePort == 30001 },
		},
		"a UDP Service without probing": {
			func(s *Spec, svc *corev1.Service) { s.Probing, svc.Spec.Ports[0].Protocol = false, corev1.ProtocolUDP },
			func(t Target) bool { return t.ProbePort == 0 },
		},
		"headless": {
			func(_ *Spec, svc *corev1.Service) { svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "None", []string{"None"} },
			func(t Target) bool { return len(t.ClusterIPs) == 0 },
		},
		"both families in the Service's order": {
			func(_ *Spec, svc *corev1.Service) { svc.Spec.IPFamilies = []corev1.IPFamily{"IPv6", "IPv4"} },
			func(t Target) bool { return cmp.Equal(t.Families, []discoveryv1.AddressType{"IPv6", "IPv4"}) },
		},
		"a Service from before dual stack, by its cluster IP": {
			func(_ *Spec, svc *corev1.Service) {
				svc.Spec.IPFamilies, svc.Spec.ClusterIP, svc.Spec.ClusterIPs = nil, "fd00::9", nil
			},
			func(t Target) bool {
				return cmp.Equal(t.Families, []discoveryv1.AddressType{"IPv6"}) && len(t.ClusterIPs) == 1
			},
		},
		"an unset targetPort is the port": {
			func(_ *Spec, svc *corev1.Service) { svc.Spec.Ports[0].TargetPort = intstr.IntOrString{} },
			func(t Target) bool { return *t.Ports[0].Port == 80 },
		},
		"Cluster policies": {
			func(_ *Spec, svc *corev1.Service) {
				svc.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
				svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
			},
			func(Target) bool { return true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, svc := spec(), service()
			tc.alter(&s, svc)
			got, refusal := Resolve(s, svc, nil)
			if refusal != nil || !tc.check(got) {
				t.Errorf("%+v, refused: %v", got, refusal)
			}
		})
	}
}

func TestShapesThatAreRefusedSayWhatToDo(t *testing.T) {
	for name, tc := range map[string]struct {
		alter  func(*Spec, *corev1.Service)
		reason string
		advice string
	}{
		"a selector":   {func(_ *Spec, svc *corev1.Service) { svc.Spec.Selector = map[string]string{"a": "b"} }, "ServiceHasSelector", "remove spec.selector"},
		"ExternalName": {func(_ *Spec, svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeExternalName }, "ExternalName", "use ClusterIP"},
		"internal Local": {func(_ *Spec, svc *corev1.Service) {
			svc.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
		}, "LocalTrafficPolicy", "set it to Cluster"},
		"external Local": {func(_ *Spec, svc *corev1.Service) {
			svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}, "LocalTrafficPolicy", "set it to Cluster"},
		"publishNotReadyAddresses": {func(_ *Spec, svc *corev1.Service) { svc.Spec.PublishNotReadyAddresses = true }, "PublishNotReadyAddresses", "set it to false"},
		"a named targetPort":       {func(_ *Spec, svc *corev1.Service) { svc.Spec.Ports[0].TargetPort = intstr.FromString("http") }, "NamedTargetPort", "use the number"},
		"a port number of none":    {func(_ *Spec, svc *corev1.Service) { svc.Spec.Ports[0].TargetPort = intstr.FromInt32(70000) }, "InvalidTargetPort", "from 1 to 65535"},
		"a port outside the fence": {func(s *Spec, _ *corev1.Service) { s.Allowed = func(p uint16) bool { return p == 1 } }, "PortOutsideFence", "ALLOWED_PORTS"},
		"a probe port outside it":  {func(s *Spec, _ *corev1.Service) { s.ProbePort, s.Allowed = 22, func(p uint16) bool { return p != 22 } }, "PortOutsideFence", "ALLOWED_PORTS"},
		"nothing to probe":         {func(_ *Spec, svc *corev1.Service) { svc.Spec.Ports[0].Protocol = corev1.ProtocolUDP }, "NoProbePort", "probe-port"},
		"being deleted":            {func(_ *Spec, svc *corev1.Service) { svc.DeletionTimestamp = &metav1.Time{} }, "ServiceTerminating", "being deleted"},
		"TARGET_PORT with several ports": {func(s *Spec, svc *corev1.Service) {
			s.Port = 31000
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "b", Port: 81})
		}, "TargetPortAmbiguous", "unset TARGET_PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			s, svc := spec(), service()
			tc.alter(&s, svc)
			_, refusal := Resolve(s, svc, nil)
			if refusal == nil || refusal.Reason != tc.reason || !strings.Contains(refusal.Message, tc.advice) {
				t.Errorf("refused: %+v", refusal)
			}
		})
	}
	t.Run("no Service at all", func(t *testing.T) {
		_, refusal := Resolve(spec(), nil, nil)
		if refusal == nil || refusal.Reason != "ServiceNotFound" {
			t.Errorf("refused: %+v", refusal)
		}
	})
}

func TestSlicesOfOthersAreToldOrRefused(t *testing.T) {
	ours, foreign, mirrored := slice("shop-nodes", "slicefeed-default"), slice("by-hand", "hand"), slice("shop-m", mirroring)
	elsewhere := slice("cart-m", mirroring)
	elsewhere.Labels[discoveryv1.LabelServiceName] = "cart"

	t.Run("foreign ones are named", func(t *testing.T) {
		got, refusal := Resolve(spec(), service(), []*discoveryv1.EndpointSlice{ours, foreign, elsewhere})
		if refusal != nil || !cmp.Equal(got.Foreign, []string{"by-hand"}) {
			t.Errorf("%v, refused: %v", got.Foreign, refusal)
		}
	})
	t.Run("a mirrored one refuses the Service", func(t *testing.T) {
		_, refusal := Resolve(spec(), service(), []*discoveryv1.EndpointSlice{ours, mirrored})
		if refusal == nil || refusal.Reason != "LegacyEndpoints" || !strings.Contains(refusal.Message, "delete the Endpoints object shop") {
			t.Errorf("refused: %v", refusal)
		}
	})
	t.Run("ours under another installation's name refuses it", func(t *testing.T) {
		ours.Labels["slicefeed.dev/writer"] = "elsewhere"
		_, refusal := Resolve(spec(), service(), []*discoveryv1.EndpointSlice{ours})
		if refusal == nil || refusal.Reason != "OtherWriter" {
			t.Errorf("refused: %v", refusal)
		}
	})
}

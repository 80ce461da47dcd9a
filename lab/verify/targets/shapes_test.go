package targets

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// The addresses of the one node of the tests of shapes, and the ports at which it answers.
var (
	shapeV4, shapeV6 = netip.MustParseAddr("10.1.9.1"), netip.MustParseAddr("fd00:1::9:1")
	shapePorts       = []uint16{pair.NodePort, 30443, 8080}
)

// enterShapes is the stage with one node of both families, and no cloud.
func enterShapes(t *testing.T, writer map[string]string) *e2e.Setup {
	t.Helper()
	const subnets = pair.SourcesSubnet + ",fd00:1::/64"
	inventory := e2e.WithoutCloud()
	inventory["SECURED_SUBNET_CIDR"], writer["SECURED_SUBNET_CIDR"] = subnets, subnets
	f := e2e.NewLabeled(t, e2e.Options{Inventory: inventory, Writer: writer})
	for _, address := range []netip.Addr{shapeV4, shapeV6} {
		f.Must(netns.AddAddr(address))
		for _, port := range shapePorts {
			b, err := backend.Start("node-1", netip.AddrPortFrom(address, port))
			f.Must(err)
			t.Cleanup(func() { f.Must(b.Close()) })
		}
	}
	f.CreateNode("node-1", shapeV4, shapeV6)
	return f
}

// with gives a Service these ports.
func withPorts(ports ...corev1.ServicePort) func(*corev1.Service) {
	return func(service *corev1.Service) { service.Spec.Ports = ports }
}

func ofFamilies(policy corev1.IPFamilyPolicy, families ...corev1.IPFamily) func(*corev1.Service) {
	return func(service *corev1.Service) {
		service.Spec.IPFamilyPolicy, service.Spec.IPFamilies = &policy, families
	}
}

func headless(service *corev1.Service) { service.Spec.ClusterIP = corev1.ClusterIPNone }

func ofKind(kind corev1.ServiceType) func(*corev1.Service) {
	return func(service *corev1.Service) { service.Spec.Type = kind }
}

// manyPorts are so many, all within the fence.
func manyPorts(n int) []corev1.ServicePort {
	var all []corev1.ServicePort
	for i := range int32(n) {
		all = append(all, e2e.PortTo(fmt.Sprint("p-", i), corev1.ProtocolTCP, 1000+i, pair.NodePort+i))
	}
	return all
}

func TestEachShapeThatWorksIsServed(t *testing.T) {
	const tcp, udp, sctp = corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP
	const single, both = corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyRequireDualStack
	v4 := []netip.Addr{shapeV4}
	grpcPort := e2e.PortTo("grpc", tcp, 80, pair.NodePort)
	grpcPort.AppProtocol = new("kubernetes.io/h2c")
	shapes := []struct {
		name      string
		change    []func(*corev1.Service)
		ports     []string // name protocol number
		addresses []netip.Addr
	}{
		{
			"several ports of a LoadBalancer, one with an application protocol and one without a targetPort",
			[]func(*corev1.Service){
				withPorts(grpcPort, e2e.PortTo("dns", udp, 53, 30053), corev1.ServicePort{Name: "same", Port: 30443}),
				ofKind(corev1.ServiceTypeLoadBalancer),
			},
			[]string{"dns UDP 30053", "grpc TCP 30080 kubernetes.io/h2c", "same TCP 30443"},
			v4,
		},
		{
			"only UDP, with a probe-port",
			[]func(*corev1.Service){withPorts(e2e.PortTo("dns", udp, 53, 30053)), e2e.Annotated("probe-port", "30080")},
			[]string{"dns UDP 30053"},
			v4,
		},
		{
			"only SCTP, not probed",
			[]func(*corev1.Service){withPorts(e2e.PortTo("diameter", sctp, 3868, 30868)), e2e.Annotated("probe", "off")},
			[]string{"diameter SCTP 30868"},
			v4,
		},
		{"both families", []func(*corev1.Service){ofFamilies(both)}, []string{"http TCP 30080"}, []netip.Addr{shapeV4, shapeV6}},
		{"IPv6 alone", []func(*corev1.Service){ofFamilies(single, corev1.IPv6Protocol)}, []string{"http TCP 30080"}, []netip.Addr{shapeV6}},
		{
			"publishing not ready addresses",
			[]func(*corev1.Service){func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }},
			[]string{"http TCP 30080"},
			v4,
		},
		{
			"headless, which is of both unless it says otherwise",
			[]func(*corev1.Service){headless},
			[]string{"http TCP 30080"},
			[]netip.Addr{shapeV4, shapeV6},
		},
		{
			"headless without a port, not probed",
			[]func(*corev1.Service){headless, ofFamilies(single), withPorts(), e2e.Annotated("probe", "off")},
			nil,
			v4,
		},
		{"the longest name " + strings.Repeat("x", 63), nil, []string{"http TCP 30080"}, v4},
		{"a hundred ports", []func(*corev1.Service){withPorts(manyPorts(100)...)}, nil, v4}, // of more, the policy passes 8,192 bytes
	}
	// The stage's own Service is given by name, and has no label.
	f := enterShapes(t, map[string]string{"TARGET_NAMESPACE": pair.Namespace, "TARGET_SERVICE_NAME": pair.Service, "TARGET_PORT": "8080"})
	f.SetClass(f.Service, "")
	f.PatchService(f.Service, `{"spec":{"ports":[{"name":"http","port":80,"targetPort":"named"}]}}`)
	made := make([]*corev1.Service, len(shapes))
	for i, shape := range shapes {
		name := fmt.Sprint("shape-", i)
		if _, long, is := strings.Cut(shape.name, "the longest name "); is {
			name = long
		}
		made[i] = f.CreateService(e2e.NewLabeledService(name, shape.change...))
	}
	f.StartAll()
	for i, shape := range shapes {
		t.Run(strings.TrimRight(shape.name, " x"), func(t *testing.T) {
			f := on(f, t)
			f.AwaitOf(made[i], "it is served", pair.AreJust(pair.Ready, shape.addresses...))
			for _, slice := range f.SlicesOf(made[i]) {
				if len(slice.Ports) != len(made[i].Spec.Ports) {
					t.Errorf("%d ports, want %d", len(slice.Ports), len(made[i].Spec.Ports))
				}
				if diff := cmp.Diff(shape.ports, portsOf(slice)); diff != "" && shape.ports != nil {
					t.Errorf("the ports of %s (-want +got):\n%s", slice.Name, diff)
				}
				if want := familyOf(slice); len(slice.Endpoints) != 1 || slice.AddressType != want {
					t.Errorf("%s is of type %s with %d endpoints", slice.Name, slice.AddressType, len(slice.Endpoints))
				}
			}
			if n := len(f.SlicesOf(made[i])); n != len(shape.addresses) {
				t.Errorf("%d slices for %d families", n, len(shape.addresses))
			}
			said := regexp.MustCompile(`\n[^\n]*SliceCreated: [^\n]*`).ReplaceAllString(f.DescribeEvents(made[i]), "")
			if made[i].Spec.PublishNotReadyAddresses {
				if !strings.Contains(said, "PublishNotReadyAddresses: ") || strings.Count(said, "\n") != 1 {
					t.Errorf("want one remark, on publishNotReadyAddresses:%s", said)
				}
			} else if said != "" {
				t.Errorf("it was complained of:%s", said)
			}
		})
	}
	t.Run("TARGET_PORT is written whatever the Service given by name says", func(t *testing.T) {
		f := on(f, t)
		f.Await("it is served", pair.AreJust(pair.Ready, v4...))
		if diff := cmp.Diff([]string{"http TCP 8080"}, portsOf(f.Slice())); diff != "" {
			t.Error(diff)
		}
	})
}

// on is the setup in a subtest that fails alone.
func on(f *e2e.Setup, t *testing.T) *e2e.Setup {
	inner := *f
	inner.T = t
	return &inner
}

// portsOf are a slice's ports as lines.
func portsOf(slice *discoveryv1.EndpointSlice) []string {
	var lines []string
	for _, p := range slice.Ports {
		line := fmt.Sprintf("%s %s %d", *p.Name, *p.Protocol, *p.Port)
		if p.AppProtocol != nil {
			line += " " + *p.AppProtocol
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func familyOf(slice *discoveryv1.EndpointSlice) discoveryv1.AddressType {
	if strings.Contains(slice.Endpoints[0].Addresses[0], ":") {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

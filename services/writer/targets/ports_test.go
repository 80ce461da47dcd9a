package targets

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/sources"
)

// withTwoPorts returns a Service with the ports http and dns, of two sources.
func withTwoPorts(annotations ...string) *corev1.Service {
	svc := newService()
	svc.Annotations["slicefeed.dev/source"] = "blue,green"
	for ; len(annotations) > 1; annotations = annotations[2:] {
		svc.Annotations["slicefeed.dev/"+annotations[0]] = annotations[1]
	}
	svc.Spec.Ports = []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(30080)},
		{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(30053)},
	}
	return svc
}

// numbers returns the numbers of ports by name.
func numbers(ports []discoveryv1.EndpointPort) map[string]int32 {
	all := map[string]int32{}
	for _, p := range ports {
		all[*p.Name] = *p.Port
	}
	return all
}

func TestSourcesHaveTheirOwnPorts(t *testing.T) {
	cfg := newConfig()
	cfg.Sources = []sources.Source{
		{Name: "blue", Ports: ports(1, 30999)},
		{Name: "green", Ports: append(ports(31000, 65535), ports(30053, 30053)...)},
	}
	for name, tc := range map[string]struct {
		annotations []string
		green       map[string]int32
		probe       uint16
		problem     string
	}{
		"all":                       {annotations: []string{"ports.green", "http=31080, dns=31053"}, green: map[string]int32{"http": 31080, "dns": 31053}, probe: 31080},
		"one, the other as usual":   {annotations: []string{"ports.green", "http=31080"}, green: map[string]int32{"http": 31080, "dns": 30053}, probe: 31080},
		"with a probe port":         {annotations: []string{"ports.green", "http=31080", "probe-port", "30053"}, green: map[string]int32{"http": 31080, "dns": 30053}, probe: 30053},
		"none, which are denied":    {problem: "Port 30080 (target of port http) is not allowed for source green"},
		"one that is denied":        {annotations: []string{"ports.green", "http=22"}, problem: "Port 22 (target of port http) is not allowed for source green"},
		"a probe port is denied":    {annotations: []string{"ports.green", "http=31080", "probe-port", "31001"}, problem: "Port 31001 (probe port) is not allowed for source blue"},
		"a name that there is not":  {annotations: []string{"ports.green", "https=31443"}, problem: `slicefeed.dev/ports.green names port "https"`},
		"another source":            {annotations: []string{"ports.red", "http=31080"}, problem: "slicefeed.dev/ports.red names a source that this Service does not use"},
		"no number":                 {annotations: []string{"ports.green", "http=high"}, problem: `slicefeed.dev/ports.green is "http=high": want port numbers by name`},
		"a number out of range":     {annotations: []string{"ports.green", "http=70000"}, problem: "want port numbers by name"},
		"one name twice":            {annotations: []string{"ports.green", "http=31080,http=31081"}, problem: "want port numbers by name"},
		"a number without its name": {annotations: []string{"ports.green", "31080"}, problem: `names port "", which the Service does not have`},
		"an unknown value of ports": {annotations: []string{"ports", "from-somewhere"}, problem: "want from-source"},
	} {
		t.Run(name, func(t *testing.T) {
			resolution := newResolver(cfg).resolve(withTwoPorts(tc.annotations...))
			if tc.problem != "" {
				if resolution.Rejection == nil || !strings.Contains(resolution.Rejection.Message, tc.problem) {
					t.Fatalf("rejection %v, want %q", resolution.Rejection, tc.problem)
				}
				return
			}
			if resolution.Rejection != nil {
				t.Fatal(resolution.Rejection)
			}
			target := resolution.Target
			green, problem := target.PortsOf("green", nil)
			if diff := cmp.Diff(tc.green, numbers(ParsePorts(green.Text))); diff != "" || problem != "" {
				t.Error(problem, diff)
			}
			blue, _ := target.PortsOf("blue", nil)
			if diff := cmp.Diff(map[string]int32{"http": 30080, "dns": 30053}, numbers(ParsePorts(blue.Text))); diff != "" {
				t.Error(diff)
			}
			if green.Probe != tc.probe {
				t.Errorf("probed at %d, want %d", green.Probe, tc.probe)
			}
		})
	}
}

func TestANumberAloneIsThatOfTheOnlyPort(t *testing.T) {
	cfg := newConfig()
	svc := withTwoPorts("source", "default", "ports.default", "31080")
	svc.Spec.Ports = svc.Spec.Ports[:1]
	resolution := newResolver(cfg).resolve(svc)
	if resolution.Rejection != nil {
		t.Fatal(resolution.Rejection)
	}
	ports, _ := resolution.PortsOf("default", nil)
	if diff := cmp.Diff(Ports{Text: "http/TCP:31080", Probe: 31080}, ports); diff != "" {
		t.Error(diff)
	}
}

func TestPortsFollowTheNode(t *testing.T) {
	cfg := newConfig()
	cfg.Sources = []sources.Source{{Name: "blue", Ports: anyPort}, {Name: "green", Ports: anyPort}}
	two := withTwoPorts("ports", "from-source", "ports.blue", "http=31080")
	at32000 := withTwoPorts("ports", "from-source", "probe-port", "32000")
	at22 := withTwoPorts("ports", "from-source", "probe-port", "22")
	off := withTwoPorts("ports", "from-source", "probe", "off")
	h2c := withTwoPorts("ports", "from-source")
	h2c.Spec.Ports[0].AppProtocol = new("kubernetes.io/h2c")
	one := withTwoPorts("ports", "from-source")
	one.Spec.Ports = one.Spec.Ports[:1]
	ssh := withTwoPorts("ports", "from-source")
	ssh.Spec.Ports[0].TargetPort = intstr.FromInt32(22)
	for name, tc := range map[string]struct {
		service *corev1.Service
		known   string
		want    Ports
		problem string
	}{
		"by name and protocol":        {two, "dns/TCP:1,dns/UDP:30153,http/TCP:30180", Ports{"http/TCP:30180,dns/UDP:30153", 30180}, ""},
		"one is missing":              {two, "http/TCP:30180", Ports{"http/TCP:30180", 30180}, ""},
		"all are missing":             {two, "web/TCP:30180,x/TCP:30181", Ports{}, `source green reports no TCP port "http"`},
		"one is denied":               {two, "http/TCP:30180,dns/UDP:53", Ports{"http/TCP:30180", 30180}, ""},
		"all are denied":              {one, "http/TCP:22", Ports{}, "port 22, which source green reports"},
		"the probed one is denied":    {two, "http/TCP:22,dns/UDP:30153", Ports{"dns/UDP:30153", 0}, "no TCP port to probe"},
		"the same without probes":     {off, "http/TCP:22,dns/UDP:30153", Ports{"dns/UDP:30153", 0}, ""},
		"several numbers":             {two, "http/TCP:30180,http/TCP:30181,dns/UDP:30153", Ports{}, `several numbers of TCP port "http"`},
		"one alone, of any name":      {one, "/TCP:30180", Ports{"http/TCP:30180", 30180}, ""},
		"one alone, other protocol":   {one, "/UDP:30180", Ports{}, "reports no TCP port"},
		"nothing is reported":         {one, "", Ports{}, "reports no TCP port"},
		"nothing, but the Service 22": {ssh, "", Ports{}, "reports no TCP port"},
		"with a probe port":           {at32000, "http/TCP:30180", Ports{"http/TCP:30180", 32000}, ""},
		"with one that is denied":     {at22, "http/TCP:30180", Ports{"http/TCP:30180", 0}, "probe port 22 is not in the ports of source green"},
		"an application protocol":     {h2c, "http/TCP:30180", Ports{"http/TCP:30180:kubernetes.io/h2c", 30180}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			resolution := newResolver(cfg).resolve(tc.service)
			if resolution.Rejection != nil {
				t.Fatal(resolution.Rejection)
			}
			var known []contract.Port
			if tc.known != "" {
				known = ListedPorts(&discoveryv1.EndpointSlice{Ports: ParsePorts(tc.known)})
			}
			target := resolution.Target
			if !target.FollowsPorts("green") || tc.service == two && target.FollowsPorts("blue") {
				t.Error("the annotation for one source does not take precedence")
			}
			target.Configured = []sources.Source{{Name: "blue"}, {Name: "green", Ports: ports(30000, 65535)}}
			got, problem := target.PortsOf("green", known)
			if got != tc.want || (problem != "") != (tc.problem != "") || !strings.Contains(problem, tc.problem) {
				t.Errorf("%+v, %q, want %+v, %q", got, problem, tc.want, tc.problem)
			}
			if text := portsText(ParsePorts(got.Text)); got.Text != "" && text != got.Text {
				t.Errorf("%s became %s", got.Text, text)
			}
		})
	}
}

// The ports of an endpoint may come from a slice that others have edited, which need not name a number.
func TestListedPortsHaveANumber(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		Ports: []discoveryv1.EndpointPort{{Name: new("all")}, {Port: new(int32(0))}, {Port: new(int32(31080))}},
	}
	if diff := cmp.Diff([]contract.Port{{Protocol: "TCP", Number: 31080}}, ListedPorts(slice)); diff != "" {
		t.Error(diff)
	}
}

package targets

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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
	cfg.Sources = []Source{{Name: "blue", AllowsPort: func(p uint16) bool { return p < 31000 }}, {Name: "green", AllowsPort: func(p uint16) bool { return p >= 31000 || p == 30053 }}}
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
			if diff := cmp.Diff(tc.green, numbers(target.Desired().PortGroups["green"])); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(map[string]int32{"http": 30080, "dns": 30053}, numbers(target.PortsOf("blue"))); diff != "" {
				t.Error(diff)
			}
			if got := target.ProbePortOf("green"); got != tc.probe {
				t.Errorf("probed at %d, want %d", got, tc.probe)
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
	if diff := cmp.Diff(map[string]int32{"http": 31080}, numbers(resolution.Target.PortsOf("default"))); diff != "" {
		t.Error(diff)
	}
}

func TestPortsFollowTheSource(t *testing.T) {
	cfg := newConfig()
	cfg.Sources = []Source{{Name: "blue"}, {Name: "green"}}
	allows := func(p uint16) bool { return p >= 30000 }
	two := withTwoPorts("ports", "from-source", "ports.blue", "http=31080")
	one := withTwoPorts("ports", "from-source")
	one.Spec.Ports = one.Spec.Ports[:1]
	for name, tc := range map[string]struct {
		service  *corev1.Service
		reported []ReportedPort
		want     map[string]int32
		problem  string
	}{
		"by name and protocol":      {two, []ReportedPort{{"dns", "TCP", 1}, {"dns", "UDP", 30153}, {"http", "TCP", 30180}}, map[string]int32{"http": 30180, "dns": 30153}, ""},
		"one is missing":            {two, []ReportedPort{{"http", "TCP", 30180}}, nil, `source green reports no UDP port "dns"`},
		"one is not allowed":        {two, []ReportedPort{{"http", "TCP", 80}, {"dns", "UDP", 30153}}, nil, "port 80, which source green reports"},
		"several numbers":           {two, []ReportedPort{{"http", "TCP", 30180}, {"http", "TCP", 30181}, {"dns", "UDP", 30153}}, nil, `several numbers of TCP port "http"`},
		"one alone, of any name":    {one, []ReportedPort{{"", "TCP", 30180}}, map[string]int32{"http": 30180}, ""},
		"one alone, other protocol": {one, []ReportedPort{{"", "UDP", 30180}}, nil, "reports no TCP port"},
		"nothing is reported":       {one, nil, nil, "reports no TCP port"},
	} {
		t.Run(name, func(t *testing.T) {
			resolution := newResolver(cfg).resolve(tc.service)
			if resolution.Rejection != nil {
				t.Fatal(resolution.Rejection)
			}
			target := resolution.Target
			if !target.FollowsPorts("green") || tc.service == two && target.FollowsPorts("blue") {
				t.Error("the annotation for one source does not take precedence")
			}
			got, problem := target.FollowPorts("green", tc.reported, allows)
			if tc.problem != "" || problem != "" {
				if tc.problem == "" || !strings.Contains(problem, tc.problem) {
					t.Errorf("problem %q, want %q", problem, tc.problem)
				}
				return
			}
			if diff := cmp.Diff(tc.want, numbers(got.Ports)); diff != "" {
				t.Error(diff)
			}
			if got.ProbePort != uint16(tc.want["http"]) {
				t.Errorf("probed at %d", got.ProbePort)
			}
		})
	}
}

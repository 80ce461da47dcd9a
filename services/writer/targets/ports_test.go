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

	"github.com/slicefeed/slicefeed/services/writer/planner"
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
	cfg.Sources = []Source{
		{Name: "blue", AllowsPort: func(p uint16) bool { return p < 31000 }},
		{Name: "green", AllowsPort: func(p uint16) bool { return p >= 31000 || p == 30053 }},
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

// The ports of a source may come from a slice that others have edited, which need not name a number.
func TestPortsWithoutANumberAreNotKept(t *testing.T) {
	cfg := newConfig()
	cfg.Sources = []Source{{Name: "blue"}, {Name: "green"}}
	target := newResolver(cfg).resolve(withTwoPorts("ports", "from-source")).Target
	slice := func(name string, number *int32) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: target.Namespace, Labels: map[string]string{
				discoveryv1.LabelServiceName: target.Name, discoveryv1.LabelManagedBy: target.ManagedBy, planner.LabelSource: "green",
			}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: number}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		}
	}
	for name, tc := range map[string]struct {
		source, endpoint *discoveryv1.EndpointSlice
		kept             bool
	}{
		"of the source":   {slice("a", nil), slice("b", new(int32(31080))), true},
		"of the endpoint": {slice("a", new(int32(31080))), slice("b", nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			ports, found := target.ListedPorts("green", []*discoveryv1.EndpointSlice{tc.source})
			if !found {
				t.Fatal("no ports are listed")
			}
			target.SourcePorts = map[string]SourcePorts{"green": ports}
			kept := target.KeepPorts(
				[]*discoveryv1.EndpointSlice{tc.endpoint},
				func(string, netip.Addr) bool { return false },
				func(string, uint16) bool { return true },
			)
			if _, got := kept[netip.MustParseAddr("10.0.0.1")]; got != tc.kept {
				t.Errorf("kept %v", kept)
			}
		})
	}
}

// An endpoint that its source no longer reports need not have the ports that the source has now.
func TestEndpointsThatAreNotReportedKeepTheirPorts(t *testing.T) {
	cfg := newConfig()
	cfg.Sources = []Source{{Name: "blue"}, {Name: "green"}}
	dns := discoveryv1.EndpointPort{Name: new("dns"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(30053))}
	http := func(number int32) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: &number}
	}
	follows := []string{"ports", "from-source"}
	for name, tc := range map[string]struct {
		annotations []string
		source      string
		ports       []discoveryv1.EndpointPort
		change      func(*discoveryv1.EndpointSlice)
		twice       bool
		want        int32 // number of http that 10.0.0.2 keeps; 0: it has that of its source
		probe       uint16
	}{
		"another number":                   {annotations: follows, source: "green", ports: []discoveryv1.EndpointPort{dns, http(31080)}, want: 31080, probe: 31080},
		"a source that is no longer used":  {annotations: follows, source: "red", ports: []discoveryv1.EndpointPort{dns, http(31080)}, want: 31080, probe: 31080},
		"with a probe port":                {annotations: append(follows, "probe-port", "32000"), source: "green", ports: []discoveryv1.EndpointPort{dns, http(31080)}, want: 31080, probe: 32000},
		"another application protocol":     {annotations: follows, source: "green", ports: []discoveryv1.EndpointPort{dns, http(31080)}, change: func(s *discoveryv1.EndpointSlice) { s.Ports[1].AppProtocol = new("h2c") }, want: 31080, probe: 31080},
		"the same numbers":                 {annotations: follows, source: "green", ports: []discoveryv1.EndpointPort{dns, http(30080)}},
		"ports that do not follow":         {source: "green", ports: []discoveryv1.EndpointPort{dns, http(31080)}},
		"ports of that source":             {annotations: append(follows, "ports.green", "http=31081"), source: "green", ports: []discoveryv1.EndpointPort{dns, http(31080)}},
		"one that is missing":              {annotations: follows, source: "green", ports: []discoveryv1.EndpointPort{http(31080)}},
		"one that is not allowed":          {annotations: follows, source: "green", ports: []discoveryv1.EndpointPort{dns, http(22)}},
		"a slice of another writer":        {annotations: follows, source: "green", ports: []discoveryv1.EndpointPort{dns, http(31080)}, change: func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = "others" }},
		"a slice that is deleted":          {annotations: follows, source: "green", ports: []discoveryv1.EndpointPort{dns, http(31080)}, change: func(s *discoveryv1.EndpointSlice) { s.DeletionTimestamp = &metav1.Time{} }},
		"an endpoint that is listed twice": {annotations: follows, source: "green", ports: []discoveryv1.EndpointPort{dns, http(31080)}, twice: true},
	} {
		t.Run(name, func(t *testing.T) {
			resolution := newResolver(cfg).resolve(withTwoPorts(tc.annotations...))
			if resolution.Rejection != nil {
				t.Fatal(resolution.Rejection)
			}
			target := resolution.Target
			slice := &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: target.Namespace, Labels: map[string]string{
					discoveryv1.LabelServiceName: target.Name, discoveryv1.LabelManagedBy: target.ManagedBy, planner.LabelSource: tc.source,
				}},
				AddressType: discoveryv1.AddressTypeIPv4, Ports: tc.ports,
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}, {Addresses: []string{"10.0.0.2"}}},
			}
			all := []*discoveryv1.EndpointSlice{slice}
			if tc.change != nil {
				tc.change(slice)
			}
			if tc.twice {
				again := slice.DeepCopy()
				again.Ports[1] = http(30080)
				all = append(all, again)
			}
			reported, gone := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
			target.KeptPorts = target.KeepPorts(all, func(source string, a netip.Addr) bool { return source == tc.source && a == reported },
				func(source string, port uint16) bool { return source == tc.source && port >= 30000 })
			want := map[netip.Addr]map[string]int32{}
			if tc.want != 0 {
				want[gone] = map[string]int32{"http": tc.want, "dns": 30053}
			}
			got := map[netip.Addr]map[string]int32{}
			for address, kept := range target.KeptPorts {
				got[address] = numbers(kept.Ports)
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
			if tc.probe != 0 &&
				(target.ProbePortAt(gone, tc.source) != tc.probe || target.ProbePortAt(reported, tc.source) != target.ProbePortOf(tc.source)) {
				t.Errorf("probed at %d and %d", target.ProbePortAt(gone, tc.source), target.ProbePortAt(reported, tc.source))
			}
			if n := len(target.Desired().PortGroups); tc.want != 0 && n != 1 {
				t.Errorf("%d port groups", n)
			}
		})
	}
}

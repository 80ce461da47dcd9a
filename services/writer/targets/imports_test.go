package targets

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/internal/report"
)

// shopImport is the key of the ServiceImport with the name of the Service shop.
var shopImport = Key{Namespace: "web", Name: "shop", Import: true}

func configWithImports() Config {
	cfg := newConfig()
	cfg.ServiceImports = true
	return cfg
}

// newImport returns the ServiceImport web/shop, with other fields.
func newImport(alter ...func(object map[string]any)) *corev1.Service {
	object := newImportObject()
	for _, f := range alter {
		f(object.Object)
	}
	return serviceOfImport(object)
}

// setSpec sets a field of the spec.
func setSpec(value any, fields ...string) func(map[string]any) {
	return func(object map[string]any) {
		if err := unstructured.SetNestedField(object, value, append([]string{"spec"}, fields...)...); err != nil {
			panic(err)
		}
	}
}

func setPort(field string, value any) func(map[string]any) {
	return func(object map[string]any) {
		port := map[string]any{"name": "http", "port": int64(80), "protocol": "TCP"}
		port[field] = value
		setSpec([]any{port}, "ports")(object)
	}
}

func TestResolvesTargetOfServiceImport(t *testing.T) {
	resolution := resolve(configWithImports(), newImport())
	if resolution.State != Managed || resolution.Warning != nil {
		t.Fatalf("%+v", resolution)
	}
	settings := defaultSettings()
	settings.Sources, settings.Ports = []string{"default"}, map[string]map[string]uint16{"default": {"http": 30080}}
	port := func(number int32) []discoveryv1.EndpointPort {
		return []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: &number}}
	}
	want := Target{
		Key: shopImport, State: Managed,
		Owner:     metav1.OwnerReference{APIVersion: "multicluster.x-k8s.io/v1beta1", Kind: "ServiceImport", Name: "shop", UID: "import-1"},
		ManagedBy: "slicefeed-default", Writer: "slicefeed", FirstName: "shop.serviceimport-slicefeed",
		Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
		Ports:    port(80), ProbePort: 80,
		Settings: settings, Configured: configWithImports().Sources, Type: "ClusterSetIP", ServicePorts: map[string]uint16{"http": 80},
	}
	if diff := cmp.Diff(want, resolution.Target); diff != "" {
		t.Error(diff)
	}
	ref := corev1.ObjectReference{
		APIVersion: "multicluster.x-k8s.io/v1beta1",
		Kind:       "ServiceImport",
		Namespace:  "web",
		Name:       "shop",
		UID:        "import-1",
	}
	if diff := cmp.Diff(ref, resolution.Reference()); diff != "" {
		t.Error(diff)
	}
}

func TestSlicesOfServiceImportHaveItsLabels(t *testing.T) {
	resolution := resolve(configWithImports(), newImport())
	desired := resolution.Desired()
	desired.Endpoints = []planner.Endpoint{
		{Address: netip.MustParseAddr("10.0.0.1"), Group: "blue"}, {Address: netip.MustParseAddr("10.0.0.2"), Group: "green"},
	}
	var got []map[string]string
	for _, slice := range planner.Compute(desired, nil).Create {
		got = append(got, slice.Labels)
		if slice.OwnerReferences[0].Kind != "ServiceImport" || slice.OwnerReferences[0].UID != "import-1" {
			t.Errorf("owners %+v", slice.OwnerReferences)
		}
	}
	labels := func(source string) map[string]string {
		return map[string]string{
			"multicluster.kubernetes.io/service-name":   "shop",
			"multicluster.kubernetes.io/source-cluster": source,
			"endpointslice.kubernetes.io/managed-by":    "slicefeed-default",
			"slicefeed.dev/source":                      source,
			"slicefeed.dev/writer":                      "slicefeed",
		}
	}
	if diff := cmp.Diff([]map[string]string{labels("blue"), labels("green")}, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadsFieldsOfServiceImport(t *testing.T) {
	for name, tc := range map[string]struct {
		alter []func(map[string]any)
		check func(Target) bool
	}{
		"headless": {[]func(map[string]any){setSpec("Headless", "type")}, func(t Target) bool { return t.Headless && t.Type == "Headless" }},
		"an IP of IPv6, without families": {[]func(map[string]any){setSpec([]any{"fd00::1"}, "ips")}, func(t Target) bool {
			return cmp.Equal(t.Families, []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6})
		}},
		"IPs of both families": {[]func(map[string]any){setSpec([]any{"10.112.0.1", "fd00::1"}, "ips")}, func(t Target) bool {
			return cmp.Equal(t.Families, []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6})
		}},
		"families": {[]func(map[string]any){setSpec([]any{"IPv6", "IPv4"}, "ipFamilies")}, func(t Target) bool {
			return cmp.Equal(t.Families, []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeIPv4})
		}},
		"no protocol": {[]func(map[string]any){setSpec([]any{map[string]any{"name": "http", "port": int64(80)}}, "ports")}, func(t Target) bool {
			return *t.Ports[0].Protocol == corev1.ProtocolTCP
		}},
		"an application protocol":  {[]func(map[string]any){setPort("appProtocol", "kubernetes.io/h2c")}, func(t Target) bool { return *t.Ports[0].AppProtocol == "kubernetes.io/h2c" }},
		"a traffic distribution":   {[]func(map[string]any){setSpec("PreferClose", "trafficDistribution")}, func(t Target) bool { return t.TrafficDistribution == "PreferClose" }},
		"publish has no effect":    {[]func(map[string]any){annotateImport("publish", "true")}, func(t Target) bool { return len(t.Ports) == 1 }},
		"an annotation of a probe": {[]func(map[string]any){annotateImport("probe-interval", "3s")}, func(t Target) bool { return t.Settings.Probe.Interval == 3*time.Second }},
		"ports that follow the source": {[]func(map[string]any){annotateImport("ports", "from-source"), annotateImport("ports.default", "")}, func(t Target) bool {
			return t.FollowsPorts("default")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := configWithImports()
			resolution := resolve(cfg, newImport(tc.alter...))
			if resolution.Rejection != nil || !tc.check(resolution.Target) {
				t.Errorf("%+v, rejected %+v", resolution.Target, resolution.Rejection)
			}
		})
	}
}

// annotateImport sets an annotation; empty: removes it.
func annotateImport(name, value string) func(map[string]any) {
	return func(object map[string]any) {
		annotations := object["metadata"].(map[string]any)["annotations"].(map[string]any)
		if annotations["slicefeed.dev/"+name] = value; value == "" {
			delete(annotations, "slicefeed.dev/"+name)
		}
	}
}

// importRejections are ServiceImports that the API server accepts, and the writer cannot manage.
var importRejections = map[string]struct {
	alter          func(map[string]any)
	reason, advice string
}{
	"a name too long for a label": {
		func(o map[string]any) { o["metadata"].(map[string]any)["name"] = strings.Repeat("n", 64) },
		"InvalidServiceImport",
		"DNS label",
	},
	"a name with a dot": {
		func(o map[string]any) { o["metadata"].(map[string]any)["name"] = "shop.example" },
		"InvalidServiceImport",
		"DNS label",
	},
	"another type":             {setSpec("ClusterIP", "type"), "InvalidServiceImport", "want ClusterSetIP or Headless"},
	"what cannot be read":      {setSpec("many", "ports"), "InvalidServiceImport", "want ClusterSetIP or Headless"},
	"an unknown family":        {setSpec([]any{"IPv5"}, "ipFamilies"), "InvalidServiceImport", "want IPv4, IPv6 or both"},
	"a family twice":           {setSpec([]any{"IPv4", "IPv4"}, "ipFamilies"), "InvalidServiceImport", "each once"},
	"an unknown protocol":      {setPort("protocol", "HTTP"), "InvalidServiceImport", "want TCP, UDP or SCTP"},
	"a port name that is none": {setPort("name", "HTTP port"), "InvalidServiceImport", "lower-case"},
	"an application protocol":  {setPort("appProtocol", "no such thing"), "InvalidServiceImport", "kubernetes.io/h2c"},
	"two ports of one name": {setSpec([]any{
		map[string]any{"port": int64(80)}, map[string]any{"port": int64(81)},
	}, "ports"), "InvalidServiceImport", "have the name"},
	"a port out of range": {func(o map[string]any) {
		annotateImport("ports.default", "")(o)
		setPort("port", int64(70000))(o)
	}, "InvalidTargetPort", "1 to 65535"},
	"a port that the source does not allow": {
		annotateImport("ports.default", ""),
		"PortNotAllowed",
		"set slicefeed.dev/ports.SOURCE",
	},
	"traffic of its node only": {setSpec("Local", "internalTrafficPolicy"), "LocalTrafficPolicy", "Set it to Cluster"},
	"a wrong annotation":       {annotateImport("probe", "icmp"), "InvalidAnnotation", "it is not managed"},
	"no port to probe":         {setPort("protocol", "UDP"), "NoProbePort", "ServiceImport has no TCP port"},
	"being deleted": {
		func(o map[string]any) { o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T15:04:05Z" },
		"ServiceTerminating",
		"ServiceImport is being deleted",
	},
}

func TestRejectsInvalidServiceImports(t *testing.T) {
	for name, tc := range importRejections {
		t.Run(name, func(t *testing.T) {
			cfg := configWithImports()
			cfg.Sources[0].Ports = ports(81, 65535)
			resolution := resolve(cfg, newImport(tc.alter))
			if resolution.Rejection == nil || resolution.Rejection.Reason != tc.reason ||
				!strings.Contains(report.WithAdvice(resolution.Rejection.Reason, resolution.Rejection.Message), tc.advice) {
				t.Errorf("rejected: %+v", resolution.Rejection)
			}
			if resolution.State == Gone || resolution.Owner.Kind != "ServiceImport" || resolution.Owner.UID != "import-1" {
				t.Errorf("a rejected ServiceImport is relevant: %+v", resolution)
			}
		})
	}
}

// A Service and a ServiceImport of one name own their slices only, also if somebody gives a slice both labels.
func TestServiceAndServiceImportOfOneNameHaveTheirOwnSlices(t *testing.T) {
	cfg := configWithImports()
	ofService, ofImport := ownedSlice("shop-slicefeed", "svc-1"), ownedImportSlice("shop.serviceimport-slicefeed", "import-1")
	for name, alter := range map[string]func(){
		"as they are written": func() {},
		"with both labels": func() {
			ofService.Labels[LabelServiceImport], ofImport.Labels[discoveryv1.LabelServiceName] = "shop", "shop"
		},
		"with the label of the other": func() {
			delete(ofService.Labels, discoveryv1.LabelServiceName)
			delete(ofImport.Labels, LabelServiceImport)
		},
	} {
		alter()
		t.Run(name, func(t *testing.T) {
			service, imported := resolve(cfg, newService(), ofService, ofImport), resolve(cfg, newImport(), ofService, ofImport)
			for _, tc := range []struct {
				resolution  Resolution
				owned, none *discoveryv1.EndpointSlice
			}{{service, ofService, ofImport}, {imported, ofImport, ofService}} {
				desired := tc.resolution.Desired()
				if tc.resolution.Rejection != nil || !desired.Owns(tc.owned) || desired.Owns(tc.none) {
					t.Errorf(
						"%s: rejected %v, owns %t and %t",
						tc.resolution.Target,
						tc.resolution.Rejection,
						desired.Owns(tc.owned),
						desired.Owns(tc.none),
					)
				}
				for _, slice := range []*discoveryv1.EndpointSlice{ofService, ofImport} {
					if keys := strings.Join(
						indexKeys(cfg, slice),
						" ",
					); slice == tc.owned &&
						!strings.Contains(keys+" ", tc.resolution.String()+" ") {
						t.Errorf("%s does not affect %s, only %s", slice.Name, tc.resolution.Target, keys)
					}
				}
			}
		})
	}
}

func TestServiceImportsAreIndexedOnlyIfTheyAreTargets(t *testing.T) {
	slice := ownedImportSlice("shop.serviceimport-slicefeed", "import-1")
	for _, tc := range []struct {
		cfg  Config
		want []string
	}{
		{newConfig(), []string{"web#import-1"}},
		{configWithImports(), []string{"web/shop.serviceimport", "web/shop.serviceimport", "web#import-1"}},
	} {
		if diff := cmp.Diff(tc.want, indexKeys(tc.cfg, slice)); diff != "" {
			t.Error(diff)
		}
	}
	if key := ParseKey("web/shop.serviceimport"); key != shopImport || ParseKey(shop.String()) != shop {
		t.Errorf("%+v", key)
	}
}

func TestServiceImportIsOptedOutLikeAService(t *testing.T) {
	unlabeled := newImport(func(o map[string]any) { delete(o["metadata"].(map[string]any), "labels") })
	mine, ofService := ownedImportSlice("shop.serviceimport-slicefeed", "import-1"), ownedSlice("shop-slicefeed", "svc-1")
	cfg, now := configWithImports(), time.Unix(1_000_000, 0)
	at := func(svc *corev1.Service, memory Memory) (Resolution, Memory) {
		return Resolve(
			cfg,
			Input{Key: shopImport, Service: svc, Slices: []*discoveryv1.EndpointSlice{mine, ofService}, Previous: memory, Now: now},
		)
	}
	if resolution, _ := at(
		unlabeled,
		Memory{},
	); resolution.Rejection == nil || resolution.Rejection.Reason != "OrphanedSlices" ||
		!strings.Contains(resolution.Rejection.Message, "slices of this writer: shop.serviceimport-slicefeed") {
		t.Errorf("never labeled: %+v", resolution.Rejection)
	}
	_, memory := at(newImport(), Memory{})
	resolution, memory := at(unlabeled, memory)
	if resolution.State == Leaving || resolution.Warning == nil {
		t.Errorf("it stays managed for a minute: %+v", resolution.Warning)
	}
	now = now.Add(time.Minute)
	resolution, _ = at(unlabeled, memory)
	if resolution.State != Leaving || len(resolution.Slices) != 1 || resolution.Slices[0] != mine {
		t.Errorf("state %d, slices %v", resolution.State, sliceNames(resolution.Slices))
	}
	if resolution, _ := at(nil, memory); resolution.State != Gone {
		t.Error("a deleted one takes its slices with it")
	}
}

func TestUnlabeledServiceImportIsNoTarget(t *testing.T) {
	for name, alter := range map[string]func(map[string]any){
		"without the label": func(o map[string]any) { delete(o["metadata"].(map[string]any), "labels") },
		"another class":     func(o map[string]any) { o["metadata"].(map[string]any)["labels"] = map[string]any{LabelClass: "blue"} },
		"asks to be published": func(o map[string]any) {
			delete(o["metadata"].(map[string]any), "labels")
			annotateImport("publish", "true")(o)
		},
	} {
		cfg := configWithImports()
		cfg.NamedTarget = Target{Key: Key{Namespace: "web", Name: "shop"}} // names the Service
		if resolution := resolve(cfg, newImport(alter)); resolution.State != Gone {
			t.Errorf("%s: %+v", name, resolution)
		}
	}
}

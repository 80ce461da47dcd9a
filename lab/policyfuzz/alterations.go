package policyfuzz

import (
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// alteration is one kind of thing to do to a slice. How often it is drawn depends on its weight.
type alteration struct {
	kind   string
	weight int
	do     func(*rand.Rand, *discoveryv1.EndpointSlice)
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// inside and outside are addresses on either side of the edges of what is allowed; odd are
// spellings that programs read in different ways, or not at all.
var (
	inside4  = []string{"10.0.1.0", "10.0.1.1", "10.0.1.77", "10.0.1.255", "10.1.0.0", "10.1.2.3", "10.1.255.255"}
	outside4 = []string{
		"10.0.0.255", "10.0.2.0", "10.0.255.255", "10.2.0.0", "0.0.0.0", "0.0.0.1", "127.0.0.1", "169.254.169.254",
		"224.0.0.1", "255.255.255.255", "10.0.0.12", "8.8.8.8", "192.0.2.1",
	}
	odd4 = []string{
		"010.0.1.5",
		"10.0.01.5",
		"10.0.1.005",
		"10.00.1.5",
		"0x0a.0.1.5",
		"167772421",
		"10.0.261",
		"10.0.1",
		"10.0.1.5 ",
		" 10.0.1.5",
		"10.0.1.5/32",
		"10.0.1.0/24",
		"10.0.1.5:30080",
		"10.0.1.5%eth0",
		"::ffff:10.0.1.5",
		"::ffff:a00:105",
		"１0.0.1.5",
		"10.0.1.5\n",
		"10.0.1.5\x00",
		"",
		"fd00:1::1",
		"10.0.1.256",
		"a.example",
	}
	inside6 = []string{
		"fd00:1::",
		"fd00:1::1",
		"fd00:1::ffff:ffff:ffff:ffff",
		"FD00:1::A",
		"fd00:0001::0001",
		"fd00:1:0:0:0:0:0:9",
		"fd00:1::10.0.1.5",
		"fd00:1:0:0::7",
	}
	outside6 = []string{
		"fd00::ffff:ffff:ffff:ffff:ffff",
		"fd00:1:0:1::",
		"fd00:1:1::1",
		"fd00:10::1",
		"fd01::1",
		"::",
		"::1",
		"fe80::1",
		"ff02::1",
		"2001:db8::1",
		"64:ff9b::a00:105",
	}
	odd6 = []string{
		"::ffff:10.0.1.5",
		"::ffff:fd00:1",
		"::10.0.1.5",
		"fd00:1::1%eth0",
		"fd00:1::1%25eth0",
		"[fd00:1::1]",
		"fd00:1::1/64",
		"fd00:1:::1",
		"fd00:00001::1",
		"fd00:1::1 ",
		"10.0.1.5",
		"fd00-1--1.example",
	}
)

// address draws one for a family, mostly one that is allowed.
func address(r *rand.Rand, family discoveryv1.AddressType) string {
	in, out, odd := inside4, outside4, odd4
	if family == discoveryv1.AddressTypeIPv6 {
		in, out, odd = inside6, outside6, odd6
	}
	switch n := r.IntN(10); {
	case n < 4:
		return pick(r, in...)
	case n < 8:
		return pick(r, out...)
	default:
		return pick(r, odd...)
	}
}

// one is a random endpoint of the slice; there is one at least.
func one(r *rand.Rand, s *discoveryv1.EndpointSlice) *discoveryv1.Endpoint {
	if len(s.Endpoints) == 0 {
		s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{first(s)}}}
	}
	return &s.Endpoints[r.IntN(len(s.Endpoints))]
}

func first(s *discoveryv1.EndpointSlice) string {
	if s.AddressType == discoveryv1.AddressTypeIPv6 {
		return inside6[1]
	}
	return inside4[1]
}

func port(r *rand.Rand, s *discoveryv1.EndpointSlice) *discoveryv1.EndpointPort {
	if len(s.Ports) == 0 {
		s.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(30080))}}
	}
	return &s.Ports[r.IntN(len(s.Ports))]
}

func label(s *discoveryv1.EndpointSlice, key, value string) {
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels[key] = value
}

// managers are values of the managed-by label, the first two of them ours.
var managers = []string{
	"slicefeed-default",
	"endpoint-updater",
	"somebody",
	"endpointslice-controller.k8s.io",
	"endpointslicemirroring-controller.k8s.io",
	"",
	"slicefeed-",
	"slicefeed-default2",
	"Slicefeed-default",
	"slicefeed-default-",
	"xslicefeed-default",
	"slicefeed_default",
	"*",
	"slicefeed-default,somebody",
	" slicefeed-default",
}

var alterations = []alteration{
	{"address", 8, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		one(r, s).Addresses = []string{address(r, s.AddressType)}
	}},
	{"further address", 3, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		e := one(r, s)
		e.Addresses = append(e.Addresses, address(r, s.AddressType))
	}},
	{"family", 4, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		s.AddressType = pick(
			r,
			discoveryv1.AddressTypeIPv4,
			discoveryv1.AddressTypeIPv6,
			discoveryv1.AddressTypeFQDN,
			discoveryv1.AddressType("ipv4"),
			"",
		)
		for i := range s.Endpoints {
			s.Endpoints[i].Addresses = []string{first(s)}
			if s.AddressType == discoveryv1.AddressTypeFQDN {
				s.Endpoints[i].Addresses = []string{pick(r, "evil.example", "10-0-1-5.example", "localhost", "a.b", "10.0.1.5", "10.0.1.7")}
			}
		}
		if r.IntN(3) == 0 {
			s.Endpoints = nil
		}
	}},
	{"many endpoints", 2, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		s.Endpoints = nil
		for i := range pick(r, 99, 100, 101, 1000, 1001) {
			a := fmt.Sprintf("10.1.%d.%d", i/256, i%256)
			if s.AddressType == discoveryv1.AddressTypeIPv6 {
				a = fmt.Sprintf("fd00:1::%x", i)
			}
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
		}
		if r.IntN(2) == 0 {
			one(r, s).Addresses[0] = address(r, s.AddressType)
		}
	}},
	{"no endpoints", 2, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		s.Endpoints = pick(r, nil, []discoveryv1.Endpoint{}, []discoveryv1.Endpoint{{}}, []discoveryv1.Endpoint{{Addresses: []string{}}})
	}},
	{"port", 7, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		port(r, s).Port = pick(
			r,
			nil,
			new(int32(30000)),
			new(int32(32767)),
			new(int32(31999)),
			new(int32(8080)),
			new(int32(29999)),
			new(int32(32768)),
			new(
				int32(8079),
			),
			new(int32(8081)),
			new(int32(0)),
			new(int32(-1)),
			new(int32(1)),
			new(int32(65535)),
			new(int32(65536)),
			new(int32(22)),
			new(int32(443)),
			new(int32(-30000)),
		)
	}},
	{"further port", 3, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{
			Name: pick(
				r,
				nil,
				new(""),
				new("more"),
				new("Not A Name"),
			),
			Protocol: pick(r, nil, new(corev1.ProtocolUDP), new(corev1.ProtocolSCTP)),
			Port:     pick(r, nil, new(int32(30443)), new(int32(8080)), new(int32(6443))),
		})
	}},
	{"name or protocol of a port", 2, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		p := port(r, s)
		p.Name = pick(r, nil, new(""), new("http"), new("HTTP"), new("*"), new(strings.Repeat("a", 64)))
		p.Protocol = pick(
			r,
			nil,
			new(corev1.ProtocolTCP),
			new(corev1.ProtocolUDP),
			new(corev1.ProtocolSCTP),
			new(corev1.Protocol("ICMP")),
			new(corev1.Protocol("")),
		)
		p.AppProtocol = pick(r, nil, new("kubernetes.io/h2c"), new("mysql"))
	}},
	{"no ports", 2, func(r *rand.Rand, s *discoveryv1.EndpointSlice) { s.Ports = pick(r, nil, []discoveryv1.EndpointPort{}) }},
	{"managed-by", 6, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		label(s, discoveryv1.LabelManagedBy, pick(r, managers...))
	}},
	{"labels taken away", 3, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		switch r.IntN(3) {
		case 0:
			s.Labels = nil
		case 1:
			delete(s.Labels, discoveryv1.LabelManagedBy)
		case 2:
			delete(s.Labels, discoveryv1.LabelServiceName)
		}
	}},
	{"other labels", 2, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		label(
			s,
			pick(
				r,
				discoveryv1.LabelServiceName,
				"app",
				"Endpointslice.kubernetes.io/managed-by",
				"endpointslice.kubernetes.io/managed-by2",
				"kubernetes.io/managed-by",
				"service.kubernetes.io/headless",
				"endpointslice.kubernetes.io/skip-mirror",
				"slicefeed.dev/source",
			),
			pick(r, "kubernetes", "shop", "slicefeed-default", "somebody", ""),
		)
	}},
	{"owner", 4, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		o := metav1.OwnerReference{
			APIVersion: "v1", Kind: "Service", Name: pick(r, "shop", "kubernetes", "x"), UID: pick(r, types.UID("1"), types.UID("2")),
			Controller: pick(r, nil, nil, new(true), new(false)), BlockOwnerDeletion: pick(r, nil, nil, new(true), new(false)),
		}
		if r.IntN(2) == 0 {
			o.APIVersion, o.Kind = pick(
				r,
				"v1",
				"v2",
				"apps/v1",
				"core/v1",
				"V1",
				"multicluster.x-k8s.io/v1beta1",
				"",
			), pick(
				r,
				"Service",
				"service",
				"ServiceImport",
				"Namespace",
				"Deployment",
				"ConfigMap",
				"",
			)
		}
		s.OwnerReferences = append(s.OwnerReferences, o)
	}},
	{"owners taken away", 1, func(_ *rand.Rand, s *discoveryv1.EndpointSlice) { s.OwnerReferences = nil }},
	{"finalizer", 2, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		s.Finalizers = append(
			s.Finalizers,
			pick(r, "example.org/never", "foregroundDeletion", "orphan", "kubernetes", "example.org/theirs"),
		)
	}},
	{"hostname", 2, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		one(r, s).Hostname = pick(
			r,
			new("a"),
			new("localhost"),
			new("kubernetes"),
			new("A"),
			new("a.b"),
			new(""),
			new(strings.Repeat("h", 63)),
		)
	}},
	{"node, zone, hints", 3, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		e := one(r, s)
		e.NodeName, e.Zone = pick(r, nil, new("node-1"), new("10.0.2.1"), new("NOT A NODE")), pick(r, nil, new("zone-1"), new(""))
		e.Hints = pick(
			r,
			nil,
			&discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zone-1"}}},
			&discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: "node-1"}}},
		)
		e.DeprecatedTopology = pick(r, nil, nil, map[string]string{"kubernetes.io/hostname": "node-1"})
	}},
	{"target reference", 2, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		one(r, s).TargetRef = &corev1.ObjectReference{
			Kind:      pick(r, "Pod", "Secret", "Node"),
			Namespace: pick(r, "kube-system", "web"),
			Name:      "x",
			FieldPath: pick(r, "", "10.0.2.1"),
		}
	}},
	{"conditions", 2, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		one(r, s).Conditions = discoveryv1.EndpointConditions{
			Ready: pick(
				r,
				nil,
				new(true),
				new(false),
			),
			Serving:     pick(r, nil, new(true), new(false)),
			Terminating: pick(r, nil, new(true), new(false)),
		}
	}},
	{"annotations", 1, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		s.Annotations = map[string]string{
			pick(r, "a", discoveryv1.LabelManagedBy, "endpoints.kubernetes.io/last-change-trigger-time"): pick(r, "slicefeed-default", "x"),
		}
	}},
	{"zones of any length", 1, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		one(r, s).Zone = pick(
			r,
			nil,
			new("zone-1"),
			new(strings.Repeat("z", 63)),
			new(strings.Repeat("z", 64)),
			new(strings.Repeat("z", 10_000)),
		)
	}},
	{"a lot of metadata", 3, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		switch r.IntN(4) {
		case 0:
			for i := range pick(r, 1, 20, 400) {
				label(s, fmt.Sprintf("l%d", i), strings.Repeat("v", 63))
			}
		case 1:
			s.Annotations = map[string]string{"a": strings.Repeat("x", pick(r, 1, 1000, 40_000))}
		case 2:
			s.ManagedFields = append(s.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: "somebody", Operation: pick(r, metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply),
				APIVersion: "discovery.k8s.io/v1", FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(`{"f:` + strings.Repeat("x", pick(r, 1, 1000, 40_000)) + `":{}}`),
			})
		case 3:
			s.ManagedFields = nil
		}
	}},
	{"what only the server sets", 1, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		then := metav1.Unix(1, 0)
		switch r.IntN(5) {
		case 0:
			s.UID = "00000000-0000-0000-0000-000000000002"
		case 1:
			s.DeletionTimestamp = &then
		case 2:
			s.ResourceVersion = pick(r, "1", "0", "x")
		case 3:
			s.Generation = 1 << 40
		case 4:
			s.CreationTimestamp = then
		}
	}},
	{"kind or version", 1, func(r *rand.Rand, s *discoveryv1.EndpointSlice) {
		s.Kind, s.APIVersion = pick(
			r,
			"EndpointSlice",
			"Endpoints",
			"Service",
			"",
		), pick(
			r,
			"discovery.k8s.io/v1",
			"discovery.k8s.io/v1beta1",
			"v1",
			"",
		)
	}},
	{"namespace of the body alone", 1, func(r *rand.Rand, s *discoveryv1.EndpointSlice) { s.Namespace = pick(r, "web", "default", "") }},
}

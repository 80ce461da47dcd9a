package policyfuzz

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var rules = Rules{
	Namespaces: []string{"web"}, Managers: []string{"slicefeed-default"},
	CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24"), netip.MustParsePrefix("fd00:1::/64")},
	Ports: [][2]int32{{30000, 32767}, {8080, 8080}},
}

func slice(alter ...func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "web", Labels: map[string]string{discoveryv1.LabelManagedBy: "slicefeed-default"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.1.1"}}},
		Ports: []discoveryv1.EndpointPort{{Port: new(int32(30080))}},
	}
	for _, f := range alter {
		f(s)
	}
	return s
}

func TestTheOracleForbidsWhatTheDocumentDoes(t *testing.T) {
	at := func(address string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = address }
	}
	by := func(who string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = who }
	}
	port := func(n int32) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = &n }
	}
	owner := func(o metav1.OwnerReference) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) { s.OwnerReferences = []metav1.OwnerReference{o} }
	}
	deployment, service := metav1.OwnerReference{
		APIVersion: "apps/v1",
		Kind:       "Deployment",
	}, metav1.OwnerReference{
		APIVersion: "v1",
		Kind:       "Service",
	}
	noted := func(s *discoveryv1.EndpointSlice) {
		s.Annotations = map[string]string{"a": strings.Repeat("x", 100_000)}
	}
	blocking := service
	blocking.BlockOwnerDeletion = new(true)
	for _, c := range []struct {
		name          string
		before, after *discoveryv1.EndpointSlice
		want          string // "": allowed
	}{
		{"made", nil, slice(), ""},
		{"changed", slice(), slice(at("10.0.1.255"), port(8080)), ""},
		{"deleted", slice(), nil, ""},
		{"put right", slice(at("10.9.9.9"), port(22)), slice(), ""},
		{"deleted though it is outside", slice(at("10.9.9.9")), nil, ""},
		{"another namespace", nil, slice(func(s *discoveryv1.EndpointSlice) { s.Namespace = "default" }), "namespace default"},
		{"somebody's", slice(by("somebody")), slice(), `managed by "somebody"`},
		{"passed off", slice(), slice(by("somebody")), `managed by "somebody"`},
		{"deleted, but nobody's", slice(by("")), nil, `managed by ""`},
		{"just outside", nil, slice(at("10.0.2.0")), `address "10.0.2.0"`},
		{"zeros in front", nil, slice(at("010.0.1.1")), `address "010.0.1.1"`},
		{"four in six", nil, slice(at("::ffff:10.0.1.1")), `address "::ffff:10.0.1.1"`},
		{"a zone", nil, slice(at("fd00:1::1%eth0")), `address "fd00:1::1%eth0"`},
		{"a name", nil, slice(func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN }), "addresses of type FQDN"},
		{"a port just outside", nil, slice(port(32768)), "port 32768"},
		{"all ports", nil, slice(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil }), "a port without a number"},
		{"an owner that was there", slice(owner(deployment)), slice(owner(deployment)), ""},
		{"a new owner", slice(), slice(owner(deployment)), "owner apps/v1 Deployment"},
		{"a Service", slice(), slice(owner(service)), ""},
		{"a Service that cannot go", slice(owner(service)), slice(owner(blocking)), "owner v1 Service"},
		{"a Service named kubernetes", nil, slice(func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "kubernetes" }), "a Service named kubernetes"},
		{"a node's name", nil, slice(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].NodeName = new("n") }), "an endpoint with more than an address, conditions, a zone and a hostname"},
		{"two addresses", nil, slice(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"10.0.1.1", "10.0.1.2"} }), "an endpoint with more than an address, conditions, a zone and a hostname"},
		{"101 endpoints", nil, slice(func(s *discoveryv1.EndpointSlice) { s.Endpoints = slices.Repeat(s.Endpoints, 101) }), "101 endpoints"},
		{"a hundred endpoints", nil, slice(func(s *discoveryv1.EndpointSlice) { s.Endpoints = slices.Repeat(s.Endpoints, 100) }), ""},
		{"a large annotation", nil, slice(noted), "metadata of 100056 bytes"},
		{"a large annotation that was there", slice(noted), slice(noted), ""},
		{"a finalizer", slice(), slice(func(s *discoveryv1.EndpointSlice) { s.Finalizers = []string{"x"} }), "finalizer x"},
	} {
		if got := strings.Join(rules.Forbids(c.before, c.after), ", "); got != c.want {
			t.Errorf("%s: forbidden for %q, want %q", c.name, got, c.want)
		}
	}
}

func TestASeedDrawsTheSameRequestsAgain(t *testing.T) {
	draw := func(seed uint64) (all []Request) {
		g := New(seed, "web", "default")
		for range 200 {
			a := g.Next()
			all = append(all, a.Request(a.Planted))
		}
		return all
	}
	if diff := cmp.Diff(draw(1), draw(1)); diff != "" {
		t.Errorf("two draws of one seed differ:\n%s", diff)
	}
	if cmp.Equal(draw(1), draw(2)) {
		t.Error("two seeds draw the same")
	}
}

func TestEveryVerbAndAlterationIsDrawn(t *testing.T) {
	drawn := map[string]int{}
	g := New(1, "web")
	for range 2000 {
		a := g.Next()
		drawn[a.Verb]++
		for _, kind := range a.Kinds {
			drawn[kind]++
		}
	}
	for _, v := range verbs {
		if drawn[v.name] == 0 {
			t.Errorf("no %s in 2,000 attempts", v.name)
		}
	}
	for _, one := range alterations {
		if drawn[one.kind] == 0 {
			t.Errorf("no altered %s in 2,000 attempts", one.kind)
		}
	}
}

package main

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
)

func newService(alter ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "database", UID: "uid-1"},
		Spec: corev1.ServiceSpec{
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports:      []corev1.ServicePort{{Name: "postgres", Port: 5432, TargetPort: intstr.FromInt32(15432), Protocol: corev1.ProtocolTCP}},
		},
	}
	for _, f := range alter {
		f(svc)
	}
	return svc
}

// foreignSlice is a slice of the same Service that another controller wrote.
func foreignSlice() *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "database-other", Labels: map[string]string{
			discoveryv1.LabelServiceName: "database", discoveryv1.LabelManagedBy: "other.example.org",
		}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.99"}}},
	}
}

// addressesOf returns the ready addresses of the slices with a managed-by label, and their port.
func addressesOf(t *testing.T, f follower, manager string) (all []string) {
	t.Helper()
	list, err := f.client.DiscoveryV1().EndpointSlices("shop").List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelManagedBy + "=" + manager})
	if err != nil {
		t.Fatal(err)
	}
	for _, slice := range list.Items {
		for _, endpoint := range slice.Endpoints {
			if manager == managedBy && (!*endpoint.Conditions.Ready || *slice.Ports[0].Port != 15432 || slice.OwnerReferences[0].UID != "uid-1") {
				t.Errorf("slice %+v", slice)
			}
			all = append(all, endpoint.Addresses...)
		}
	}
	return all
}

func TestSlicesFollowTheDNSName(t *testing.T) {
	var addrs []netip.Addr
	var failure error
	f := follower{
		client: fake.NewClientset(newService(), foreignSlice()), host: "db.example.org", namespace: "shop", service: "database",
		lookup: func(context.Context, string, string) ([]netip.Addr, error) { return addrs, failure },
	}
	for _, step := range []struct {
		name    string
		addrs   []string
		failure error
		writes  int
		want    []string
	}{
		{name: "a first lookup", addrs: []string{"192.0.2.10", "fd00::10"}, writes: 2, want: []string{"192.0.2.10", "fd00::10"}},
		{name: "the same addresses in another order and form", addrs: []string{"fd00::10", "::ffff:192.0.2.10"}, want: []string{"192.0.2.10", "fd00::10"}},
		{name: "an address that moved", addrs: []string{"192.0.2.11", "fd00::10"}, writes: 1, want: []string{"192.0.2.11", "fd00::10"}},
		{name: "a lookup that failed", failure: errors.New("no such host"), want: []string{"192.0.2.11", "fd00::10"}},
	} {
		addrs, failure = nil, step.failure
		for _, text := range step.addrs {
			addrs = append(addrs, netip.MustParseAddr(text))
		}
		plan, err := f.sync(t.Context())
		if !errors.Is(err, step.failure) || plan.Writes() != step.writes {
			t.Errorf("%s: %d writes and error %v, want %d and %v", step.name, plan.Writes(), err, step.writes, step.failure)
		}
		if diff := cmp.Diff(step.want, addressesOf(t, f, managedBy)); diff != "" {
			t.Errorf("%s: addresses (-want +got):\n%s", step.name, diff)
		}
	}
	if diff := cmp.Diff([]string{"192.0.2.99"}, addressesOf(t, f, "other.example.org")); diff != "" {
		t.Errorf("addresses of another controller (-want +got):\n%s", diff)
	}
}

func TestRejectsServicesThatItCannotServe(t *testing.T) {
	for want, alter := range map[string]func(*corev1.Service){
		"selector":         func(svc *corev1.Service) { svc.Spec.Selector = map[string]string{"app": "database"} },
		"named targetPort": func(svc *corev1.Service) { svc.Spec.Ports[0].TargetPort = intstr.FromString("postgres") },
	} {
		f := follower{
			client: fake.NewClientset(newService(alter)), namespace: "shop", service: "database",
			lookup: func(context.Context, string, string) ([]netip.Addr, error) { return nil, nil },
		}
		if _, err := f.sync(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

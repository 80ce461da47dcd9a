package main

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
)

func newService(alter ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "database", UID: "uid-1"},
		Spec: corev1.ServiceSpec{
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports: []corev1.ServicePort{
				{Name: "postgres", Port: 5432, TargetPort: intstr.FromInt32(15432), Protocol: corev1.ProtocolTCP},
			},
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

// memoryStore is an API server, as far as this program needs one.
type memoryStore struct {
	slices  map[string]*discoveryv1.EndpointSlice
	version int
	before  func() // called before the next write
}

func newStore(all ...*discoveryv1.EndpointSlice) *memoryStore {
	s := &memoryStore{slices: map[string]*discoveryv1.EndpointSlice{}}
	for _, slice := range all {
		s.put(slice)
	}
	return s
}

func (s *memoryStore) put(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.version++
	stored := slice.DeepCopy()
	stored.UID, stored.ResourceVersion = types.UID(slice.Name), strconv.Itoa(s.version)
	s.slices[slice.Name] = stored
	return stored.DeepCopy()
}

// conflict returns an error unless the slice is the one that a write is based on.
func (s *memoryStore) conflict(slice *discoveryv1.EndpointSlice) error {
	if s.before != nil {
		s.before()
		s.before = nil
	}
	if stored := s.slices[slice.Name]; stored == nil || stored.ResourceVersion != slice.ResourceVersion {
		return apierrors.NewConflict(discoveryv1.Resource("endpointslices"), slice.Name, errors.New("it has changed"))
	}
	return nil
}

func (s *memoryStore) Create(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	if s.slices[slice.Name] != nil {
		return nil, apierrors.NewAlreadyExists(discoveryv1.Resource("endpointslices"), slice.Name)
	}
	return s.put(slice), nil
}

func (s *memoryStore) Update(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	if err := s.conflict(slice); err != nil {
		return nil, err
	}
	return s.put(slice), nil
}

func (s *memoryStore) Delete(_ context.Context, slice *discoveryv1.EndpointSlice) error {
	if err := s.conflict(slice); err != nil {
		return err
	}
	delete(s.slices, slice.Name)
	return nil
}

func (s *memoryStore) Get(_ context.Context, _, name string) (*discoveryv1.EndpointSlice, error) {
	if slice := s.slices[name]; slice != nil {
		return slice.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(discoveryv1.Resource("endpointslices"), name)
}

func (s *memoryStore) List(
	_ context.Context,
	_ string,
	with map[string]string,
) (all []*discoveryv1.EndpointSlice, version string, err error) {
	for _, name := range slices.Sorted(maps.Keys(s.slices)) {
		if s.slices[name].Labels[discoveryv1.LabelServiceName] == with[discoveryv1.LabelServiceName] {
			all = append(all, s.slices[name].DeepCopy())
		}
	}
	return all, strconv.Itoa(s.version), nil
}

// addressesOf returns the ready addresses of the slices with a managed-by label, and their port.
func addressesOf(t *testing.T, s *memoryStore, manager string) (all []string) {
	t.Helper()
	list, _, _ := s.List(t.Context(), "shop", map[string]string{discoveryv1.LabelServiceName: "database"})
	for _, slice := range list {
		if slice.Labels[discoveryv1.LabelManagedBy] != manager {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if manager == managedBy &&
				(!*endpoint.Conditions.Ready || *slice.Ports[0].Port != 15432 || slice.OwnerReferences[0].UID != "uid-1") {
				t.Errorf("slice %+v", slice)
			}
			all = append(all, endpoint.Addresses...)
		}
	}
	return all
}

// newTestFollower returns a follower whose lookups return what addrs and failure are then.
func newTestFollower(store *memoryStore, svc *corev1.Service, addrs *[]netip.Addr, failure *error) follower {
	f := newFollower(fake.NewClientset(svc), store)
	f.host, f.namespace, f.service = "db.example.org", "shop", "database"
	f.lookup = func(context.Context, string, string) ([]netip.Addr, error) { return *addrs, *failure }
	return f
}

func TestSlicesFollowTheDNSName(t *testing.T) {
	var addrs []netip.Addr
	var failure error
	store := newStore(foreignSlice())
	f := newTestFollower(store, newService(), &addrs, &failure)
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
		if diff := cmp.Diff(step.want, addressesOf(t, store, managedBy)); diff != "" {
			t.Errorf("%s: addresses (-want +got):\n%s", step.name, diff)
		}
	}
	if diff := cmp.Diff([]string{"192.0.2.99"}, addressesOf(t, store, "other.example.org")); diff != "" {
		t.Errorf("addresses of another controller (-want +got):\n%s", diff)
	}
}

func TestPlansAgainAfterAnotherClientHasWritten(t *testing.T) {
	store, addrs := newStore(), []netip.Addr{netip.MustParseAddr("192.0.2.10")}
	f := newTestFollower(store, newService(), &addrs, new(error))
	if _, err := f.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	addrs = append(addrs, netip.MustParseAddr("192.0.2.11"))
	store.before = func() {
		edited := store.slices["database-hostname"].DeepCopy()
		edited.Endpoints[0].Addresses[0] = "192.0.2.66"
		store.put(edited)
	}
	if _, err := f.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"192.0.2.10", "192.0.2.11"}, addressesOf(t, store, managedBy)); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestRejectsServicesThatItCannotServe(t *testing.T) {
	for want, alter := range map[string]func(*corev1.Service){
		"selector":         func(svc *corev1.Service) { svc.Spec.Selector = map[string]string{"app": "database"} },
		"named targetPort": func(svc *corev1.Service) { svc.Spec.Ports[0].TargetPort = intstr.FromString("postgres") },
	} {
		f := newTestFollower(newStore(), newService(alter), new([]netip.Addr), new(error))
		if _, err := f.sync(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

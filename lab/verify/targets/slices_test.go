package targets

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestTakesOverASliceInPlaceWithOneWriteOfItsMetadata(t *testing.T) {
	s := e2e.New(t, e2e.Options{Writer: map[string]string{
		"TARGET_ENDPOINTSLICE_NAME": "from-before", "TARGET_MANAGED_BY": "endpoint-updater",
	}})
	workers := []*pair.Worker{s.Machine(pair.WorkerOptions{}), s.Machine(pair.WorkerOptions{})}
	for _, w := range workers {
		s.Must(w.Join(s.Ctx()))
	}
	before := s.CreateSlice(e2e.NewSlice("from-before", "endpoint-updater", e2e.Addresses(workers)...))
	writes := s.WriteCount()
	s.StartAll()
	s.Await("the slice has an owner", func(all []*discoveryv1.EndpointSlice) bool {
		return len(all) == 1 && len(all[0].OwnerReferences) == 1
	})
	s.AwaitMetric(s.Writers[0], e2e.SourceSynced, e2e.Equals(1))
	s.AwaitMetric(s.Writers[0], `slicefeed_writer_endpoints{namespace="web",service="shop",state="ready"}`, e2e.Equals(2))
	after := s.Slice()
	if diff := cmp.Diff([]any{before.UID, before.AddressType, before.Endpoints, before.Ports},
		[]any{after.UID, after.AddressType, after.Endpoints, after.Ports}); diff != "" {
		s.T.Errorf("the slice was changed in more than its metadata (-before +after):\n%s", diff)
	}
	all, err := s.Writes(s.Ctx())
	s.Must(err)
	if all = all[writes:]; len(all) != 1 || all[0].Verb != "update" || all[0].Code != 200 {
		s.T.Errorf("the writes were %+v, want one update", all)
	}
}

func TestOthersAndOurSlices(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	foreign := s.CreateSlice(e2e.NewSlice("somebody-elses", "somebody", netip.MustParseAddr("10.0.1.250")))
	s.StartAll()
	workers := s.Join(2)
	ours := func(all []*discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		all = slices.DeleteFunc(slices.Clone(all), func(one *discoveryv1.EndpointSlice) bool { return one.Name == foreign.Name })
		if len(all) != 1 || all[0].Labels[discoveryv1.LabelManagedBy] != "slicefeed-default" || len(all[0].OwnerReferences) != 1 ||
			!pair.AreJust(pair.Ready, e2e.Addresses(workers)...)(all) || *all[0].Ports[0].Port != pair.NodePort {
			return nil
		}
		return all[0]
	}
	client := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace)
	for _, one := range []struct {
		name string
		harm func(context.Context, *discoveryv1.EndpointSlice) error
	}{
		{"an endpoint that somebody adds is removed, and one that somebody removes is back", func(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
			slice.Endpoints[0].Addresses = []string{"10.0.1.251"}
			_, err := client.Update(ctx, slice, metav1.UpdateOptions{})
			return err
		}},
		{"a port that somebody changes is changed back", func(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
			*slice.Ports[0].Port = 31000
			_, err := client.Update(ctx, slice, metav1.UpdateOptions{})
			return err
		}},
		{"a slice of ours that somebody deletes is made again", func(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
			return client.Delete(ctx, slice.Name, metav1.DeleteOptions{})
		}},
	} {
		s.Step(one.name, func(s *e2e.Setup) {
			before := ours(s.Now())
			if before == nil {
				s.T.Fatalf("the slices are not right: %s", pair.Describe(s.Now()))
			}
			s.Must(one.harm(s.Ctx(), before.DeepCopy()))
			took := s.Await("they are right again", func(all []*discoveryv1.EndpointSlice) bool {
				now := ours(all)
				return now != nil && now.ResourceVersion != before.ResourceVersion
			})
			s.T.Logf("repaired after %s", took)
		})
	}
	s.Step("a slice of somebody else is not touched", func(s *e2e.Setup) {
		now, err := client.Get(s.Ctx(), foreign.Name, metav1.GetOptions{})
		s.Must(err)
		if now.ResourceVersion != foreign.ResourceVersion {
			s.T.Errorf("it was written: %+v", now)
		}
		s.AwaitEvent("ForeignSlices")
	})
}

func TestTheServiceComesAndGoes(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	s.StartAll()
	workers := s.Join(2)
	writer := s.Writers[0]
	services := s.ConsumingClient().CoreV1().Services(pair.Namespace)

	s.Step("nothing is written while it is away", func(s *e2e.Setup) {
		s.ExpectNoWrites(func() {
			s.Must(services.Delete(s.Ctx(), pair.Service, metav1.DeleteOptions{}))
			s.AwaitMetric(writer, e2e.Managed, e2e.Equals(0))
		})
	})
	before := s.Slice().UID
	s.RecreateService(nil)
	s.Step("the slices follow one that is created anew", func(s *e2e.Setup) {
		s.Await("they belong to the new one", func(all []*discoveryv1.EndpointSlice) bool {
			return len(all) == 1 && len(all[0].OwnerReferences) == 1 && all[0].OwnerReferences[0].UID == s.Service.UID
		})
		if s.Slice().UID != before {
			s.T.Error("the slice was made anew, though an update would have done")
		}
		s.Await("both serve", pair.AreJust(pair.Ready, e2e.Addresses(workers)...))
	})
	patch := func(s *e2e.Setup, selector any) {
		s.T.Helper()
		raw, err := json.Marshal(map[string]any{"spec": map[string]any{"selector": selector}})
		s.Must(err)
		_, err = services.Patch(s.Ctx(), pair.Service, types.MergePatchType, raw, metav1.PatchOptions{})
		s.Must(err)
	}
	s.Step("one that gets a selector is refused", func(s *e2e.Setup) {
		s.ExpectNoWrites(func() {
			patch(s, map[string]string{"app": "shop"})
			s.AwaitEvent("ServiceHasSelector")
			s.AwaitMetric(writer, e2e.Managed, e2e.Equals(0))
			s.Must(workers[1].Leave(s.Ctx()))
			s.AwaitMetric(writer, e2e.SourceMembers, e2e.Equals(1))
		})
		s.Expect(pair.Ready, workers[1])
	})
	s.Step("and served again when it is taken away", func(s *e2e.Setup) {
		patch(s, nil)
		s.Await("the one that is left serves", pair.AreJust(pair.Ready, workers[0].Address))
	})
}

func TestSeveralPortsAreInOneSlice(t *testing.T) {
	s := e2e.New(t, e2e.Options{Service: func(service *corev1.Service) {
		service.Spec.Ports = append(service.Spec.Ports,
			corev1.ServicePort{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(30443)},
			corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(30053)})
	}})
	s.StartAll()
	s.Join(1)
	got := map[string]string{}
	for _, p := range s.Slice().Ports {
		got[*p.Name] = fmt.Sprintf("%s %d", *p.Protocol, *p.Port)
	}
	want := map[string]string{"http": "TCP 30080", "https": "TCP 30443", "dns": "UDP 30053"}
	if diff := cmp.Diff(want, got); diff != "" {
		s.T.Error(diff)
	}
}

func TestMoreThanAHundredEndpointsAndNoCloud(t *testing.T) {
	s := e2e.New(t, e2e.Options{Inventory: e2e.WithoutCloud(), Writer: map[string]string{"HEALTH_CHECK_MODE": "off"}})
	asked := len(s.Cloud.Requests())
	var all []netip.Addr
	for n := range 150 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, 1, byte(n + 1)}))
		s.CreateNode(fmt.Sprintf("node-%03d", n+1), all[n])
	}
	s.StartAll()
	s.Await("150 endpoints are ready", pair.AreJust(pair.Ready, all...))
	var sizes []int
	for _, one := range s.Now() {
		sizes = append(sizes, len(one.Endpoints))
	}
	if len(sizes) != 2 || slices.Max(sizes) > 100 {
		s.T.Errorf("the slices have %v endpoints, want two of at most 100", sizes)
	}
	for _, name := range []string{"node-007", "node-142"} {
		before := s.WriteCount()
		s.Must(s.SecuredClient().CoreV1().Nodes().Delete(s.Ctx(), name, metav1.DeleteOptions{}))
		n := len(pair.Conditions(s.Now())) - 1
		s.Await("one less is listed", func(all []*discoveryv1.EndpointSlice) bool { return len(pair.Conditions(all)) == n })
		if n := s.WriteCount() - before; n != 1 {
			s.T.Errorf("one change took %d writes", n)
		}
	}
	if now := len(s.Cloud.Requests()); now != asked {
		s.T.Errorf("the cloud was asked %d times", now-asked)
	}
}

func TestBothFamiliesHaveASliceEach(t *testing.T) {
	both := "10.0.1.0/24,fd00:1::/64"
	inventory := e2e.WithoutCloud()
	inventory["SECURED_SUBNET_CIDR"] = both
	s := e2e.New(t, e2e.Options{
		Inventory: inventory, Writer: map[string]string{"HEALTH_CHECK_MODE": "off", "SECURED_SUBNET_CIDR": both},
		Service: func(service *corev1.Service) {
			policy := corev1.IPFamilyPolicyRequireDualStack
			service.Spec.IPFamilyPolicy = &policy
		},
	})
	four, six := netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("fd00:1::1")
	s.CreateNode("node-1", four, six)
	s.StartAll()
	s.Await("both addresses serve", pair.AreJust(pair.Ready, four, six))
	got := map[discoveryv1.AddressType]string{}
	for _, one := range s.Now() {
		got[one.AddressType] = pair.Describe([]*discoveryv1.EndpointSlice{one})
	}
	want := map[discoveryv1.AddressType]string{
		discoveryv1.AddressTypeIPv4: "10.0.1.1 ready",
		discoveryv1.AddressTypeIPv6: "fd00:1::1 ready",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.T.Error(diff)
	}
}

func TestADryRunWritesNothingAndPrintsWhatItWould(t *testing.T) {
	s := e2e.New(t, e2e.Options{Writer: map[string]string{"STORE_KIND": "memory"}})
	w := s.Machine(pair.WorkerOptions{})
	s.Must(w.Join(s.Ctx()))
	s.ExpectNoWrites(func() {
		s.Must(s.Inventory.Start(s.Ctx()))
		s.Must(s.Writers[0].Start(s.Ctx()))
		s.Until(
			"it has printed the address",
			func() bool { return e2e.ContainsAll(s.LogOf(s.Writers[0]), w.Address.String(), "EndpointSlice") },
		)
	})
	if len(s.Now()) != 0 {
		s.T.Errorf("there are slices: %s", pair.Describe(s.Now()))
	}
	if holder := s.Leader(); holder != "" {
		s.T.Errorf("%s has taken the Lease, and keeps another writer from writing", holder)
	}
}

package e2e

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

	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestTakesOverASliceInPlaceWithOneWriteOfItsMetadata(t *testing.T) {
	s := enter(t, script{writer: map[string]string{
		"TARGET_ENDPOINTSLICE_NAME": "from-before", "TARGET_MANAGED_BY": "endpoint-updater",
	}})
	workers := []*pair.Worker{s.machine(pair.WorkerOptions{}), s.machine(pair.WorkerOptions{})}
	for _, w := range workers {
		s.must(w.Join(s.ctx()))
	}
	before := s.put(sliceOf("from-before", "endpoint-updater", addresses(workers)...))
	writes := s.writes()
	s.start()
	s.slices("the slice has an owner", func(all []*discoveryv1.EndpointSlice) bool {
		return len(all) == 1 && len(all[0].OwnerReferences) == 1
	})
	s.metric(s.writers[0], sourceSynced, equals(1))
	s.metric(s.writers[0], `slicefeed_writer_endpoints{namespace="web",service="shop",state="ready"}`, equals(2))
	after := s.slice()
	if diff := cmp.Diff([]any{before.UID, before.AddressType, before.Endpoints, before.Ports},
		[]any{after.UID, after.AddressType, after.Endpoints, after.Ports}); diff != "" {
		s.t.Errorf("the slice was changed in more than its metadata (-before +after):\n%s", diff)
	}
	all, err := s.Writes(s.ctx())
	s.must(err)
	if all = all[writes:]; len(all) != 1 || all[0].Verb != "update" || all[0].Code != 200 {
		s.t.Errorf("the writes were %+v, want one update", all)
	}
}

func TestOthersAndOurSlices(t *testing.T) {
	s := enter(t, script{})
	foreign := s.put(sliceOf("somebody-elses", "somebody", netip.MustParseAddr("10.0.1.250")))
	s.start()
	workers := s.join(2)
	ours := func(all []*discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		all = slices.DeleteFunc(slices.Clone(all), func(one *discoveryv1.EndpointSlice) bool { return one.Name == foreign.Name })
		if len(all) != 1 || all[0].Labels[discoveryv1.LabelManagedBy] != "slicefeed-default" || len(all[0].OwnerReferences) != 1 ||
			!pair.AreJust(pair.Ready, addresses(workers)...)(all) || *all[0].Ports[0].Port != pair.NodePort {
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
		s.step(one.name, func(s *stage) {
			before := ours(s.Now())
			if before == nil {
				s.t.Fatalf("the slices are not right: %s", pair.Describe(s.Now()))
			}
			s.must(one.harm(s.ctx(), before.DeepCopy()))
			took := s.slices("they are right again", func(all []*discoveryv1.EndpointSlice) bool {
				now := ours(all)
				return now != nil && now.ResourceVersion != before.ResourceVersion
			})
			s.t.Logf("repaired after %s", took)
		})
	}
	s.step("a slice of somebody else is not touched", func(s *stage) {
		now, err := client.Get(s.ctx(), foreign.Name, metav1.GetOptions{})
		s.must(err)
		if now.ResourceVersion != foreign.ResourceVersion {
			s.t.Errorf("it was written: %+v", now)
		}
		s.event("ForeignSlices")
	})
}

func TestTheServiceComesAndGoes(t *testing.T) {
	s := enter(t, script{})
	s.start()
	workers := s.join(2)
	writer := s.writers[0]
	services := s.ConsumingClient().CoreV1().Services(pair.Namespace)

	s.step("nothing is written while it is away", func(s *stage) {
		s.quiet(func() {
			s.must(services.Delete(s.ctx(), pair.Service, metav1.DeleteOptions{}))
			s.metric(writer, managed, equals(0))
		})
	})
	before := s.slice().UID
	s.createService(nil)
	s.step("the slices follow one that is created anew", func(s *stage) {
		s.slices("they belong to the new one", func(all []*discoveryv1.EndpointSlice) bool {
			return len(all) == 1 && len(all[0].OwnerReferences) == 1 && all[0].OwnerReferences[0].UID == s.service.UID
		})
		if s.slice().UID != before {
			s.t.Error("the slice was made anew, though an update would have done")
		}
		s.slices("both serve", pair.AreJust(pair.Ready, addresses(workers)...))
	})
	patch := func(s *stage, selector any) {
		s.t.Helper()
		raw, err := json.Marshal(map[string]any{"spec": map[string]any{"selector": selector}})
		s.must(err)
		_, err = services.Patch(s.ctx(), pair.Service, types.MergePatchType, raw, metav1.PatchOptions{})
		s.must(err)
	}
	s.step("one that gets a selector is refused", func(s *stage) {
		s.quiet(func() {
			patch(s, map[string]string{"app": "shop"})
			s.event("ServiceHasSelector")
			s.metric(writer, managed, equals(0))
			s.must(workers[1].Leave(s.ctx()))
			s.metric(writer, sourceMembers, equals(1))
		})
		s.is(pair.Ready, workers[1])
	})
	s.step("and served again when it is taken away", func(s *stage) {
		patch(s, nil)
		s.slices("the one that is left serves", pair.AreJust(pair.Ready, workers[0].Address))
	})
}

func TestSeveralPortsAreInOneSlice(t *testing.T) {
	s := enter(t, script{service: func(service *corev1.Service) {
		service.Spec.Ports = append(service.Spec.Ports,
			corev1.ServicePort{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(30443)},
			corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(30053)})
	}})
	s.start()
	s.join(1)
	got := map[string]string{}
	for _, p := range s.slice().Ports {
		got[*p.Name] = fmt.Sprintf("%s %d", *p.Protocol, *p.Port)
	}
	want := map[string]string{"http": "TCP 30080", "https": "TCP 30443", "dns": "UDP 30053"}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Error(diff)
	}
}

// withoutCloud are the settings of an inventory that knows no cloud.
func withoutCloud() map[string]string {
	return map[string]string{
		"RESOLVER": "node-address", "IONOS_TOKEN_FILE": "", "IONOS_DATACENTER_ID": "", "IONOS_PRIVATE_LAN_ID": "",
		"IONOS_API_URL": "", "IONOS_CA_FILE": "",
	}
}

func TestMoreThanAHundredEndpointsAndNoCloud(t *testing.T) {
	s := enter(t, script{inventory: withoutCloud(), writer: map[string]string{"HEALTH_CHECK_MODE": "off"}})
	asked := len(s.Cloud.Requests())
	var all []netip.Addr
	for n := range 150 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, 1, byte(n + 1)}))
		s.node(fmt.Sprintf("node-%03d", n+1), all[n])
	}
	s.start()
	s.slices("150 endpoints are ready", pair.AreJust(pair.Ready, all...))
	var sizes []int
	for _, one := range s.Now() {
		sizes = append(sizes, len(one.Endpoints))
	}
	if len(sizes) != 2 || slices.Max(sizes) > 100 {
		s.t.Errorf("the slices have %v endpoints, want two of at most 100", sizes)
	}
	for _, name := range []string{"node-007", "node-142"} {
		before := s.writes()
		s.must(s.SecuredClient().CoreV1().Nodes().Delete(s.ctx(), name, metav1.DeleteOptions{}))
		n := len(pair.Conditions(s.Now())) - 1
		s.slices("one less is listed", func(all []*discoveryv1.EndpointSlice) bool { return len(pair.Conditions(all)) == n })
		if n := s.writes() - before; n != 1 {
			s.t.Errorf("one change took %d writes", n)
		}
	}
	if now := len(s.Cloud.Requests()); now != asked {
		s.t.Errorf("the cloud was asked %d times", now-asked)
	}
}

func TestBothFamiliesHaveASliceEach(t *testing.T) {
	both := "10.0.1.0/24,fd00:1::/64"
	inventory := withoutCloud()
	inventory["SECURED_SUBNET_CIDR"] = both
	s := enter(t, script{
		inventory: inventory, writer: map[string]string{"HEALTH_CHECK_MODE": "off", "SECURED_SUBNET_CIDR": both},
		service: func(service *corev1.Service) {
			policy := corev1.IPFamilyPolicyRequireDualStack
			service.Spec.IPFamilyPolicy = &policy
		},
	})
	four, six := netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("fd00:1::1")
	s.node("node-1", four, six)
	s.start()
	s.slices("both addresses serve", pair.AreJust(pair.Ready, four, six))
	got := map[discoveryv1.AddressType]string{}
	for _, one := range s.Now() {
		got[one.AddressType] = pair.Describe([]*discoveryv1.EndpointSlice{one})
	}
	want := map[discoveryv1.AddressType]string{
		discoveryv1.AddressTypeIPv4: "10.0.1.1 ready",
		discoveryv1.AddressTypeIPv6: "fd00:1::1 ready",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Error(diff)
	}
}

func TestADryRunWritesNothingAndPrintsWhatItWould(t *testing.T) {
	s := enter(t, script{writer: map[string]string{"STORE_KIND": "memory"}})
	w := s.machine(pair.WorkerOptions{})
	s.must(w.Join(s.ctx()))
	s.quiet(func() {
		s.must(s.Inventory.Start(s.ctx()))
		s.must(s.writers[0].Start(s.ctx()))
		s.until("it has printed the address", func() bool { return containsAll(s.log(s.writers[0]), w.Address.String(), "EndpointSlice") })
	})
	if len(s.Now()) != 0 {
		s.t.Errorf("there are slices: %s", pair.Describe(s.Now()))
	}
	if holder := s.Leader(); holder != "" {
		s.t.Errorf("%s has taken the Lease, and keeps another writer from writing", holder)
	}
}

// node makes a Node that is ready and has addresses, without a machine.
func (s *stage) node(name string, internal ...netip.Addr) {
	s.t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		}}},
	}
	for _, a := range internal {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	_, err := s.SecuredClient().CoreV1().Nodes().Create(s.ctx(), node, metav1.CreateOptions{})
	s.must(err)
}

// put makes a slice as somebody else would.
func (s *stage) put(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.t.Helper()
	made, err := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).Create(s.ctx(), slice, metav1.CreateOptions{})
	s.must(err)
	return made
}

func sliceOf(name, managedBy string, all ...netip.Addr) *discoveryv1.EndpointSlice {
	yes, no, http, tcp, port := true, false, "http", corev1.ProtocolTCP, int32(pair.NodePort)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: pair.Namespace, Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: pair.Service, discoveryv1.LabelManagedBy: managedBy,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &http, Protocol: &tcp, Port: &port}},
	}
	for _, a := range all {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{a.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		})
	}
	return slice
}

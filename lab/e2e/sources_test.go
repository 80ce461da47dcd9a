package e2e

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// records are those of workers in the format that inventory scripts print.
func records(t *testing.T, workers ...*pair.Worker) string {
	t.Helper()
	all := []map[string]any{}
	for _, w := range workers {
		all = append(all, map[string]any{
			"name": w.Name, "private_ip": w.Address.String(), "ready": true, "worker": true, "os": "linux",
		})
	}
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// degraded waits until membership is no longer believed, for this reason.
func (s *stage) degraded(reason string) {
	s.t.Helper()
	operator := s.operator()
	s.called("membership is not believed, since "+reason, func() bool {
		part := s.list(operator).GetStatus().GetMembership()
		return part.GetState() != inventoryv1.SyncState_SYNC_STATE_SYNCED && strings.Contains(part.GetReason(), reason)
	})
}

func TestTheRecordsOfAFileOrACommandAreFollowed(t *testing.T) {
	for kind, settings := range map[string]map[string]string{
		"file":    {"INVENTORY_FILE_PATH": "nodes.json"},
		"command": {"INVENTORY_COMMAND": "cat", "INVENTORY_COMMAND_ARGS": "nodes.json"},
	} {
		t.Run(kind, func(t *testing.T) {
			settings["SOURCE_KIND"] = kind
			s := enter(t, script{inventory: settings})
			file := filepath.Join(s.Inventory.Dir(), "nodes.json") // where the inventory runs
			all := []*pair.Worker{s.machine(pair.WorkerOptions{}), s.machine(pair.WorkerOptions{}), s.machine(pair.WorkerOptions{})}
			s.write(file, records(t, all...))
			s.start()
			s.slices("the workers of the records serve", pair.AreJust(pair.Ready, addresses(all)...))

			s.step("a file that is half written changes nothing but the status", func(s *stage) {
				s.quiet(func() {
					text := records(s.t, all[0])
					s.must(os.WriteFile(file, []byte(text[:len(text)/2]), 0o600)) // in place, not in one step
					s.degraded("truncated after")
				})
			})
			s.step("a bad record leaves its node as it was", func(s *stage) {
				s.quiet(func() {
					text := records(s.t, all...)
					s.write(file, strings.Replace(text, all[0].Address.String(), "10.0.1.", 1))
					s.degraded(all[0].Name)
				})
			})
			s.step("what is no longer in the records is gone", func(s *stage) {
				s.write(file, records(s.t, all[1:]...))
				s.slices("the others serve", pair.AreJust(pair.Ready, addresses(all[1:])...))
				s.metric(s.Inventory, partSynced("membership"), equals(1))
			})
			s.step("an empty list is believed after several looks", func(s *stage) {
				for _, w := range all[1:] {
					s.must(w.Set(backend.Refuse)) // what still answers would be kept
				}
				s.write(file, "[]")
				s.slices("nobody is listed", pair.AreJust(pair.Ready))
			})
		})
	}
}

func TestStaticRecordsAreTold(t *testing.T) {
	a, b := nextAddress(), nextAddress()
	text := `[{"name":"a","private_ip":"` + a.String() + `","ready":true,"worker":true},{"name":"b","private_ip":"` + b.String() + `","ready":true,"worker":false}]`
	s := enter(t, script{inventory: map[string]string{"SOURCE_KIND": "static", "INVENTORY_STATIC": text}})
	w := s.machine(pair.WorkerOptions{Name: "a", Address: a})
	s.start()
	s.slices("the worker serves", pair.AreJust(pair.Ready, w.Address))
}

// The Service "web" of the namespace "shop" in the secured cluster, as its controllers keep it.
const shop, web = "shop", "web"

// shopService makes the Service and lets the inventory read it, and nothing else, by the
// manifest that users apply.
func (s *stage) shopService() {
	s.t.Helper()
	s.namespace(shop)
	s.must(s.Secured.Apply(s.ctx(), s.manifest("inventory-rbac-service.yaml")))
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: web},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": web}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	_, err := s.SecuredClient().CoreV1().Services(shop).Create(s.ctx(), service, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		ctx := context.Background()
		_ = s.SecuredClient().CoreV1().Services(shop).Delete(ctx, web, metav1.DeleteOptions{})
		s.must(s.SecuredClient().DiscoveryV1().EndpointSlices(shop).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
}

func (s *stage) namespace(name string) {
	s.t.Helper()
	s.must(s.Secured.ApplyYAML(s.ctx(), []byte("{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")))
}

func (s *stage) manifest(name string) string {
	s.t.Helper()
	root, err := pair.Root()
	s.must(err)
	return filepath.Join(root, "deploy", "manifests", name)
}

// shopSlice makes or changes a slice of the Service.
func (s *stage) shopSlice(name string, kind discoveryv1.AddressType, port int32, endpoints ...discoveryv1.Endpoint) {
	s.t.Helper()
	slices := s.SecuredClient().DiscoveryV1().EndpointSlices(shop)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: web}},
		AddressType: kind, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}
	if _, err := slices.Create(s.ctx(), slice, metav1.CreateOptions{}); err == nil {
		return
	}
	before, err := slices.Get(s.ctx(), name, metav1.GetOptions{})
	s.must(err)
	slice.ResourceVersion = before.ResourceVersion
	_, err = slices.Update(s.ctx(), slice, metav1.UpdateOptions{})
	s.must(err)
}

// backing is the endpoint of a Pod with an address and conditions.
func backing(pod string, address netip.Addr, want pair.Condition) discoveryv1.Endpoint {
	ready, leaving := want == pair.Ready, want == pair.Draining
	serving := ready || leaving
	return discoveryv1.Endpoint{
		Addresses:  []string{address.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &leaving},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: shop, Name: pod, UID: types.UID("uid-of-" + pod)},
	}
}

// The cases in which a copier that looks a Service up by the slice's own name fails are here:
// slices that are not named like the Service, several of them, and two families.
func TestTheEndpointsOfAServiceAreFollowed(t *testing.T) {
	s := enter(t, script{inventory: map[string]string{
		"SOURCE_KIND": "service", "SOURCE_SERVICE": shop + "/" + web, "SECURED_SUBNET_CIDR": pair.Subnet + ",fd00:1::/64",
	}})
	s.shopService()
	a, b, c := s.machine(pair.WorkerOptions{}), s.machine(pair.WorkerOptions{}), s.machine(pair.WorkerOptions{})
	v6 := netip.MustParseAddr("fd00:1::1")
	s.shopSlice(
		"web-x7k2q",
		discoveryv1.AddressTypeIPv4,
		8443,
		backing("web-0", a.Address, pair.Ready),
		backing("web-1", b.Address, pair.Ready),
	)
	s.shopSlice("handmade", discoveryv1.AddressTypeIPv4, 8443, backing("web-2", c.Address, pair.Out))
	s.shopSlice("web-6-9wz", discoveryv1.AddressTypeIPv6, 8443, backing("web-0", v6, pair.Ready))
	s.start()
	s.slices(
		"all three serve: the data plane answers for the one that is not ready",
		pair.AreJust(pair.Ready, addresses([]*pair.Worker{a, b, c})...),
	)

	s.step("both families of a Pod are one node", func(s *stage) {
		for _, n := range s.list(s.operator()).GetNodes() {
			if n.GetName() == "web-0.uid-of-web-0" && len(n.GetAddresses()) == 2 && n.GetAddresses()[1] == v6.String() {
				return
			}
		}
		s.t.Errorf("told are %v", s.list(s.operator()).GetNodes())
	})
	s.step("a port that the target does not have is told on it", func(s *stage) {
		if note := s.event("SourcePortMismatch").Note; !strings.Contains(note, "8443/TCP") {
			s.t.Errorf("it says %q", note)
		}
	})
	s.step("an update of a slice that is not named like its Service is seen", func(s *stage) {
		s.shopSlice("web-6-9wz", discoveryv1.AddressTypeIPv6, 8443, backing("web-0", v6, pair.Draining))
		s.shopSlice(
			"web-x7k2q",
			discoveryv1.AddressTypeIPv4,
			8443,
			backing("web-0", a.Address, pair.Draining),
			backing("web-1", b.Address, pair.Ready),
		)
		s.slices("the one drains", pair.Are(pair.Draining, a.Address))
		s.shopSlice("web-x7k2q", discoveryv1.AddressTypeIPv4, 8443, backing("web-1", b.Address, pair.Ready))
		s.shopSlice("web-6-9wz", discoveryv1.AddressTypeIPv6, 8443)
		s.slices("it is gone", pair.AreJust(pair.Ready, b.Address, c.Address))
	})
	s.step("a Service that is deleted is no empty one", func(s *stage) {
		s.quiet(func() {
			s.must(s.SecuredClient().CoreV1().Services(shop).Delete(s.ctx(), web, metav1.DeleteOptions{}))
			s.observe()
			s.degraded("shop/web does not exist")
		})
	})
}

// named gives an endpoint the hostname of its Pod, as Kubernetes does for the Pods of a StatefulSet.
func named(e discoveryv1.Endpoint, hostname string) discoveryv1.Endpoint {
	e.Hostname, e.NodeName = &hostname, new("a-node-of-theirs")
	return e
}

// hostnames returns the hostname of each address in the slices, and fails if they have what must not cross the link.
func (s *stage) hostnames() map[netip.Addr]string {
	s.t.Helper()
	found := map[netip.Addr]string{}
	for _, slice := range s.Now() {
		for _, e := range slice.Endpoints {
			if e.NodeName != nil || e.TargetRef != nil {
				s.t.Errorf("endpoint %v has a node or a reference", e)
			}
			if e.Hostname != nil {
				found[netip.MustParseAddr(e.Addresses[0])] = *e.Hostname
			}
		}
	}
	return found
}

func TestHostnamesOfTheEndpointsOfAServiceAreFollowed(t *testing.T) {
	s := enter(t, script{
		inventory: map[string]string{"SOURCE_KIND": "service", "SOURCE_SERVICE": shop + "/" + web},
		service:   func(service *corev1.Service) { service.Spec.ClusterIP = corev1.ClusterIPNone },
	})
	s.shopService()
	a, b, c := s.machine(pair.WorkerOptions{}), s.machine(pair.WorkerOptions{}), s.machine(pair.WorkerOptions{})
	s.shopSlice(
		"web-x7k2q",
		discoveryv1.AddressTypeIPv4,
		80,
		named(
			backing("web-0", a.Address, pair.Ready),
			"db-0",
		),
		named(backing("web-1", b.Address, pair.Ready), "db-1"),
		backing("web-2", c.Address, pair.Ready),
	)
	s.start()
	s.slices("all three serve", pair.AreJust(pair.Ready, addresses([]*pair.Worker{a, b, c})...))
	if diff := cmp.Diff(map[netip.Addr]string{a.Address: "db-0", b.Address: "db-1"}, s.hostnames()); diff != "" {
		t.Errorf("hostnames (-want +got):\n%s", diff)
	}

	s.step("hostnames that change are one write", func(s *stage) {
		before := s.writes()
		s.shopSlice(
			"web-x7k2q",
			discoveryv1.AddressTypeIPv4,
			80,
			named(
				backing("web-0", a.Address, pair.Ready),
				"db-0",
			),
			backing("web-1", b.Address, pair.Ready),
			named(backing("web-2", c.Address, pair.Ready), "db-2"),
		)
		want := map[netip.Addr]string{a.Address: "db-0", c.Address: "db-2"}
		s.until("the hostnames are followed", func() bool { return maps.Equal(want, s.hostnames()) })
		if n := s.writes() - before; n != 1 {
			s.t.Errorf("%d writes", n)
		}
	})
	s.step("a hostname that another client writes is taken back", func(s *stage) {
		slice := s.Now()[0].DeepCopy()
		for i := range slice.Endpoints {
			slice.Endpoints[i].Hostname = new("db-0")
		}
		_, err := s.ConsumingClient().DiscoveryV1().EndpointSlices(slice.Namespace).Update(s.ctx(), slice, metav1.UpdateOptions{})
		s.must(err)
		want := map[netip.Addr]string{a.Address: "db-0", c.Address: "db-2"}
		s.until("they are as before", func() bool { return maps.Equal(want, s.hostnames()) })
	})
	s.step("what drains keeps its hostname", func(s *stage) {
		s.shopSlice(
			"web-x7k2q",
			discoveryv1.AddressTypeIPv4,
			80,
			named(
				backing("web-0", a.Address, pair.Draining),
				"db-0",
			),
			backing("web-1", b.Address, pair.Ready),
			named(backing("web-2", c.Address, pair.Ready), "db-2"),
		)
		s.slices("it drains", pair.Are(pair.Draining, a.Address))
		if got := s.hostnames()[a.Address]; got != "db-0" {
			s.t.Errorf("hostname %q", got)
		}
	})
}

// The workload "gateway" of the namespace "ingress", as its controllers and kubelets keep it.
const ingress = "ingress"

func (s *stage) gatewayPods() {
	s.t.Helper()
	s.namespace(ingress)
	s.must(s.Secured.Apply(s.ctx(), s.manifest("inventory-rbac-workload.yaml")))
	s.must(
		s.Secured.ApplyYAML(s.ctx(), []byte("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: "+ingress+"}}")),
	)
	s.t.Cleanup(func() {
		now := int64(0)
		s.must(
			s.SecuredClient().
				CoreV1().
				Pods(ingress).
				DeleteCollection(context.Background(), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}),
		)
	})
}

// gateway is a ready Pod of the workload on a node.
func (s *stage) gateway(on *pair.Worker) string {
	s.t.Helper()
	no := false
	pods := s.SecuredClient().CoreV1().Pods(ingress)
	pod, err := pods.Create(s.ctx(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "gateway-" + on.Name, Labels: map[string]string{"app": "gateway"}},
		Spec: corev1.PodSpec{
			NodeName: on.Name, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "gateway", Image: "gateway"}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	_, err = pods.UpdateStatus(s.ctx(), pod, metav1.UpdateOptions{})
	s.must(err)
	return pod.Name
}

func TestWithAWorkloadADrainLosesNothing(t *testing.T) {
	s := enter(t, script{
		inventory: map[string]string{"WORKLOAD": ingress + "/app=gateway"},
		// The probe would put out what it finds dead; here every backend answers, Pod or not.
		writer: map[string]string{"HEALTH_CHECK_MODE": "off"},
	})
	s.gatewayPods()
	a, b := s.machine(pair.WorkerOptions{}), s.machine(pair.WorkerOptions{})
	s.must(a.Join(s.ctx()))
	s.must(b.Join(s.ctx()))
	pod := s.gateway(a)
	s.start()
	s.slices("only the node with a ready Pod serves", pair.AreJust(pair.Ready, a.Address))
	s.gateway(b)
	s.slices("both are ready", pair.AreJust(pair.Ready, a.Address, b.Address))

	s.step("a cordon and the autoscaler's mark change nothing while the Pod runs", func(s *stage) {
		s.quiet(func() {
			s.must(a.Cordon(s.ctx(), true))
			s.must(a.Drain(s.ctx(), true))
			s.called("the inventory has seen the mark", func() bool {
				return strings.Contains(s.explained(a.Name), "taint "+pair.DrainTaint)
			})
		})
		s.is(pair.Ready, a)
	})
	s.step("it drains when its last Pod begins to leave, marked or not", func(s *stage) {
		s.must(a.Drain(s.ctx(), false))
		s.must(s.SecuredClient().CoreV1().Pods(ingress).Delete(s.ctx(), pod, metav1.DeleteOptions{})) // with its grace period
		s.slices("it drains", pair.Are(pair.Draining, a.Address))
		s.is(pair.Ready, b)
	})
}

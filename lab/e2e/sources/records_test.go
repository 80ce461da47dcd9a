package sources

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
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

// degraded waits until membership is no longer synced, for this reason.
func degraded(s *e2e.Setup, reason string) {
	s.T.Helper()
	operator := s.OperatorConn()
	s.UntilCalled("membership is not synced, since "+reason, func() bool {
		part := s.ListNodes(operator).GetStatus().GetMembership()
		return part.GetState() != inventoryv1.SyncState_SYNC_STATE_SYNCED && strings.Contains(part.GetReason(), reason)
	})
}

func TestTheRecordsOfAFileOrACommandAreFollowed(t *testing.T) {
	e2e.Long(t)
	for kind, settings := range map[string]map[string]string{
		"file":    {"INVENTORY_FILE_PATH": "nodes.json"},
		"command": {"INVENTORY_COMMAND": "cat", "INVENTORY_COMMAND_ARGS": "nodes.json"},
	} {
		t.Run(kind, func(t *testing.T) {
			settings["SOURCE_KIND"] = kind
			s := e2e.New(t, e2e.Options{Inventory: settings})
			file := filepath.Join(s.Inventory.Dir(), "nodes.json") // where the inventory runs
			all := []*pair.Worker{s.Machine(pair.WorkerOptions{}), s.Machine(pair.WorkerOptions{}), s.Machine(pair.WorkerOptions{})}
			s.WriteFile(file, records(t, all...))
			s.StartAll()
			s.Await("the workers of the records serve", pair.AreJust(pair.Ready, e2e.Addresses(all)...))

			s.Step("a file that is half written changes nothing but the status", func(s *e2e.Setup) {
				s.ExpectNoWrites(func() {
					text := records(s.T, all[0])
					s.Must(os.WriteFile(file, []byte(text[:len(text)/2]), 0o600)) // in place, not in one step
					degraded(s, "truncated after")
				})
			})
			s.Step("a bad record leaves its node as it was", func(s *e2e.Setup) {
				s.ExpectNoWrites(func() {
					text := records(s.T, all...)
					s.WriteFile(file, strings.Replace(text, all[0].Address.String(), "10.0.1.", 1))
					degraded(s, all[0].Name)
				})
			})
			s.Step("what is no longer in the records is gone", func(s *e2e.Setup) {
				s.WriteFile(file, records(s.T, all[1:]...))
				s.Await("the others serve", pair.AreJust(pair.Ready, e2e.Addresses(all[1:])...))
				s.AwaitMetric(s.Inventory, e2e.PartSynced("membership"), e2e.Equals(1))
			})
			s.Step("an empty list counts after several observations", func(s *e2e.Setup) {
				for _, w := range all[1:] {
					s.Must(w.Set(backend.Refuse)) // what still answers would be kept
				}
				s.WriteFile(file, "[]")
				s.Await("none is listed", pair.AreJust(pair.Ready))
			})
		})
	}
}

// The cases in which a copier that looks a Service up by the slice's own name fails are here:
// slices that are not named like the Service, several of them, and two families.
func TestTheEndpointsOfAServiceAreFollowed(t *testing.T) {
	e2e.Long(t)
	s := e2e.New(t, e2e.Options{Inventory: map[string]string{
		"SOURCE_KIND": "service", "SOURCE_SERVICE": e2e.Shop + "/" + e2e.Web, "SECURED_SUBNET_CIDR": pair.Subnet + ",fd00:1::/64",
	}})
	s.CreateShop()
	a, b, c := s.Machine(pair.WorkerOptions{}), s.Machine(pair.WorkerOptions{}), s.Machine(pair.WorkerOptions{})
	v6 := netip.MustParseAddr("fd00:1::1")
	s.PutShopSlice("web-x7k2q", discoveryv1.AddressTypeIPv4, 8443, e2e.Backing("web-0", a.Address, pair.Ready),
		e2e.Backing("web-1", b.Address, pair.Ready))
	s.PutShopSlice("handmade", discoveryv1.AddressTypeIPv4, 8443, e2e.Backing("web-2", c.Address, pair.Out))
	s.PutShopSlice("web-6-9wz", discoveryv1.AddressTypeIPv6, 8443, e2e.Backing("web-0", v6, pair.Ready))
	s.StartAll()
	s.Await("all three serve: the data plane answers for the one that is not ready",
		pair.AreJust(pair.Ready, e2e.Addresses([]*pair.Worker{a, b, c})...))

	s.Step("each address of a Pod is a node", func(s *e2e.Setup) {
		nodes := s.ListNodes(s.OperatorConn()).GetNodes()
		for _, want := range []netip.Addr{a.Address, b.Address, c.Address, v6} {
			if !slices.ContainsFunc(nodes, func(n *inventoryv1.Node) bool { return n.GetName() == want.String() }) {
				s.T.Errorf("the nodes are %v, without %s", nodes, want)
			}
		}
	})
	s.Step("a port that the target does not have is reported on it", func(s *e2e.Setup) {
		if note := s.AwaitEvent("SourcePortMismatch").Note; !strings.Contains(note, "8443/TCP") {
			s.T.Errorf("it says %q", note)
		}
	})
	s.Step("an update of a slice that is not named like its Service is seen", func(s *e2e.Setup) {
		s.PutShopSlice("web-6-9wz", discoveryv1.AddressTypeIPv6, 8443, e2e.Backing("web-0", v6, pair.Draining))
		s.PutShopSlice("web-x7k2q", discoveryv1.AddressTypeIPv4, 8443, e2e.Backing("web-0", a.Address, pair.Draining),
			e2e.Backing("web-1", b.Address, pair.Ready))
		s.Await("the one drains", pair.Are(pair.Draining, a.Address))
		s.PutShopSlice("web-x7k2q", discoveryv1.AddressTypeIPv4, 8443, e2e.Backing("web-1", b.Address, pair.Ready))
		s.PutShopSlice("web-6-9wz", discoveryv1.AddressTypeIPv6, 8443)
		s.Await("it is gone", pair.AreJust(pair.Ready, b.Address, c.Address))
	})
	s.Step("a Service that is deleted is no empty one", func(s *e2e.Setup) {
		s.PutShopSlice(
			"web-x7k2q",
			discoveryv1.AddressTypeIPv4,
			8443,
			e2e.Backing("web-1", b.Address, pair.Out),
		) // none is READY: it is observed soon
		s.ExpectNoWrites(func() {
			s.Must(s.SecuredClient().CoreV1().Services(e2e.Shop).Delete(s.Ctx(), e2e.Web, metav1.DeleteOptions{}))
			degraded(s, "shop/web does not exist")
		})
	})
}

// hostnames returns the hostname of each address in the slices, and fails if they have what must not cross the link.
func hostnames(s *e2e.Setup) map[netip.Addr]string {
	s.T.Helper()
	found := map[netip.Addr]string{}
	for _, slice := range s.Now() {
		for _, e := range slice.Endpoints {
			if e.NodeName != nil || e.TargetRef != nil {
				s.T.Errorf("endpoint %v has a node or a reference", e)
			}
			if e.Hostname != nil {
				found[netip.MustParseAddr(e.Addresses[0])] = *e.Hostname
			}
		}
	}
	return found
}

func TestHostnamesOfTheEndpointsOfAServiceAreFollowed(t *testing.T) {
	e2e.Long(t)
	s := e2e.New(t, e2e.Options{
		Inventory: map[string]string{"SOURCE_KIND": "service", "SOURCE_SERVICE": e2e.Shop + "/" + e2e.Web},
		Service:   func(service *corev1.Service) { service.Spec.ClusterIP = corev1.ClusterIPNone },
	})
	s.CreateShop()
	a, b, c := s.Machine(pair.WorkerOptions{}), s.Machine(pair.WorkerOptions{}), s.Machine(pair.WorkerOptions{})
	s.PutShopSlice(
		"web-x7k2q",
		discoveryv1.AddressTypeIPv4,
		80,
		e2e.Named(e2e.Backing("web-0", a.Address, pair.Ready), "db-0"),
		e2e.Named(e2e.Backing("web-1", b.Address, pair.Ready), "db-1"),
		e2e.Backing("web-2", c.Address, pair.Ready),
	)
	s.StartAll()
	s.Await("all three serve", pair.AreJust(pair.Ready, e2e.Addresses([]*pair.Worker{a, b, c})...))
	if diff := cmp.Diff(map[netip.Addr]string{a.Address: "db-0", b.Address: "db-1"}, hostnames(s)); diff != "" {
		t.Errorf("hostnames (-want +got):\n%s", diff)
	}

	s.Step("hostnames that change are one write", func(s *e2e.Setup) {
		before := s.WriteCount()
		s.PutShopSlice(
			"web-x7k2q",
			discoveryv1.AddressTypeIPv4,
			80,
			e2e.Named(e2e.Backing("web-0", a.Address, pair.Ready), "db-0"),
			e2e.Backing("web-1", b.Address, pair.Ready),
			e2e.Named(e2e.Backing("web-2", c.Address, pair.Ready), "db-2"),
		)
		want := map[netip.Addr]string{a.Address: "db-0", c.Address: "db-2"}
		s.Until("the hostnames are followed", func() bool { return maps.Equal(want, hostnames(s)) })
		if n := s.WriteCount() - before; n != 1 {
			s.T.Errorf("%d writes", n)
		}
	})
	s.Step("a hostname that another client writes is taken back", func(s *e2e.Setup) {
		slice := s.Now()[0].DeepCopy()
		for i := range slice.Endpoints {
			slice.Endpoints[i].Hostname = new("db-0")
		}
		s.UpdateSlice(slice)
		want := map[netip.Addr]string{a.Address: "db-0", c.Address: "db-2"}
		s.Until("they are as before", func() bool { return maps.Equal(want, hostnames(s)) })
	})
	s.Step("what drains keeps its hostname", func(s *e2e.Setup) {
		s.PutShopSlice(
			"web-x7k2q",
			discoveryv1.AddressTypeIPv4,
			80,
			e2e.Named(e2e.Backing("web-0", a.Address, pair.Draining), "db-0"),
			e2e.Backing("web-1", b.Address, pair.Ready),
			e2e.Named(e2e.Backing("web-2", c.Address, pair.Ready), "db-2"),
		)
		s.Await("it drains", pair.Are(pair.Draining, a.Address))
		if got := hostnames(s)[a.Address]; got != "db-0" {
			s.T.Errorf("hostname %q", got)
		}
	})
}

// The workload "gateway" of the namespace "ingress", as its controllers and kubelets keep it.
const ingress = "ingress"

func gatewayPods(s *e2e.Setup) {
	s.T.Helper()
	s.CreateNamespace(ingress)
	s.Must(s.Secured.Apply(s.Ctx(), s.Manifest("inventory-rbac-workload.yaml")))
	s.Must(
		s.Secured.ApplyYAML(s.Ctx(), []byte("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: "+ingress+"}}")),
	)
	s.T.Cleanup(func() {
		now := int64(0)
		s.Must(s.SecuredClient().CoreV1().Pods(ingress).
			DeleteCollection(context.Background(), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}))
	})
}

// gateway is a ready Pod of the workload on a node.
func gateway(s *e2e.Setup, on *pair.Worker) string {
	s.T.Helper()
	no := false
	pods := s.SecuredClient().CoreV1().Pods(ingress)
	pod, err := pods.Create(s.Ctx(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "gateway-" + on.Name, Labels: map[string]string{"app": "gateway"}},
		Spec: corev1.PodSpec{
			NodeName: on.Name, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "gateway", Image: "gateway"}},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	_, err = pods.UpdateStatus(s.Ctx(), pod, metav1.UpdateOptions{})
	s.Must(err)
	return pod.Name
}

func TestWithAWorkloadADrainLosesNothing(t *testing.T) {
	e2e.Long(t)
	s := e2e.New(t, e2e.Options{
		Inventory: map[string]string{"WORKLOAD": ingress + "/app=gateway"},
		// The probe would put out what it finds dead; here every backend answers, Pod or not.
		Writer: map[string]string{"HEALTH_CHECK_MODE": "off"},
	})
	gatewayPods(s)
	a, b := s.Machine(pair.WorkerOptions{}), s.Machine(pair.WorkerOptions{})
	s.Must(a.Join(s.Ctx()))
	s.Must(b.Join(s.Ctx()))
	pod := gateway(s, a)
	s.StartAll()
	s.Await("only the node with a ready Pod serves", pair.AreJust(pair.Ready, a.Address))
	gateway(s, b)
	s.Await("both are ready", pair.AreJust(pair.Ready, a.Address, b.Address))

	s.Step("a cordon and the autoscaler's mark change nothing while the Pod runs", func(s *e2e.Setup) {
		s.ExpectNoWrites(func() {
			s.Must(a.Cordon(s.Ctx(), true))
			s.Must(a.Drain(s.Ctx(), true))
			s.UntilCalled("the inventory has seen the mark", func() bool {
				return strings.Contains(s.InventoryReport(a.Name).GetNodes()[0].GetStateReason(), "taint "+pair.DrainTaint)
			})
		})
		s.Expect(pair.Ready, a)
	})
	s.Step("it drains when its last Pod begins to leave, marked or not", func(s *e2e.Setup) {
		s.Must(a.Drain(s.Ctx(), false))
		s.Must(s.SecuredClient().CoreV1().Pods(ingress).Delete(s.Ctx(), pod, metav1.DeleteOptions{})) // with its grace period
		s.Await("it drains", pair.Are(pair.Draining, a.Address))
		s.Expect(pair.Ready, b)
	})
}

package sources

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// exports has the Services of the namespace shop. Those with the label are exported.
type exports struct{ *e2e.Setup }

func enterExports(t *testing.T, services string, given func(*corev1.Service), settings ...string) *exports {
	t.Helper()
	writer := map[string]string{"SECURED_SUBNET_CIDR": pair.Subnet + ",fd00:1::/64"}
	for ; len(settings) > 1; settings = settings[2:] {
		writer[settings[0]] = settings[1]
	}
	x := &exports{e2e.NewLabeled(t, e2e.Options{
		Inventory: map[string]string{
			"SOURCE_KIND":             "service",
			"SOURCE_SERVICE_SELECTOR": "slicefeed.dev/export=true",
			"SECURED_SUBNET_CIDR":     pair.Subnet + ",fd00:1::/64",
		},
		Writer:  writer,
		Service: given,
	})}
	x.RestoreFiles(x.Inventory.Dir() + "/clients.yaml")
	x.allow(services)
	x.CreateNamespace(e2e.Shop)
	x.Must(x.Secured.Apply(x.Ctx(), x.Manifest("inventory-rbac-exports.yaml")))
	t.Cleanup(func() {
		ctx, at := context.Background(), metav1.DeleteOptions{}
		all, err := x.SecuredClient().CoreV1().Services(e2e.Shop).List(ctx, metav1.ListOptions{})
		x.Must(err)
		for _, service := range all.Items {
			x.Must(x.SecuredClient().CoreV1().Services(e2e.Shop).Delete(ctx, service.Name, at))
		}
		x.Must(x.SecuredClient().DiscoveryV1().EndpointSlices(e2e.Shop).DeleteCollection(ctx, at, metav1.ListOptions{}))
	})
	return x
}

// allow grants Services to the writers.
func (x *exports) allow(services string) {
	x.T.Helper()
	x.WriteFile(
		x.Inventory.Dir()+"/clients.yaml",
		fmt.Sprintf("clients:\n- {san: %q, role: subscriber, services: %s}\n- {san: %q, role: operator, services: ['*/*']}\n",
			pair.WriterSAN, services, pair.OperatorSAN),
	)
}

// offer makes a Service of the secured cluster, with or without the label that exports it.
func (x *exports) offer(name string, exported bool) {
	x.T.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"slicefeed.dev/export": fmt.Sprint(exported)}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	_, err := x.SecuredClient().CoreV1().Services(e2e.Shop).Create(x.Ctx(), service, metav1.CreateOptions{})
	x.Must(err)
}

// export sets the label of a Service.
func (x *exports) export(name string, exported bool) {
	x.T.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"slicefeed.dev/export":"%t"}}}`, exported)
	_, err := x.SecuredClient().CoreV1().Services(e2e.Shop).Patch(x.Ctx(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	x.Must(err)
}

// backed makes or changes a slice of a Service. The name of the slice does not depend on the Service.
func (x *exports) backed(service, slice string, endpoints ...discoveryv1.Endpoint) {
	x.T.Helper()
	kind := discoveryv1.AddressTypeIPv4
	if len(endpoints) > 0 && strings.Contains(endpoints[0].Addresses[0], ":") {
		kind = discoveryv1.AddressTypeIPv6
	}
	x.Must(x.putSlice(service, slice, kind, 8080, endpoints))
}

func (x *exports) putSlice(service, name string, kind discoveryv1.AddressType, port int32, endpoints []discoveryv1.Endpoint) error {
	slices := x.SecuredClient().DiscoveryV1().EndpointSlices(e2e.Shop)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: kind, Endpoints: endpoints, Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}
	if before, err := slices.Get(x.Ctx(), name, metav1.GetOptions{}); err == nil {
		slice.ResourceVersion = before.ResourceVersion
		_, err := slices.Update(x.Ctx(), slice, metav1.UpdateOptions{})
		return err
	}
	_, err := slices.Create(x.Ctx(), slice, metav1.CreateOptions{})
	return err
}

// connections is how many connections a writer has to the inventory.
func (x *exports) connections(writer *pair.Component) int {
	x.T.Helper()
	const established = "01"
	n := 0
	for _, socket := range x.Sockets(writer.PID(), established) {
		if socket.Remote == pair.LinkPort {
			n++
		}
	}
	return n
}

// step is Step with the exports.
func (x *exports) step(name string, play func(*exports)) {
	x.T.Helper()
	x.Step(name, func(s *e2e.Setup) { play(&exports{s}) })
}

// The two cases in which a copier for each Service fails are here: slices that are not named like the Service, and two
// families.
func TestServicesAreExportedByOneInventory(t *testing.T) {
	x := enterExports(t, "[shop/web, shop/api, shop/later]", e2e.Annotated("source-service", "shop/web"))
	a, b, c := x.Machine(pair.WorkerOptions{}), x.Machine(pair.WorkerOptions{}), x.Machine(pair.WorkerOptions{})
	x.offer("web", true)
	x.offer("api", true)
	x.offer("later", false)
	x.offer("hidden", true)
	x.backed("web", "x7k2q", e2e.Backing("web-0", a.Address, pair.Ready))
	x.backed("web", "web-of-another-name", e2e.Backing("web-1", b.Address, pair.Ready))
	v6 := netip.MustParseAddr("fd00:1::7")
	x.backed(
		"api",
		"web",
		e2e.Backing("api-0", c.Address, pair.Ready),
		e2e.Backing("api-1", b.Address, pair.Ready),
	) // named like another Service
	x.backed("api", "api-6", e2e.Backing("api-0", v6, pair.Ready))
	x.backed("later", "later-a", e2e.Backing("later-0", b.Address, pair.Ready))
	x.StartAll()
	api := x.CreateService(e2e.NewLabeledService("api", e2e.Annotated("source-service", "shop/api"), func(s *corev1.Service) {
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
	}))
	web := pair.AreJust(pair.Ready, a.Address, b.Address)
	x.AwaitOf(x.Service, "the endpoints of web serve", web)
	x.AwaitOf(api, "the endpoints of api serve", pair.AreJust(pair.Ready, b.Address, c.Address))

	x.step("each Service is a set of its own", func(x *exports) {
		client := inventoryv1.NewInventoryServiceClient(x.OperatorConn())
		list := func(service string) *inventoryv1.ListNodesResponse {
			list, err := client.ListNodes(x.Ctx(), &inventoryv1.ListNodesRequest{Service: service})
			x.Must(err)
			return list
		}
		first, second := list("shop/web"), list("shop/api")
		if len(first.GetNodes()) != 2 || len(second.GetNodes()) != 3 {
			x.T.Errorf("web has %v, api %v", first.GetNodes(), second.GetNodes())
		}
		if first.GetCursor().GetEpoch() == second.GetCursor().GetEpoch() || string(first.GetDigest()) == string(second.GetDigest()) {
			x.T.Error("two Services have one cursor or digest")
		}
		if _, err := client.ListNodes(x.Ctx(), &inventoryv1.ListNodesRequest{}); status.Code(err) != codes.FailedPrecondition {
			x.T.Errorf("a request without a Service: %v", err)
		}
	})
	x.step("a change of one Service writes that one", func(x *exports) {
		before := x.WriteCount()
		x.backed("web", "x7k2q", e2e.Backing("web-0", a.Address, pair.Draining))
		x.AwaitOf(x.Service, "it drains", pair.Are(pair.Draining, a.Address))
		x.backed("web", "x7k2q", e2e.Backing("web-0", a.Address, pair.Ready))
		x.AwaitOf(x.Service, "it serves", web)
		if n := x.WriteCount() - before; n != 2 {
			x.T.Errorf("%d writes, want 2", n)
		}
	})
	x.step("a Service that the client list does not grant is not sent", func(x *exports) {
		hidden := x.CreateService(e2e.NewLabeledService("hidden", e2e.Annotated("source-service", "shop/hidden")))
		x.AwaitEventOn(hidden, "SourceNotSynced", "service shop/hidden is not granted")
		if all := x.SlicesOf(hidden); len(all) > 0 {
			x.T.Errorf("it has slices: %s", pair.Describe(all))
		}
	})
	x.step("a Service that names none is reported", func(x *exports) {
		x.CreateService(e2e.NewLabeledService("nameless"))
		statusSays(x.Setup, "request rejected: this inventory exports Services")
	})
	x.step("a Service without the label waits for it", func(x *exports) {
		later := x.CreateService(e2e.NewLabeledService("later", e2e.Annotated("source-service", "shop/later")))
		x.Until("the writer logs why", func() bool { return strings.Contains(x.LogOf(x.Writers[0]), "service shop/later is not exported") })
		if all := x.SlicesOf(later); len(all) > 0 {
			x.T.Errorf("it has slices: %s", pair.Describe(all))
		}
		x.export("later", true)
		x.AwaitOf(later, "it serves", pair.AreJust(pair.Ready, b.Address))
		x.AwaitEventOn(later, "SliceCreated", "1 endpoint")
	})
	x.step("a Service that loses the label keeps its endpoints, and no change of it is sent", func(x *exports) {
		client := inventoryv1.NewInventoryServiceClient(x.OperatorConn())
		x.backed("web", "x7k2q", e2e.Backing("web-0", a.Address, pair.Out))
		x.backed("web", "web-of-another-name", e2e.Backing("web-1", b.Address, pair.Out))
		x.UntilCalled("none of its endpoints is READY, so that it is observed soon", func() bool {
			list, err := client.ListNodes(x.Ctx(), &inventoryv1.ListNodesRequest{Service: "shop/web"})
			return err == nil && !slices.ContainsFunc(list.GetNodes(), func(n *inventoryv1.Node) bool {
				return n.GetState() == inventoryv1.NodeState_NODE_STATE_READY
			})
		})
		x.export("web", false)
		x.UntilCalled("the inventory reports it", func() bool {
			list, err := client.ListNodes(x.Ctx(), &inventoryv1.ListNodesRequest{Service: "shop/web"})
			return err == nil && strings.Contains(list.GetStatus().GetMembership().GetReason(), "service shop/web is not exported") &&
				list.GetStatus().GetMembership().GetState() == inventoryv1.SyncState_SYNC_STATE_WITHHELD &&
				len(list.GetNodes()) == 0
		})
		x.backed("web", "x7k2q", e2e.Backing("web-0", a.Address, pair.Draining))
		x.backed("api", "api-6", e2e.Backing("api-0", v6, pair.Draining))
		x.backed(
			"api",
			"web",
			e2e.Backing("api-0", c.Address, pair.Draining),
			e2e.Backing("api-1", b.Address, pair.Ready),
		) // its change would come after that of web
		x.AwaitOf(api, "api follows", pair.Are(pair.Draining, c.Address))
		if now := x.SlicesOf(x.Service); !web(now) {
			x.T.Errorf("web is %s", pair.Describe(now))
		}
	})
	x.step("a Service that is deleted with its slices keeps its endpoints", func(x *exports) {
		before := x.VersionsOf(api)
		client := x.SecuredClient()
		x.Must(client.CoreV1().Services(e2e.Shop).Delete(x.Ctx(), "api", metav1.DeleteOptions{}))
		for _, slice := range []string{"web", "api-6"} { // named like another Service, and deleted as by the garbage collector
			x.Must(client.DiscoveryV1().EndpointSlices(e2e.Shop).Delete(x.Ctx(), slice, metav1.DeleteOptions{}))
		}
		x.Until("the writer logs why", func() bool { return strings.Contains(x.LogOf(x.Writers[0]), "service shop/api does not exist") })
		if after := x.VersionsOf(api); !maps.Equal(before, after) {
			x.T.Errorf("written: %v, then %v", before, after)
		}
	})
	x.step("a Service that is no longer granted keeps its endpoints", func(x *exports) {
		before := x.VersionsOf(x.Service)
		x.allow("[shop/api]")
		x.Until("the writer logs why", func() bool { return strings.Contains(x.LogOf(x.Writers[0]), "service shop/web is not granted") })
		for name, version := range x.VersionsOf(x.Service) {
			if before[name] != version {
				x.T.Errorf("slice %s was written", name)
			}
		}
	})
}

// statusSays waits until the writer's status has a text.
func statusSays(s *e2e.Setup, text string) {
	s.T.Helper()
	s.UntilCalled("the status says why", func() bool {
		_, status := e2e.Run(s.T, "slicefeed-writer", s.Writers[0].Env(), "status", "-o", "json")
		return strings.Contains(status, text)
	})
}

func TestAnInventoryThatExportsNoServicesIsReported(t *testing.T) {
	s := e2e.NewLabeled(t, e2e.Options{Service: e2e.Annotated("source-service", "shop/web")})
	s.StartAll()
	statusSays(s, "request rejected: this inventory exports no Services")
	s.Annotate(s.Service, "source-service", "")
	s.Join(1)
}

func TestEndpointsOfTheEarlierServiceKeepTheirPort(t *testing.T) {
	e2e.Long(t)
	x := enterExports(t, "[shop/*]", e2e.Annotated("source-service", "shop/web", "ports", "from-source"),
		"SHRINK_WINDOW", "30s", "ALLOWED_PORTS", "30080-30090")
	a, b := x.Machine(pair.WorkerOptions{}), x.Machine(pair.WorkerOptions{})
	other, err := backend.Start("other port", netip.AddrPortFrom(b.Address, 30081))
	x.Must(err)
	t.Cleanup(func() { x.Must(other.Close()) })
	x.offer("web", true)
	x.offer("api", true)
	x.Must(
		x.putSlice("web", "web-a", discoveryv1.AddressTypeIPv4, 30080, []discoveryv1.Endpoint{e2e.Backing("web-0", a.Address, pair.Ready)}),
	)
	x.Must(
		x.putSlice("api", "api-a", discoveryv1.AddressTypeIPv4, 30081, []discoveryv1.Endpoint{e2e.Backing("api-0", b.Address, pair.Ready)}),
	)
	x.StartAll()
	at := func(want map[netip.Addr]int32) func([]*discoveryv1.EndpointSlice) bool {
		return func(all []*discoveryv1.EndpointSlice) bool {
			got := map[netip.Addr]int32{}
			for _, slice := range all {
				for _, e := range slice.Endpoints {
					if *e.Conditions.Ready {
						got[netip.MustParseAddr(e.Addresses[0])] = *slice.Ports[0].Port
					}
				}
			}
			return maps.Equal(got, want)
		}
	}
	x.AwaitOf(x.Service, "web serves", at(map[netip.Addr]int32{a.Address: 30080}))
	x.Annotate(x.Service, "source-service", "shop/api")
	x.AwaitOf(x.Service, "api serves beside what the guard shrink holds", at(map[netip.Addr]int32{a.Address: 30080, b.Address: 30081}))
	x.AwaitOf(x.Service, "api serves alone", at(map[netip.Addr]int32{b.Address: 30081}))
}

// exported is how many Services one inventory exports in the test below.
const exported = 200

func TestHundredsOfExportedServicesAreFollowedOnOneConnection(t *testing.T) {
	e2e.Long(t)
	x := enterExports(t, "[shop/*]", e2e.Annotated("source-service", "shop/s-000"))
	a, b := x.Machine(pair.WorkerOptions{}), x.Machine(pair.WorkerOptions{})
	backends := func(of string, first pair.Condition) []discoveryv1.Endpoint {
		return []discoveryv1.Endpoint{e2e.Backing(of+"-0", a.Address, first), e2e.Backing(of+"-1", b.Address, pair.Ready)}
	}
	name := func(i int) string { return fmt.Sprintf("s-%03d", i) }
	var group errgroup.Group
	group.SetLimit(8)
	all := []*corev1.Service{x.Service}
	for i := range exported {
		group.Go(func() error {
			x.offer(name(i), true)
			return x.putSlice(name(i), "slice-"+name(i), discoveryv1.AddressTypeIPv4, 8080, backends(name(i), pair.Ready))
		})
		if i > 0 {
			all = append(all, x.CreateService(e2e.NewLabeledService(name(i), e2e.Annotated("source-service", "shop/"+name(i)))))
		}
	}
	x.Must(group.Wait())
	begun := time.Now()
	x.StartAll()
	for _, service := range all {
		x.AwaitOf(service, "it serves", pair.AreJust(pair.Ready, a.Address, b.Address))
	}
	t.Logf("%d Services served %s after the start", exported, time.Since(begun).Round(time.Millisecond))
	x.step("they share a connection", func(x *exports) {
		x.AwaitMetric(x.Inventory, "slicefeed_inventory_subscribers", e2e.Equals(exported))
		x.AwaitMetric(x.Inventory, "slicefeed_inventory_exported_services", e2e.Equals(exported))
		if n := x.connections(x.Writers[0]); n != 1 {
			x.T.Errorf("the writer has %d connections to the inventory, want 1", n)
		}
	})
	x.step("a change of one touches one set and writes one slice", func(x *exports) {
		changes, err := x.Inventory.Metric(x.Ctx(), "slicefeed_inventory_feed_changes_total")
		x.Must(err)
		before := x.WriteCount()
		x.backed(name(42), "slice-"+name(42), backends(name(42), pair.Draining)...)
		x.AwaitOf(all[42], "it drains", pair.Are(pair.Draining, a.Address))
		x.AwaitMetric(x.Inventory, "slicefeed_inventory_feed_changes_total", e2e.Equals(changes+1))
		if n := x.WriteCount() - before; n != 1 {
			x.T.Errorf("%d writes, want 1", n)
		}
	})
	x.step("all return after a restart of the inventory, and nothing is written", func(x *exports) {
		x.ExpectNoWrites(func() {
			x.Must(x.Inventory.Kill())
			x.Must(x.Inventory.Start(x.Ctx()))
			x.AwaitMetric(x.Inventory, "slicefeed_inventory_subscribers", e2e.Equals(exported))
			x.AwaitMetric(x.Writers[0], `slicefeed_writer_source_synced{source="default/shop/s-199"}`, e2e.Equals(1))
		})
	})
}

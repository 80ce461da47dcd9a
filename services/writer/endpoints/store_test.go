package endpoints

import (
	"cmp"
	"fmt"
	"net/netip"
	"testing"

	"github.com/slicefeed/slicefeed/services/writer/targets"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

var (
	ready    = verdict.Conditions{Ready: true, Serving: true}
	draining = verdict.Conditions{Serving: true, Terminating: true}
	out      = verdict.Conditions{}
)

func newPort(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: new(name), Port: new(number)}
}

func mustParseAddr(text string) netip.Addr { return netip.MustParseAddr(text) }

func newEndpoint(address netip.Addr, c verdict.Conditions) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  []string{address.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: new(c.Ready), Serving: new(c.Serving), Terminating: new(c.Terminating)},
	}
}

// newSlice returns an owned slice of a target.
func newSlice(t Target, ports []discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Service + "-slicefeed", Labels: map[string]string{
			discoveryv1.LabelServiceName: t.Service, discoveryv1.LabelManagedBy: t.ManagedBy,
		}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: ports, Endpoints: endpoints,
	}
}

// managedTarget returns a target with an endpoint for each address.
func managedTarget(service string, c verdict.Conditions, addresses ...string) Target {
	t := Target{
		Namespace: "web",
		Service:   service,
		State:     Managed,
		Leading:   true,
		Ports:     []discoveryv1.EndpointPort{newPort("http", 30080)},
	}
	for _, a := range addresses {
		t.Decision.Endpoints = append(
			t.Decision.Endpoints,
			verdict.Endpoint{Address: mustParseAddr(a), Conditions: c, Listed: true, Source: "default"},
		)
	}
	return t
}

func checkEqual[T any](t rapid.TB, what string, got, checkEqual T) {
	t.Helper()
	if diff := gocmp.Diff(checkEqual, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func upsertKeys(u stream.Update[*writerv1.Entry, Status]) (all []string) {
	for _, e := range u.Upserts {
		all = append(all, e.Key)
	}
	return all
}

func portOf(e *entry) *writerv1.Port {
	return cmp.Or(e.Value.GetEndpoint().GetPort(), e.Value.GetGroup().GetPort())
}

// backendsOf describes the backends of an endpoint or a group: address, conditions, source and port.
func backendsOf(e *entry) (all []string) {
	backends := e.Value.GetGroup().GetBackends()
	if b := e.Value.GetEndpoint().GetBackend(); b != nil {
		backends = []*writerv1.Backend{b}
	}
	for _, b := range backends {
		c := verdict.Conditions{Ready: b.GetReady(), Serving: b.GetServing(), Terminating: b.GetTerminating()}
		all = append(all, fmt.Sprint(b.GetAddress(), " ", c, " ", b.GetSource(), " ", b.GetPort()))
	}
	return all
}

func newSyncedStore() *Store {
	b := NewStore("instance")
	b.MarkSynced()
	return b
}

func TestR8PublishesOnlyStatusBeforeInitialSync(t *testing.T) {
	b := NewStore("instance")
	b.Put(managedTarget("a", ready, "10.0.0.1"))
	if u := b.Feed(false).Since(nil, nil); u.Status.Synced || u.Size() > 0 || !u.Status.Leading {
		t.Errorf("before: %+v", u)
	}
	_, changed := b.Feed(false).Status()
	b.MarkSynced()
	<-changed
	checkEqual(t, "after", upsertKeys(b.Feed(false).Since(nil, nil)), []string{"web/a", "web/a/http/10.0.0.1"})
}

func TestPublishesEndpointsOrGroups(t *testing.T) {
	b := newSyncedStore()
	target := managedTarget("a", draining, "10.0.0.1", "fd00::1")
	target.Ports = append(target.Ports, newPort("admin", 30081), discoveryv1.EndpointPort{Name: new("of any number")})
	target.Decision.Endpoints = append(
		target.Decision.Endpoints,
		verdict.Endpoint{Address: mustParseAddr("10.0.0.9"), Verdict: verdict.Remove},
	)
	b.Put(target)
	checkEqual(t, "each address", upsertKeys(b.Feed(false).Since(nil, nil)), []string{
		"web/a", "web/a/admin/10.0.0.1", "web/a/admin/fd00::1", "web/a/http/10.0.0.1", "web/a/http/fd00::1",
	})
	u := b.Feed(true).Since(nil, nil)
	checkEqual(t, "each port", upsertKeys(u), []string{"web/a", "web/a/admin", "web/a/http"})
	checkEqual(
		t,
		"backends",
		backendsOf(u.Upserts[1]),
		[]string{"10.0.0.1 draining default 0", "fd00::1 draining default 0"},
	)
	port := portOf(u.Upserts[1])
	checkEqual(t, "port", []any{port.GetName(), port.GetProtocol(), port.GetNumber()}, []any{"admin", "TCP", uint32(30081)})

	b.Put(managedTarget("a", ready))
	checkEqual(t, "a port without addresses", upsertKeys(b.Feed(true).Since(nil, nil)), []string{"web/a", "web/a/http"})
	b.Remove("web", "a")
	checkEqual(t, "after its removal", upsertKeys(b.Feed(true).Since(nil, nil)), nil)
	b.Remove("web", "unknown")
}

func TestBackendsWithOtherPortsHaveTheirNumber(t *testing.T) {
	b := newSyncedStore()
	target := managedTarget("a", ready, "10.0.0.1", "10.0.0.2")
	target.Decision.Endpoints[1].Source, target.Decision.Endpoints[1].Ports.Text = "green", "http/TCP:31080"
	b.Put(target)
	each := b.Feed(false).Since(nil, nil)
	checkEqual(
		t,
		"an endpoint's port",
		[]uint32{portOf(each.Upserts[1]).GetNumber(), portOf(each.Upserts[2]).GetNumber()},
		[]uint32{30080, 31080},
	)
	checkEqual(t, "an endpoint's backend", backendsOf(each.Upserts[2]), []string{"10.0.0.2 ready green 0"})
	grouped := b.Feed(true).Since(nil, nil)
	checkEqual(t, "a group's port", portOf(grouped.Upserts[1]).GetNumber(), 30080)
	checkEqual(t, "its backends", backendsOf(grouped.Upserts[1]), []string{"10.0.0.1 ready default 0", "10.0.0.2 ready green 31080"})

	other := managedTarget("a", ready, "10.0.0.1", "10.0.0.2")
	other.Decision.Endpoints[1].Source, other.Decision.Endpoints[1].Ports.Text = "green", "http/TCP:31081"
	b.Put(other)
	checkEqual(t, "upserts after a change of the port", upsertKeys(b.Feed(false).Since(&each.At, nil)), []string{"web/a/http/10.0.0.2"})

	// A Service that is not managed is published as its slices are.
	other.State = Paused
	other.ManagedBy = "slicefeed-default"
	blue := newSlice(other, []discoveryv1.EndpointPort{newPort("http", 30080)}, newEndpoint(mustParseAddr("10.0.0.1"), ready))
	green := newSlice(other, []discoveryv1.EndpointPort{newPort("http", 31082)}, newEndpoint(mustParseAddr("10.0.0.2"), ready))
	blue.Labels[targets.LabelSource], green.Labels[targets.LabelSource] = "default", "green"
	other.Slices = []*discoveryv1.EndpointSlice{blue, green}
	b.Put(other)
	paused := b.Feed(false).Since(nil, nil)
	checkEqual(
		t,
		"the ports of a paused Service",
		[]uint32{portOf(paused.Upserts[1]).GetNumber(), portOf(paused.Upserts[2]).GetNumber()},
		[]uint32{30080, 31082},
	)
	green.Labels[targets.LabelSource] = "default"
	b.Put(other)
	paused = b.Feed(false).Since(nil, nil)
	checkEqual(
		t,
		"the ports of two slices of one source",
		[]uint32{portOf(paused.Upserts[1]).GetNumber(), portOf(paused.Upserts[2]).GetNumber()},
		[]uint32{30080, 31082},
	)
}

func TestServiceThatKubernetesMaintainsIsPublishedFromAllOfItsSlices(t *testing.T) {
	b := newSyncedStore()
	target := Target{
		Namespace:    "web",
		Service:      "a",
		State:        ReadOnly,
		ServiceType:  "LoadBalancer",
		ServicePorts: map[string]uint16{"http": 80, "admin": 81},
	}
	target.ManagedBy = "endpointslice-controller.k8s.io"
	// Pods of two versions: the port http has another number in each, and only one has the port admin.
	older := newSlice(
		target,
		[]discoveryv1.EndpointPort{newPort("http", 8080)},
		newEndpoint(mustParseAddr("10.0.0.1"), ready),
		newEndpoint(mustParseAddr("10.0.0.2"), draining),
	)
	newer := newSlice(
		target,
		[]discoveryv1.EndpointPort{newPort("http", 8081), newPort("admin", 9090)},
		newEndpoint(mustParseAddr("10.0.0.3"), ready),
	)
	newer.Labels[discoveryv1.LabelManagedBy] = "someone else"
	newer.Endpoints[0].Conditions = discoveryv1.EndpointConditions{} // which stands for ready
	target.ManagedBy = ""
	target.Slices = []*discoveryv1.EndpointSlice{older, newer}
	b.Put(target)
	each := b.Feed(false).Since(nil, nil)
	var got []string
	for _, e := range each.Upserts[1:] {
		got = append(got, fmt.Sprint(e.Key, " ", portOf(e).GetNumber(), " of ", portOf(e).GetServicePort(), " ", backendsOf(e)[0]))
	}
	checkEqual(t, "endpoints", got, []string{
		"web/a/admin/10.0.0.3 9090 of 81 10.0.0.3 ready  0",
		"web/a/http/10.0.0.1 8080 of 80 10.0.0.1 ready  0", "web/a/http/10.0.0.2 8080 of 80 10.0.0.2 draining  0",
		"web/a/http/10.0.0.3 8081 of 80 10.0.0.3 ready  0",
	})
	checkEqual(t, "the Service", []any{each.Upserts[0].Value.GetTarget().GetState(), each.Upserts[0].Value.GetTarget().GetServiceType()},
		[]any{writerv1.TargetState(ReadOnly), "LoadBalancer"})
	grouped := b.Feed(true).Since(nil, nil)
	checkEqual(t, "groups", upsertKeys(grouped), []string{"web/a", "web/a/admin", "web/a/http"})
	checkEqual(t, "addresses of admin", len(backendsOf(grouped.Upserts[1])), 1)
	checkEqual(t, "the other number of http", backendsOf(grouped.Upserts[2])[2], "10.0.0.3 ready  8081")
	summaries, _ := b.Views(nil)
	checkEqual(t, "ready, draining, out of sync", []int{summaries[0].Ready, summaries[0].Draining, summaries[0].OutOfSync}, []int{2, 1, 0})
}

func TestPublishesOnlyChanges(t *testing.T) {
	b := newSyncedStore()
	b.Put(managedTarget("a", ready, "10.0.0.1", "10.0.0.2", "10.0.0.3"))
	b.Put(managedTarget("b", ready, "10.0.0.1"))
	at := b.Feed(false).Since(nil, nil).At
	altered := managedTarget("a", ready, "10.0.0.1", "10.0.0.3", "10.0.0.4")
	altered.Decision.Endpoints[1].Conditions = out
	b.Put(altered)
	u := b.Feed(false).Since(&at, nil)
	checkEqual(t, "upserts", upsertKeys(u), []string{"web/a/http/10.0.0.3", "web/a/http/10.0.0.4"})
	checkEqual(t, "removed", u.Removed, []string{"web/a/http/10.0.0.2"})
}

func TestPausedOrRejectedTargetIsPublishedFromSlices(t *testing.T) {
	for _, state := range []State{Paused, Rejected} {
		b := newSyncedStore()
		target := managedTarget("a", ready, "10.0.0.1", "10.0.0.2")
		b.Put(target)
		target.State, target.Reason, target.Message, target.ManagedBy = state, "Because", "See there.", "slicefeed-default"
		others := newSlice(Target{Namespace: "web", Service: "a", ManagedBy: "another"}, nil, newEndpoint(mustParseAddr("10.0.0.9"), ready))
		target.Slices = []*discoveryv1.EndpointSlice{
			others,
			newSlice(
				target,
				[]discoveryv1.EndpointPort{newPort("http", 30080)},
				newEndpoint(mustParseAddr("10.0.0.2"), verdict.Conditions{Ready: true}),
				newEndpoint(mustParseAddr("10.0.0.3"), draining),
			),
		}
		at := b.Feed(false).Since(nil, nil).At
		b.Put(target)
		u := b.Feed(false).Since(&at, nil)
		checkEqual(t, "upserts", upsertKeys(u), []string{"web/a", "web/a/http/10.0.0.3"})
		checkEqual(t, "removed", u.Removed, []string{"web/a/http/10.0.0.1"})
		published := u.Upserts[0].Value.GetTarget()
		checkEqual(t, "state", published.GetState(), writerv1.TargetState(state))
		checkEqual(t, "reason", published.GetReason()+" "+published.GetMessage(), "Because See there.")
	}
}

// A ServiceImport that is paused is published from its own slices, not from those of the Service of its name.
func TestPausedServiceImportIsPublishedFromItsOwnSlices(t *testing.T) {
	b := newSyncedStore()
	service := Target{Namespace: "web", Service: "a", State: Paused, ManagedBy: "slicefeed-default"}
	ports := []discoveryv1.EndpointPort{newPort("http", 30080)}
	ofService := newSlice(service, ports, newEndpoint(mustParseAddr("10.0.0.1"), ready))
	ofImport := newSlice(service, ports, newEndpoint(mustParseAddr("10.0.0.2"), ready))
	ofImport.Labels = map[string]string{targets.LabelServiceImport: "a", discoveryv1.LabelManagedBy: "slicefeed-default"}
	service.Slices = []*discoveryv1.EndpointSlice{ofService, ofImport}
	imported := service
	imported.Service, imported.Owner = "a.serviceimport", metav1.OwnerReference{
		APIVersion: targets.GroupServiceImport + "/v1beta1", Kind: targets.KindServiceImport, Name: "a",
	}
	b.Put(service)
	b.Put(imported)
	checkEqual(t, "published", upsertKeys(b.Feed(false).Since(nil, nil)), []string{
		"web/a", "web/a/http/10.0.0.1", "web/a.serviceimport", "web/a.serviceimport/http/10.0.0.2",
	})
}

func TestFilterSelectsServices(t *testing.T) {
	b := newSyncedStore()
	b.Put(managedTarget("a", ready, "10.0.0.1"))
	other := managedTarget("b", ready, "10.0.0.1")
	other.Namespace = "mail"
	for i := range other.Decision.Endpoints {
		other.Decision.Endpoints[i].Held = true
	}
	b.Put(other)
	for _, c := range []struct {
		name     string
		services []ServiceName
		keys     []string
		held     int
	}{
		{"all", nil, []string{"mail/b", "mail/b/http/10.0.0.1", "web/a", "web/a/http/10.0.0.1"}, 1},
		{"one", []ServiceName{{"web", "a"}}, []string{"web/a", "web/a/http/10.0.0.1"}, 0},
		{"a namespace", []ServiceName{{Namespace: "mail"}}, []string{"mail/b", "mail/b/http/10.0.0.1"}, 1},
		{"one of another namespace", []ServiceName{{"web", "b"}}, nil, 0},
		{"part of a name", []ServiceName{{"we", "b/a"}, {Namespace: "w"}}, nil, 0},
	} {
		u := b.Feed(false).Since(nil, SelectServices(c.services))
		checkEqual(t, c.name, upsertKeys(u), c.keys)
		checkEqual(t, c.name+": held back", u.Status.countHeld(SelectServices(c.services)), c.held)
	}
}

func TestStatusCountsWhatIsHeldOfTheSelection(t *testing.T) {
	b := NewStore("instance")
	target := managedTarget("a", ready, "10.0.0.1")
	target.Decision.Endpoints[0].Held = true
	b.Put(target)
	for _, synced := range []bool{false, true} {
		for service, want := range map[string]uint32{"a": 1, "b": 0} {
			_, messages := b.Feed(false).NewReader(nil, SelectServices([]ServiceName{{"web", service}}), 0).Next()
			for m := range messages {
				checkEqual(t, fmt.Sprintf("held of %s, synced: %t", service, synced), m.Content.GetStatus().GetHeld(), want)
			}
		}
		b.MarkSynced()
	}
}

func TestWakesReadersOnChange(t *testing.T) {
	source := func(alive bool, membership subscriber.SyncState, reason string) []subscriber.Snapshot {
		return []subscriber.Snapshot{
			{
				Source:         "default",
				EverSynced:     true,
				SyncedInStream: true,
				Connected:      alive,
				Membership: subscriber.PartStatus{
					State:  membership,
					Reason: reason,
				},
				Addresses: subscriber.PartStatus{State: subscriber.Synced},
			},
		}
	}
	for _, c := range []struct {
		name  string
		do    func(*Target)
		wakes bool
	}{
		{"nothing", func(*Target) {}, false},
		{"a reason, which is not published", func(t *Target) { t.Decision.Endpoints[0].Reason.Why = "another" }, false},
		{"conditions", func(t *Target) { t.Decision.Endpoints[0].Conditions = out }, true},
		{"a zone", func(t *Target) { t.Decision.Endpoints[0].Zone = "z" }, true},
		{"a hostname", func(t *Target) { t.Decision.Endpoints[0].Hostname = "db-0" }, true},
		{"a port", func(t *Target) { t.Ports = []discoveryv1.EndpointPort{newPort("http", 30081)} }, true},
		{"a guard", func(t *Target) { t.Decision.Endpoints[0].Held = true }, true},
		{"the Lease", func(t *Target) { t.Leading = false }, true},
		{"a source that is silent", func(t *Target) { t.Sources = source(false, subscriber.Synced, "") }, true},
		{"a degraded source", func(t *Target) { t.Sources = source(true, subscriber.Degraded, "503") }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newSyncedStore()
			target := managedTarget("a", ready, "10.0.0.1")
			target.Sources = source(true, subscriber.Synced, "")
			b.Put(target)
			_, changed := b.Feed(true).Status()
			again := managedTarget("a", ready, "10.0.0.1")
			again.Sources = target.Sources
			c.do(&again)
			b.Put(again)
			select {
			case <-changed:
				checkEqual(t, "woken", true, c.wakes)
			default:
				checkEqual(t, "woken", false, c.wakes)
			}
		})
	}
}

func TestGroupIsLimitedTomaxBackends(t *testing.T) {
	b := newSyncedStore()
	target := managedTarget("a", ready)
	for i := range maxBackends + 5 {
		target.Decision.Endpoints = append(target.Decision.Endpoints, verdict.Endpoint{
			Address: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), Listed: true, Conditions: ready,
		})
	}
	b.Put(target)
	group := b.Feed(true).Since(nil, nil).Upserts[1].Value.GetGroup()
	checkEqual(t, "backends", len(group.GetBackends()), maxBackends)
	checkEqual(t, "left out", group.GetOmitted(), 5)
}

func TestPortsTimesEndpointsOfATargetAreLimited(t *testing.T) {
	b := newSyncedStore()
	managed, others := managedTarget("a", ready), managedTarget("b", ready)
	others.State = ReadOnly
	slice := newSlice(others, nil)
	for i := range 5000 {
		address := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		managed.Decision.Endpoints = append(managed.Decision.Endpoints, verdict.Endpoint{Address: address, Listed: true, Conditions: ready})
		managed.Ports = append(managed.Ports, newPort(fmt.Sprintf("p%d", i), int32(1+i)))
		slice.Endpoints = append(slice.Endpoints, newEndpoint(address, ready))
	}
	slice.Ports = managed.Ports
	others.Slices = []*discoveryv1.EndpointSlice{slice}
	b.Put(managed)
	b.Put(others)
	for _, service := range []string{"a", "b"} {
		entries := b.Feed(false).Since(nil, SelectServices([]ServiceName{{"web", service}})).Upserts
		checkEqual(t, service+": ports", len(entries[0].Value.GetTarget().GetPorts()), 20)
		checkEqual(t, service+": entries", len(entries), 1+20*5000)
	}
}

func TestNilStoreIgnoresCalls(*testing.T) {
	var b *Store
	b.Put(managedTarget("a", ready))
	b.Remove("web", "a")
	b.MarkSynced()
}

func TestAnExportedServiceIsForgottenWithTheLastTargetThatUsesIt(t *testing.T) {
	b := newSyncedStore()
	use := func(target string, services ...string) {
		put := managedTarget(target, ready)
		for _, service := range services {
			put.Sources = append(put.Sources, subscriber.Snapshot{Source: "blue", Service: service})
		}
		b.Put(put)
	}
	check := func(want ...string) {
		t.Helper()
		var got []string
		_, status := b.Views(nil)
		for _, s := range status.Sources {
			got = append(got, s.Name)
		}
		checkEqual(t, "sources", got, want)
	}
	use("a", "shop/web")
	use("b", "shop/web", "shop/api")
	use("a", "shop/web")
	check("blue/shop/api", "blue/shop/web")
	use("b", "shop/web")
	check("blue/shop/web")
	use("b", "shop/api")
	check("blue/shop/api", "blue/shop/web")
	use("a", "shop/api")
	check("blue/shop/api")
	b.Remove("web", "b")
	check("blue/shop/api")
	b.Remove("web", "a")
	check()
}

package sources

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestASourceThatStandsByTakesOverAndLeavesAgain(t *testing.T) {
	// The guard against too many departures would hold one of two for an hour.
	f := enterSources(t, e2e.Options{
		Writer:  map[string]string{"SHRINK_WINDOW": "1h"},
		Service: e2e.Annotated("source", "east", "failover", "west"),
	}, nil, plot{"east", 14, 1}, plot{"west", 15, 2})
	east, west := f.all["east"], f.all["west"]
	easts, wests := f.workers(1, 51, 2), f.workers(2, 51, 2)
	f.Must(east.Tell(easts...))
	f.Must(west.Tell(wests...))
	f.StartWriters()
	f.Await("only the first source serves", pair.AreJust(pair.Ready, e2e.Addresses(easts)...))
	f.step("one ready endpoint of the first source is enough", func(f *sources) {
		f.Must(easts[0].Set(backend.Refuse))
		f.Await("the dead one is not ready", pair.Are(pair.Out, easts[0].Address))
		f.Await("none of the other source is listed", pair.Are(pair.Absent, e2e.Addresses(wests)...))
	})
	f.step("without any, the other source takes over", func(f *sources) {
		f.Must(easts[1].Set(backend.Refuse))
		f.Await("the other source serves", pair.Are(pair.Ready, e2e.Addresses(wests)...))
		f.AwaitEventOn(f.Service, "FailoverActive", "west")
	})
	f.step("it leaves when the first source has been back for a minute", func(f *sources) {
		e2e.Long(f.T)
		begun := time.Now()
		for _, w := range easts {
			f.Must(w.Set(backend.Serve))
		}
		f.Await("the first source serves again", pair.Are(pair.Ready, e2e.Addresses(easts)...))
		f.Await("the other source stands by", pair.AreJust(pair.Ready, e2e.Addresses(easts)...))
		if took := time.Since(begun); took < time.Minute {
			f.T.Errorf("it left after %s", took)
		}
		f.AwaitEventOn(f.Service, "FailoverOver", "west")
	})
}

func TestEndpointsOfASourceThatIsGoneExpire(t *testing.T) {
	e2e.Long(t)
	f := enterSources(t, e2e.Options{
		Writer:  map[string]string{"SHRINK_WINDOW": "1h"},
		Service: e2e.Annotated("source", "east,west", "expire-after", "30s"),
	}, nil, plot{"east", 14, 1}, plot{"west", 15, 2})
	easts, wests := f.workers(1, 61, 1), f.workers(2, 61, 3)
	f.Must(f.all["east"].Tell(easts...))
	f.Must(f.all["west"].Tell(wests...))
	f.StartWriters()
	all := append(e2e.Addresses(easts), e2e.Addresses(wests)...)
	f.Await("all serve", pair.AreJust(pair.Ready, all...))
	before, begun := f.WriteCount(), time.Now()
	f.Must(f.all["west"].Kill())
	f.Await("the endpoints of the source that is gone have left", pair.AreJust(pair.Ready, easts[0].Address))
	if took := time.Since(begun); took < 30*time.Second {
		t.Errorf("they left after %s", took)
	}
	if n := f.WriteCount() - before; n != 1 {
		t.Errorf("that took %d writes, want 1", n)
	}
	f.AwaitEventOn(f.Service, "SourceExpired", "west", "30s")
	f.Must(f.all["west"].Start(f.Ctx()))
	f.Await("all serve again", pair.AreJust(pair.Ready, all...))
}

func TestSourcesWithOtherPorts(t *testing.T) {
	e2e.Long(t)
	f := enterSources(t, e2e.Options{
		Service: e2e.Annotated("source", "east,west", "ports.west", "30443"),
	}, func(all map[string]*pair.Source) {
		all["east"].Ports, all["west"].Ports = []string{"30080"}, []string{"30443", "30444"}
	}, plot{"east", 14, 1}, plot{"west", 15, 2})
	easts, wests := f.workers(1, 71, 1), f.workers(2, 71, 1)
	at := func(number uint16) *backend.Backend {
		f.T.Helper()
		b, err := backend.Start("west", netip.AddrPortFrom(wests[0].Address, number))
		f.Must(err)
		f.T.Cleanup(func() { f.Must(b.Close()) })
		return b
	}
	b := at(30443)
	f.Must(f.all["east"].Tell(easts...))
	f.Must(f.all["west"].Tell(wests...))
	f.StartWriters()
	both := pair.AreJust(pair.Ready, easts[0].Address, wests[0].Address)
	portsOf := func(want map[string]int32) func([]*discoveryv1.EndpointSlice) bool {
		return func(all []*discoveryv1.EndpointSlice) bool {
			for _, slice := range all {
				if number, known := want[slice.Labels["slicefeed.dev/source"]]; known &&
					(len(slice.Ports) != 1 || *slice.Ports[0].Port != number) {
					return false
				}
			}
			return both(all)
		}
	}
	f.Await("each source has its own port", portsOf(map[string]int32{"east": 30080, "west": 30443}))
	f.step("the probe uses it", func(f *sources) {
		f.Must(b.Set(backend.Refuse))
		f.Await("the one at the other port is not ready", pair.Are(pair.Out, wests[0].Address))
		f.Must(b.Set(backend.Serve))
		f.Await("both serve", both)
	})
	f.step("another port is one write", func(f *sources) {
		at(30444)
		before := f.WriteCount()
		f.Annotate(f.Service, "ports.west", "30444")
		f.Await("the new port is listed", portsOf(map[string]int32{"east": 30080, "west": 30444}))
		if n := f.WriteCount() - before; n != 1 {
			f.T.Errorf("that took %d writes, want 1", n)
		}
	})
	f.step("a port that the source does not allow changes nothing", func(f *sources) {
		f.Annotate(f.Service, "ports.west", "30445")
		f.AwaitEventOn(f.Service, "PortNotAllowed", "30445", "west")
		f.Await("the port is as it was", portsOf(map[string]int32{"east": 30080, "west": 30444}))
	})
}

func TestPortsFollowASourceOfKindService(t *testing.T) {
	e2e.Long(t)
	s := e2e.New(t, e2e.Options{
		Inventory: map[string]string{"SOURCE_KIND": "service", "SOURCE_SERVICE": e2e.Shop + "/" + e2e.Web},
		Writer:    map[string]string{"ALLOWED_PORTS": "30080-30090"},
		Service:   e2e.Annotated("ports", "from-source"),
	})
	s.CreateShop()
	w := s.Machine(pair.WorkerOptions{})
	b, err := backend.Start("other port", netip.AddrPortFrom(w.Address, 30081))
	s.Must(err)
	t.Cleanup(func() { s.Must(b.Close()) })
	s.PutShopSlice("web-a", discoveryv1.AddressTypeIPv4, 30081, e2e.Backing("web-0", w.Address, pair.Ready))
	s.StartAll()
	listsPort := func(number int32) func([]*discoveryv1.EndpointSlice) bool {
		return func(all []*discoveryv1.EndpointSlice) bool {
			return pair.AreJust(pair.Ready, w.Address)(all) && *all[0].Ports[0].Port == number
		}
	}
	s.Await("the source's port is listed", listsPort(30081))
	s.Step("a change of it is written", func(s *e2e.Setup) {
		s.PutShopSlice("web-a", discoveryv1.AddressTypeIPv4, 30080, e2e.Backing("web-0", w.Address, pair.Ready))
		s.Await("the new port is listed", listsPort(30080))
	})
	s.Step("one that is not allowed changes nothing", func(s *e2e.Setup) {
		s.PutShopSlice("web-a", discoveryv1.AddressTypeIPv4, 443, e2e.Backing("web-0", w.Address, pair.Ready))
		if note := s.AwaitEvent("SourceNotTrusted").Note; !strings.Contains(note, "port 443") {
			s.T.Errorf("the Event says %q", note)
		}
		s.Await("the port is as it was", listsPort(30080))
	})
}

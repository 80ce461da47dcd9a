package e2e

import (
	"net/netip"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestASourceThatStandsByTakesOverAndLeavesAgain(t *testing.T) {
	// The guard against too many departures would hold one of two for an hour.
	f := enterSources(t, script{
		writer:  map[string]string{"SHRINK_WINDOW": "1h"},
		service: annotated("source", "east", "failover", "west"),
	}, nil, plot{"east", 14, 1}, plot{"west", 15, 2})
	east, west := f.all["east"], f.all["west"]
	easts, wests := f.workers(1, 51, 2), f.workers(2, 51, 2)
	f.must(east.Tell(easts...))
	f.must(west.Tell(wests...))
	f.startWriters()
	f.slices("only the first source serves", pair.AreJust(pair.Ready, addresses(easts)...))
	f.step("one ready endpoint of the first source is enough", func(f *sources) {
		f.must(easts[0].Set(backend.Refuse))
		f.slices("the dead one is not ready", pair.Are(pair.Out, easts[0].Address))
		f.slices("none of the other source is listed", pair.Are(pair.Absent, addresses(wests)...))
	})
	f.step("without any, the other source takes over", func(f *sources) {
		f.must(easts[1].Set(backend.Refuse))
		f.slices("the other source serves", pair.Are(pair.Ready, addresses(wests)...))
		f.tells(f.service, "FailoverActive", "west")
	})
	long(t)
	f.step("it leaves when the first source has been back for a minute", func(f *sources) {
		for _, w := range easts {
			f.must(w.Set(backend.Serve))
		}
		f.slices("the first source serves again", pair.Are(pair.Ready, addresses(easts)...))
		if took := f.slices("the other source stands by", pair.AreJust(pair.Ready, addresses(easts)...)); took.Seconds() < 55 {
			f.t.Errorf("it left after %s", took)
		}
		f.tells(f.service, "FailoverOver", "west")
	})
}

func TestEndpointsOfASourceThatIsGoneExpire(t *testing.T) {
	f := enterSources(t, script{
		writer:  map[string]string{"SHRINK_WINDOW": "1h"},
		service: annotated("source", "east,west", "expire-after", "30s"),
	}, nil, plot{"east", 14, 1}, plot{"west", 15, 2})
	easts, wests := f.workers(1, 61, 1), f.workers(2, 61, 3)
	f.must(f.all["east"].Tell(easts...))
	f.must(f.all["west"].Tell(wests...))
	f.startWriters()
	all := append(addresses(easts), addresses(wests)...)
	f.slices("all serve", pair.AreJust(pair.Ready, all...))
	f.must(f.all["west"].Kill())
	before := f.writes()
	if took := f.slices(
		"the endpoints of the source that is gone have left",
		pair.AreJust(pair.Ready, easts[0].Address),
	); took.Seconds() < 25 {
		t.Errorf("they left after %s", took)
	}
	if n := f.writes() - before; n != 1 {
		t.Errorf("that took %d writes, want 1", n)
	}
	f.tells(f.service, "SourceExpired", "west", "30s")
	f.must(f.all["west"].Start(f.ctx()))
	f.slices("all serve again", pair.AreJust(pair.Ready, all...))
}

func TestSourcesWithOtherPorts(t *testing.T) {
	f := enterSources(t, script{
		service: annotated("source", "east,west", "ports.west", "30443"),
	}, func(all map[string]*pair.Source) {
		all["east"].Ports, all["west"].Ports = []string{"30080"}, []string{"30443", "30444"}
	}, plot{"east", 14, 1}, plot{"west", 15, 2})
	easts, wests := f.workers(1, 71, 1), f.workers(2, 71, 1)
	at := func(number uint16) *backend.Backend {
		f.t.Helper()
		b, err := backend.Start("west", netip.AddrPortFrom(wests[0].Address, number))
		f.must(err)
		f.t.Cleanup(func() { f.must(b.Close()) })
		return b
	}
	b := at(30443)
	f.must(f.all["east"].Tell(easts...))
	f.must(f.all["west"].Tell(wests...))
	f.startWriters()
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
	f.slices("each source has its own port", portsOf(map[string]int32{"east": 30080, "west": 30443}))
	f.step("the probe uses it", func(f *sources) {
		f.must(b.Set(backend.Refuse))
		f.slices("the one at the other port is not ready", pair.Are(pair.Out, wests[0].Address))
		f.must(b.Set(backend.Serve))
		f.slices("both serve", both)
	})
	f.step("another port is one write", func(f *sources) {
		at(30444)
		before := f.writes()
		f.annotate(f.service, "ports.west", "30444")
		f.slices("the new port is listed", portsOf(map[string]int32{"east": 30080, "west": 30444}))
		if n := f.writes() - before; n != 1 {
			f.t.Errorf("that took %d writes, want 1", n)
		}
	})
	f.step("a port that the source does not allow changes nothing", func(f *sources) {
		f.annotate(f.service, "ports.west", "30445")
		f.tells(f.service, "PortNotAllowed", "30445", "west")
		f.slices("the port is as it was", portsOf(map[string]int32{"east": 30080, "west": 30444}))
	})
}

func TestPortsFollowASourceOfKindService(t *testing.T) {
	s := enter(t, script{
		inventory: map[string]string{"SOURCE_KIND": "service", "SOURCE_SERVICE": shop + "/" + web},
		writer:    map[string]string{"ALLOWED_PORTS": "30080-30090"},
		service:   annotated("ports", "from-source"),
	})
	s.shopService()
	w := s.machine(pair.WorkerOptions{})
	b, err := backend.Start("other port", netip.AddrPortFrom(w.Address, 30081))
	s.must(err)
	t.Cleanup(func() { s.must(b.Close()) })
	s.shopSlice("web-a", discoveryv1.AddressTypeIPv4, 30081, backing("web-0", w.Address, pair.Ready))
	s.start()
	listsPort := func(number int32) func([]*discoveryv1.EndpointSlice) bool {
		return func(all []*discoveryv1.EndpointSlice) bool {
			return pair.AreJust(pair.Ready, w.Address)(all) && *all[0].Ports[0].Port == number
		}
	}
	s.slices("the source's port is listed", listsPort(30081))
	s.step("a change of it is written", func(s *stage) {
		s.shopSlice("web-a", discoveryv1.AddressTypeIPv4, 30080, backing("web-0", w.Address, pair.Ready))
		s.slices("the new port is listed", listsPort(30080))
	})
	s.step("one that is not allowed changes nothing", func(s *stage) {
		s.shopSlice("web-a", discoveryv1.AddressTypeIPv4, 443, backing("web-0", w.Address, pair.Ready))
		if note := s.event("SourceNotTrusted").Note; !strings.Contains(note, "port 443") {
			s.t.Errorf("the Event says %q", note)
		}
		s.slices("the port is as it was", listsPort(30080))
	})
}

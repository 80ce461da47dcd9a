package sources

import (
	"maps"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// sources is the fleet with inventories of other clusters. The pair's own does not run.
type sources struct {
	*e2e.Setup

	all map[string]*pair.Source
}

// plot is where a source is, and which third byte its workers' addresses have.
type plot struct {
	name string
	last byte // of the inventory's address
	net  byte
}

// enterSources starts these sources, which report nothing yet. Set changes what the writers know of them.
func enterSources(t *testing.T, options e2e.Options, set func(map[string]*pair.Source), plots ...plot) *sources {
	t.Helper()
	writer := map[string]string{"INVENTORY_ADDRESS": "", "INVENTORY_SAN": "", "SECURED_SUBNET_CIDR": ""}
	maps.Copy(writer, options.Writer)
	options.Writer = writer
	f := &sources{Setup: e2e.NewLabeled(t, options), all: map[string]*pair.Source{}}
	var listed []*pair.Source
	for _, p := range plots {
		source, err := f.AddSource(p.name, netip.AddrFrom4([4]byte{10, 0, 0, p.last}), netip.PrefixFrom(f.address(p.net, 0), 24).String())
		f.Must(err)
		f.all[p.name] = source
		listed = append(listed, source)
		f.Must(source.Start(f.Ctx()))
		t.Cleanup(func() {
			if err := source.Kill(); err != nil {
				t.Errorf("%s did not live to the end of the test: %v", source.Component.Name, err)
			}
			f.CheckLog(source.Component)
		})
	}
	if set != nil {
		set(f.all)
	}
	file := filepath.Join(t.TempDir(), "sources.yaml")
	f.WriteFile(file, pair.SourcesFile(listed...))
	for _, w := range f.Writers {
		f.With(w, map[string]string{"SOURCES_FILE": file})
	}
	return f
}

func (f *sources) step(name string, play func(*sources)) {
	f.T.Helper()
	f.Step(name, func(inner *e2e.Setup) { play(&sources{Setup: inner, all: f.all}) })
}

func (f *sources) address(net, host byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 1, net, host})
}

// workers are machines that answer, in that net, from that host on.
func (f *sources) workers(net, from byte, n int) []*pair.Worker {
	f.T.Helper()
	var all []*pair.Worker
	for i := range byte(n) {
		all = append(all, f.Machine(pair.WorkerOptions{Address: f.address(net, from+i)}))
	}
	return all
}

// labels are the addresses of a Service by the source that its slices name.
func labels(all []*discoveryv1.EndpointSlice) map[string]string {
	by := map[string][]*discoveryv1.EndpointSlice{}
	for _, slice := range all {
		source := slice.Labels["slicefeed.dev/source"]
		by[source] = append(by[source], slice)
	}
	lines := map[string]string{}
	for source, slices := range by {
		if line := pair.Describe(slices); line != "no endpoints" {
			lines[source] = line
		}
	}
	return lines
}

// sourceOf names a metric of a source.
func sourceOf(metric, source string) string {
	return `slicefeed_writer_source_` + metric + `{source="` + source + `"}`
}

func TestSeveralSourcesAreAUnionAndEachHarmsOnlyItsOwn(t *testing.T) {
	f := enterSources(t, e2e.Options{Service: e2e.Annotated("source", "east,north,west")}, nil, plot{"east", 14, 1}, plot{"west", 15, 2},
		plot{"north", 16, 3})
	east, west, north := f.all["east"], f.all["west"], f.all["north"]
	easts, wests, norths := f.workers(1, 1, 3), f.workers(2, 1, 3), f.workers(3, 1, 1)
	f.Must(east.Tell(easts[:2]...))
	f.Must(west.Tell(wests...))
	f.Must(north.Tell(norths...))
	f.StartWriters()
	writer := f.Writers[0]
	theirs := append(e2e.Addresses(wests), norths[0].Address)
	// goesOn proves that the writer does: east's third worker comes and goes.
	goesOn := func(f *sources) {
		f.T.Helper()
		f.Must(east.Tell(easts...))
		f.Await("a new one of another source serves", pair.Are(pair.Ready, e2e.Addresses(easts)...))
		f.Must(east.Tell(easts[:2]...))
		f.Await("it is gone again", pair.Are(pair.Absent, easts[2].Address))
	}
	stay := func(f *sources) {
		f.T.Helper()
		if !pair.Are(pair.Ready, theirs...)(f.Now()) {
			f.T.Errorf("they are not as they were: %s", pair.Describe(f.Now()))
		}
	}
	f.step("all of all sources serve, each in a slice of its source", func(f *sources) {
		f.Await("all serve", pair.AreJust(pair.Ready, append(e2e.Addresses(easts[:2]), theirs...)...))
		want := map[string]string{
			"east": "10.1.1.1 ready, 10.1.1.2 ready", "north": "10.1.3.1 ready", "west": "10.1.2.1 ready, 10.1.2.2 ready, 10.1.2.3 ready",
		}
		if diff := cmp.Diff(want, labels(f.Now())); diff != "" {
			f.T.Error(diff)
		}
		goesOn(f)
	})
	f.step("the endpoints of one that dies stay, and the data plane still judges them", func(f *sources) {
		f.Must(west.Kill())
		f.AwaitMetric(writer, sourceOf("connected", "west"), e2e.Equals(0))
		goesOn(f)
		stay(f)
		f.Must(wests[0].Set(backend.Refuse))
		f.Await("one that does not answer is out", pair.Are(pair.Out, wests[0].Address))
		f.Must(wests[0].Set(backend.Serve))
		f.Await("it is back", pair.Are(pair.Ready, wests[0].Address))
		f.Must(west.Start(f.Ctx()))
		f.AwaitMetric(writer, sourceOf("synced", "west"), e2e.Equals(1))
		stay(f)
	})
	f.step("those of one that is frozen and of one that is cut off stay", func(f *sources) {
		f.Must(west.Signal(syscall.SIGSTOP))
		f.Must(netns.DelAddr(north.Address))
		f.AwaitMetric(writer, sourceOf("connected", "west"), e2e.Equals(0))
		f.AwaitMetric(writer, sourceOf("connected", "north"), e2e.Equals(0))
		goesOn(f)
		stay(f)
		f.AwaitEventOn(f.Service, "SourceNotTrusted", "west")
		f.AwaitEventOn(f.Service, "SourceNotTrusted", "north")
		f.Must(west.Signal(syscall.SIGCONT))
		f.Must(netns.AddAddr(north.Address))
		f.AwaitMetric(writer, sourceOf("synced", "west"), e2e.Equals(1))
		f.AwaitMetric(writer, sourceOf("synced", "north"), e2e.Equals(1))
		f.Must(west.Tell(wests[:2]...))
		theirs = append(e2e.Addresses(wests[:2]), norths[0].Address)
		f.Await("it counts again", pair.Are(pair.Absent, wests[2].Address))
		stay(f)
	})
	f.step("garbage changes nothing", func(f *sources) {
		f.Must(west.TellText(`[{"name":"w","private_ip":"10.1.2.9","ready":tr`))
		f.AwaitMetric(west.Component, e2e.PartSynced("membership"), e2e.Equals(0))
		goesOn(f)
		stay(f)
		f.Must(west.Tell(wests[:2]...))
		f.AwaitMetric(west.Component, e2e.PartSynced("membership"), e2e.Equals(1))
	})
	f.step("one that reports another's addresses adds none, and takes nothing from it", func(f *sources) {
		lie := []pair.Record{
			{Name: wests[0].Name, Address: wests[0].Address, Ready: true, Worker: true},
			{Name: wests[1].Name, Address: wests[1].Address, Ready: true, Worker: true},
		}
		lie = append(lie, pair.Record{Name: "x", Address: easts[2].Address, Ready: true, Worker: true},
			pair.Record{Name: "y", Address: easts[0].Address, Worker: true})
		f.Must(west.TellRecords(lie...))
		f.T.Log(f.AwaitEventOn(f.Service, "AddressNotAllowed", "west", "2 addresses", easts[0].Address.String()).Note)
		f.Await("nothing came of it", pair.AreJust(pair.Ready, append(e2e.Addresses(easts[:2]), theirs...)...))
		f.Must(west.Tell(wests[:2]...))
		f.AwaitMetric(writer, sourceOf("members", "west"), e2e.Equals(2))
	})
	f.step("one that reports that it is empty counts later, and for its own only", func(f *sources) {
		start := time.Now()
		f.Must(west.Tell())
		f.T.Log(f.AwaitEventOn(f.Service, "SourceEmpty", "west").Note)
		stay(f)
		f.Await("its own are gone", pair.AreJust(pair.Ready, easts[0].Address, easts[1].Address, norths[0].Address))
		took := time.Since(start)
		if f.Saw(start, e2e.NameOf(f.Service), func(all []*discoveryv1.EndpointSlice) bool {
			return !pair.Are(pair.Ready, easts[0].Address, easts[1].Address, norths[0].Address)(all)
		}) {
			f.T.Error("others were touched")
		}
		if took < 4*time.Second {
			f.T.Errorf("that counted after %s", took)
		}
	})
}

func TestASourceThatAServiceNoLongerNamesIsLeftAtOnce(t *testing.T) {
	e2e.Long(t)
	// Not even the guard against too many leaving holds that up: it is our own wish.
	f := enterSources(t, e2e.Options{Writer: map[string]string{"SHRINK_WINDOW": "1h"}, Service: e2e.Annotated("source", "east, west")}, nil,
		plot{"east", 14, 1}, plot{"west", 15, 2})
	easts, wests := f.workers(1, 11, 1), f.workers(2, 11, 3)
	f.Must(f.all["east"].Tell(easts...))
	f.Must(f.all["west"].Tell(wests...))
	f.StartWriters()
	f.Await("all serve", pair.AreJust(pair.Ready, append(e2e.Addresses(easts), e2e.Addresses(wests)...)...))
	f.Must(f.all["west"].Kill()) // it need not even be there
	f.Annotate(f.Service, "source", "east")
	f.Await("west's are gone", pair.AreJust(pair.Ready, easts[0].Address))
	f.Must(f.all["west"].Start(f.Ctx()))
	f.Annotate(f.Service, "source", "east,west")
	f.Await("all serve again", pair.AreJust(pair.Ready, append(e2e.Addresses(easts), e2e.Addresses(wests)...)...))
}

func TestAnAddressOfTwoSourcesIsWrittenOnce(t *testing.T) {
	e2e.Long(t)
	f := enterSources(t, e2e.Options{Service: e2e.Annotated("source", "east,west")}, func(all map[string]*pair.Source) {
		all["west"].CIDRs = all["east"].CIDRs
	}, plot{"east", 14, 1}, plot{"west", 15, 2})
	east, west := f.all["east"], f.all["west"]
	both := f.workers(1, 21, 2)
	f.Must(east.Tell(both...))
	f.Must(west.Tell(both...))
	// Were both inventories up, the writer could sync with the second one between the first probe results
	// of the two addresses, and each source would own one of them.
	f.Must(west.Kill())
	f.StartWriters()
	ready := pair.AreJust(pair.Ready, e2e.Addresses(both)...)
	whose := func(want map[string]string) func([]*discoveryv1.EndpointSlice) bool {
		return func(all []*discoveryv1.EndpointSlice) bool { return ready(all) && cmp.Equal(want, labels(all)) }
	}
	first, second, one, two := east, west, "east", "west"
	eastHasBoth := whose(map[string]string{one: both[0].Address.String() + " ready, " + both[1].Address.String() + " ready"})
	f.Await("the first has both", eastHasBoth)
	// Another watch than f.slices has: it may still show the Service's first slices, with one address.
	_, err := f.WaitOf(f.Ctx(), time.Now(), e2e.NameOf(f.Service), eastHasBoth)
	f.Must(err)
	began := time.Now()
	f.ExpectNoWrites(func() {
		f.Must(west.Start(f.Ctx()))
		f.AwaitMetric(f.Writers[0], sourceOf("members", two), e2e.Equals(2))
	})
	f.Await("the first still has both", eastHasBoth)

	f.step("the other's report of it does not count", func(f *sources) {
		f.ExpectNoWrites(func() {
			f.Must(second.TellRecords(
				pair.Record{Name: both[0].Name, Address: both[0].Address, Worker: true},
				pair.Record{Name: both[1].Name, Address: both[1].Address, Worker: true},
			))
			f.AwaitMetric(second.Component, e2e.PartSynced("membership"), e2e.Equals(1))
			f.Must(second.Tell(both[1]))
			f.AwaitMetric(f.Writers[0], sourceOf("members", two), e2e.Equals(1))
		})
	})
	f.step("what the one leaves out and the other tells moves to it without a gap", func(f *sources) {
		f.Must(first.Tell(both[0]))
		f.Await("it has moved",
			whose(map[string]string{one: both[0].Address.String() + " ready", two: both[1].Address.String() + " ready"}))
		if f.Saw(
			began,
			e2e.NameOf(f.Service),
			func(all []*discoveryv1.EndpointSlice) bool { return len(all) > 0 && !listsAll(all, both) },
		) {
			f.T.Error("there was a gap")
		}
	})
}

// listsAll tells slices in which each of these is ready somewhere: an address that moves is in
// two of them for a moment.
func listsAll(all []*discoveryv1.EndpointSlice, workers []*pair.Worker) bool {
	for _, w := range workers {
		found := false
		for _, slice := range all {
			found = found || pair.Conditions([]*discoveryv1.EndpointSlice{slice})[w.Address] == pair.Ready
		}
		if !found {
			return false
		}
	}
	return true
}

func TestEachSourceHasItsOwnAllowlist(t *testing.T) {
	e2e.Long(t)
	f := enterSources(t, e2e.Options{
		Writer:  map[string]string{"WATCH_NAMESPACES": pair.Namespace + "," + pair.OtherNamespace},
		Service: e2e.Annotated("source", "east"),
	}, func(all map[string]*pair.Source) {
		all["west"].Namespaces, all["west"].Ports = []string{pair.OtherNamespace}, []string{"30443", "31000-31999"}
	}, plot{"east", 14, 1}, plot{"west", 15, 2})
	f.Must(f.OpenNamespace(f.Ctx(), pair.OtherNamespace))
	easts, wests := f.workers(1, 31, 1), f.workers(2, 31, 1)
	b, err := backend.Start("west-https", netip.AddrPortFrom(wests[0].Address, 30443))
	f.Must(err)
	t.Cleanup(func() { f.Must(b.Close()) })
	f.Must(f.all["east"].Tell(easts...))
	f.Must(f.all["west"].Tell(wests...))
	at30443 := func(service *corev1.Service) {
		service.Spec.Ports = []corev1.ServicePort{e2e.PortTo("https", corev1.ProtocolTCP, 443, 30443)}
	}
	there := e2e.InNamespace(pair.OtherNamespace)
	services := map[string]*corev1.Service{
		"nothing is said":          f.CreateService(e2e.NewLabeledService("unsaid")),
		"a namespace of no right":  f.CreateService(e2e.NewLabeledService("here", e2e.Annotated("source", "west"), at30443)),
		"a port of no right":       f.CreateService(e2e.NewLabeledService("port", e2e.Annotated("source", "west"), there)),
		"a port of the other only": f.CreateService(e2e.NewLabeledService("ports", e2e.Annotated("source", "east,west"), there)),
		"no such source":           f.CreateService(e2e.NewLabeledService("nowhere", e2e.Annotated("source", "south,east"))),
	}
	right := f.CreateService(e2e.NewLabeledService("right", e2e.Annotated("source", "west"), there, at30443))
	f.StartWriters()
	f.Await("east's is served", pair.AreJust(pair.Ready, easts[0].Address))
	f.AwaitOf(right, "west's is served", pair.AreJust(pair.Ready, wests[0].Address))
	for _, one := range []struct {
		name, reason string
		says         []string
	}{
		{"nothing is said", "SourceRequired", []string{"slicefeed.dev/source", "east; west"}},
		{"a namespace of no right", "NamespaceNotAllowed", []string{"namespace web", "west"}},
		{"a port of no right", "PortNotAllowed", []string{"Port 30080", "west"}},
		{"a port of the other only", "PortNotAllowed", []string{"Port 30080", "west"}},
		{"no such source", "UnknownSource", []string{`"south"`, "east; west"}},
	} {
		f.step(one.name, func(f *sources) {
			f.T.Log(f.AwaitEventOn(services[one.name], one.reason, one.says...).Note)
			if !e2e.None(f.SlicesOf(services[one.name])) {
				f.T.Errorf("it has slices: %s", pair.Describe(f.SlicesOf(services[one.name])))
			}
		})
	}
	f.step("with its one annotation it is served", func(f *sources) {
		f.Annotate(services["nothing is said"], "source", "east")
		f.AwaitOf(services["nothing is said"], "it is served", pair.AreJust(pair.Ready, easts[0].Address))
	})
	f.step("a name that turns wrong later changes nothing", func(f *sources) {
		before := f.VersionsOf(right)
		f.Annotate(right, "source", "south")
		f.AwaitEventOn(right, "UnknownSource", `"south"`)
		if diff := cmp.Diff(before, f.VersionsOf(right)); diff != "" {
			f.T.Errorf("its slices were touched: %s", diff)
		}
		f.Annotate(right, "source", "west")
	})
}

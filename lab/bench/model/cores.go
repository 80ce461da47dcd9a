package model

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"syscall"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
	"github.com/slicefeed/slicefeed/services/inventory/observe"
	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
	"google.golang.org/protobuf/proto"
)

// pure measures the product's pure cores with so many nodes. Each change goes all the way: roster,
// feed, message, view.
func (in *Inputs) pure(nodes int) {
	f := in.fleet(nodes)
	whole := f.messages(nil)
	bytes := 0
	for _, m := range whole {
		bytes += proto.Size(m)
	}
	in.WireNode = float64(bytes) / float64(nodes)
	at := f.store.Since(nil).At

	const many, times = 200, 21
	view := subscriber.NewMirror()
	view.BeginStream()
	in.ViewBytes = grown(func() { follow(view, f.now, whole) }) / float64(nodes)
	in.NodeEvent = took(func() {
		for range many {
			f.toggle()
		}
	}) / many
	var changes []*inventoryv1.WatchNodesResponse
	for range many {
		f.toggle()
		changes = append(changes, f.messages(&at)...)
		at = f.store.Since(&at).At
	}
	in.Apply = took(func() { follow(view, f.now, changes) }) / many / float64(nodes)
	in.WireChange = float64(proto.Size(changes[0]) + framing)
	in.WireBeat = float64(proto.Size(f.messages(&at)[0]) + framing)
	in.Listing = median([]float64{took(f.list), took(f.list), took(f.list)}) / float64(nodes) * 1000
	in.decide(nodes, times)
}

// framing is what gRPC, HTTP/2 and TLS add to a message of one frame.
const framing = 5 + 9 + 22

// fleet is an inventory's cores with a cloud of so many servers, told.
type fleet struct {
	now       time.Time
	publisher collector.Publisher
	store     *feed.Store
	nodes     []source.Candidate
	cloud     source.Listing
}

func (in *Inputs) fleet(nodes int) *fleet {
	f := &fleet{now: time.Now()}
	in.RosterBytes = grown(func() {
		f.publisher = collector.Publisher{
			Roster: roster.New(roster.Config{Method: resolve.ByCloud, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}),
			Stores: feed.NewStores("epoch"),
		}
		f.store = f.publisher.Stores.Acquire(feed.View{Labels: []string{"pool"}})
		for i := range nodes {
			id := fmt.Sprintf("%08x-0000-4000-8000-000000000000", i)
			f.nodes = append(f.nodes, source.Candidate{
				Name: fmt.Sprintf("standardnodes-%06x", i), UID: id, ProviderID: "ionos://" + id, SystemUUID: id, State: source.Ready,
				Zone: "AUTO", Region: "de-fra", Labels: map[string]string{"pool": "blue", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": id},
			})
			f.cloud.Servers = append(f.cloud.Servers, source.Server{ID: id, Datacenter: "0dc00000-0000-4000-8000-000000000000", NICs: []source.NIC{{
				ID: id, LAN: "2", Addresses: []netip.Addr{address(i)},
			}}})
		}
		f.apply(roster.Update{
			Source:       source.Update{Changed: f.nodes, LastContact: f.now, Verified: 1},
			Verification: &observe.VerificationResult{StartedAt: f.now, Mode: source.FullVerification, Number: 1},
		})
		f.list()
	}) / float64(nodes)
	return f
}

func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

func (f *fleet) list() {
	f.apply(roster.Update{Listing: &observe.ListingResult{StartedAt: f.now, Listing: f.cloud}})
}

// apply is what the collector does with an update.
func (f *fleet) apply(update roster.Update) {
	f.publisher.Publish(f.now, f.publisher.Roster.Apply(f.now, update))
}

// toggle has one node be Ready no more, or again.
func (f *fleet) toggle() {
	one := &f.nodes[len(f.nodes)/2]
	one.State = source.Ready + source.NotReady - one.State
	f.now = f.now.Add(time.Second)
	f.apply(roster.Update{Source: source.Update{Changed: []source.Candidate{*one}, LastContact: f.now, Verified: 1}})
}

func (f *fleet) messages(from *feed.Position) []*inventoryv1.WatchNodesResponse {
	return slices.Collect(nodeserver.Messages(f.store.Since(from), func() time.Time { return f.now }))
}

func follow(view *subscriber.Mirror, now time.Time, messages []*inventoryv1.WatchNodesResponse) {
	for _, m := range messages {
		if _, err := view.Apply(now, m); err != nil {
			panic(err) // our own two halves do not understand each other
		}
	}
}

// decide measures a decision on a Service with all nodes, and its plan.
func (in *Inputs) decide(nodes, times int) {
	now := time.Now()
	source := verdict.Source{
		Name: "default", EverSynced: true, Connected: true, MembershipSynced: true, MembershipSyncedAt: now, Epoch: "epoch", Observation: 1, ObservationAt: now,
		Allowlist: verdict.Allowlist{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	}
	given := verdict.Input{Limits: verdict.Limits{ListUnready: true, Probing: true, ShrinkWindow: time.Minute}, LeadingSince: now.Add(-time.Hour)}
	desired := planner.Desired{
		Namespace: "web", Service: "shop", FirstName: "shop-slicefeed", ManagedBy: "slicefeed-default", Writer: "slicefeed",
		Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(30080))}},
	}
	for i := range nodes {
		at := address(i)
		source.Members = append(source.Members, verdict.Member{Address: at, Name: fmt.Sprintf("standardnodes-%06x", i), State: verdict.Ready, Since: now})
		given.Probes = append(given.Probes, verdict.Probe{Address: at, Status: verdict.Passing, Since: now, RunStart: now, RunLast: now})
		given.Current = append(given.Current, verdict.CurrentEndpoint{Address: at, Source: "default", Conditions: verdict.Conditions{Ready: true, Serving: true}})
		desired.Endpoints = append(desired.Endpoints, planner.Endpoint{Address: at, Ready: true, Serving: true})
	}
	given.Sources = []verdict.Source{source}
	all := planner.Compute(desired, nil).Create
	in.SliceBytes = float64(all[0].Size())
	desired.Endpoints[nodes/2].Ready = false

	var memory verdict.Memory
	var decided, planned []float64
	for range times {
		decided = append(decided, took(func() { memory, _ = verdict.Decide(memory, given, now) }))
		planned = append(planned, took(func() { planner.CurrentEndpoints(desired, all); planner.Compute(desired, all) }))
	}
	in.Decide, in.Plan = median(decided)/float64(nodes), median(planned)/float64(nodes)
}

// median is what others on the machine disturb least.
func median(of []float64) float64 { return slices.Sorted(slices.Values(of))[len(of)/2] }

// took is the CPU time that something takes, in microseconds, with what the garbage collector
// computes meanwhile: whatever else runs on the machine, nothing else does in this process.
func took(do func()) float64 {
	before := computed()
	do()
	return micro(computed() - before)
}

func computed() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // of ourselves: it cannot fail
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func micro(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// grown is by how many bytes the live heap has grown by something.
func grown(by func()) float64 {
	live := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := live()
	by()
	return live() - before
}

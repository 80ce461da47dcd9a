// Package model says what the pair would take at sizes that no machine of ours has: on paper, from
// costs that it measures on the product's own cores at 50,000 nodes and on the inventory's own
// program with a crowd of subscribers, and by a simulation of a tree of relays. It promises that each
// figure follows from those costs and from the assumptions that it states, and that its prediction
// is held against a measurement. It refuses to be more exact than that.
package model

import (
	"fmt"
	"math"
	"time"
)

// Size is how much there is.
type Size struct{ Nodes, Subscribers float64 }

func (s Size) String() string { return fmt.Sprintf("%s × %s", count(s.Nodes), count(s.Subscribers)) }

// sizes are those of the tables.
func sizes() (all []Size) {
	for _, nodes := range []float64{1e3, 5e3, 50e3} {
		for _, subscribers := range []float64{1e3, 10e3, 100e3} {
			all = append(all, Size{nodes, subscribers})
		}
	}
	return all
}

// What the contract and the product say.
const (
	heartbeat     = 5.0       // s
	observation   = 60.0      // s: each is told to all
	connectionAge = 1800.0    // s
	perName       = 16.0      // connections of one SAN
	pageSize      = 1000.0    // servers of one answer of the cloud
	budget        = 120.0     // requests to the cloud a minute
	interval      = 60.0      // s between two listings
	viewNodes     = 100_000.0 // nodes that a subscriber holds at most
	inFlight      = 384.0     // probes of one source at a time
	probeEvery    = 2.0       // s
	probeTimeout  = 1.0       // s
	perSlice      = 100.0
)

// What we assume. None of it could be measured here.
const (
	cores       = 8.0  // of the machine that an inventory or a writer has
	busy        = 0.5  // share of them that may be busy, so that a change need not wait
	memory      = 16e9 // bytes
	wire        = 10e9 // bits a second
	files       = 1 << 20
	pageTakes   = 2.0       // s until the cloud has answered for a page of 1,000 servers
	lanTakes    = 0.2       // s until it has answered for a LAN
	lanHolds    = 244.0     // addresses that IONOS hands out on a private LAN, a /24 from .10 on
	testedNodes = 5000.0    // of one cluster
	nodeObject  = 15e3      // bytes
	nodeStatus  = 300.0     // s between two reports of a kubelet that nothing has changed
	sliceWrites = 620.0     // updates of slices of 100 that an API server takes a second, with its etcd on 2 cores
	proxies     = 1000.0    // consuming nodes, each with a kube-proxy
	lives       = 7 * 86400 // s that a node lives until it is replaced
	tells       = 6.0       // changes that a replacement makes: it comes, is Ready, another drains, is not Ready, goes, and one more
	back        = 4.0       // s within which all subscribers come back after a restart
)

// Use is how much of a limit a size takes: 1 is all of it.
type Use struct {
	Limit string // what is limited, and by what
	Of    func(*Inputs, Size) float64
	Way   string // what helps
}

// changes is how many changes of the set there are a second.
func changes(s Size) float64 { return s.Nodes * tells / lives }

// CPU is how many cores an inventory with all the subscribers takes at rest.
func (in *Inputs) CPU(s Size) float64 {
	told := changes(s) + 1/observation
	beats := max(0, 1/heartbeat-told)
	each := told*in.Change + beats*in.Beat + in.Arrive/connectionAge
	return (s.Subscribers*each + (changes(s)+s.Nodes/nodeStatus)*in.NodeEvent + s.Nodes/pageSize*in.Listing/interval) / 1e6
}

// Memory is what an inventory with all the subscribers has resident, in bytes. Go's collector lets the
// heap grow to twice of what lives.
func (in *Inputs) Memory(s Size) float64 {
	return in.Base*1e6 + 2*s.Nodes*in.RosterBytes + s.Subscribers*in.Stream*1024
}

// Egress is what an inventory sends at rest, in bits a second.
func (in *Inputs) Egress(s Size) float64 {
	told := changes(s) + 1/observation
	return 8 * s.Subscribers * (told*in.WireChange + max(0, 1/heartbeat-told)*in.WireBeat)
}

// Return is how long it takes until all subscribers are back after a restart, in seconds: with the
// digest that they hold, and when each reads the whole set.
func (in *Inputs) Return(s Size) (digest, reset float64) {
	arrive := in.Arrive / 1e6
	whole := arrive + s.Nodes/1000*in.Reset/1e6
	bytes := s.Nodes * in.WireNode
	return max(back, s.Subscribers*arrive/cores), max(back, s.Subscribers*whole/cores, 8*s.Subscribers*bytes/wire)
}

// untorn is how likely a listing of the cloud is to be whole. Pages are by position: a server that
// comes or goes in what has been read already shifts the rest, and the reading is begun once more.
func untorn(s Size) float64 {
	takes := listing(s)
	torn := 1 - math.Exp(-2*s.Nodes/lives*takes/2*(1-1/pages(s)))
	return 1 - torn*torn
}

func pages(s Size) float64 { return math.Floor(s.Nodes/(pageSize-1)) + 1 } // they overlap by one server

// listing is how long the pages of a listing take, in seconds.
func listing(s Size) float64 { return s.Nodes / (pageSize - 1) * pageTakes }

// lans are those that it takes.
func lans(s Size) float64 { return math.Ceil(s.Nodes / lanHolds) }

// Decision is how long a writer takes to decide on a Service with all nodes after a change, and to
// plan the write, in microseconds.
func (in *Inputs) Decision(s Size) float64 { return s.Nodes * (in.Apply + in.Decide + in.Plan) }

// uses are all limits, in the order of the flow.
var uses = []Use{
	{
		"secured API server: nodes of one cluster, as Kubernetes is tested", func(_ *Inputs, s Size) float64 { return s.Nodes / testedNodes },
		"several clusters or API servers, each with an inventory: a source each at the writer",
	},
	{
		"cloud: addresses that one private LAN hands out", func(_ *Inputs, s Size) float64 { return s.Nodes / lanHolds },
		"several (datacenter, LAN) pairs, which one inventory reads",
	},
	{
		"cloud: a listing within the interval of 60 s", func(_ *Inputs, s Size) float64 { return (listing(s) + lans(s)*lanTakes) / interval },
		"an inventory for each datacenter, so that each lists its own",
	},
	{
		"cloud: at most one listing in a hundred torn twice", func(_ *Inputs, s Size) float64 { return (1 - untorn(s)) / 0.01 },
		"an inventory for each datacenter: a tenth of the servers tear a hundredth as often",
	},
	{
		"cloud: requests a minute", func(_ *Inputs, s Size) float64 { return (pages(s) + lans(s)) / budget },
		"IONOS_REQUEST_BUDGET; fewer, larger LANs",
	},
	{"inventory: CPU at rest, half of 8 cores", func(in *Inputs, s Size) float64 { return in.CPU(s) / (cores * busy) }, "replicas, then relays"},
	{"inventory: memory, 16 GB", func(in *Inputs, s Size) float64 { return in.Memory(s) / memory }, "replicas, then relays"},
	{"inventory: egress at rest, 10 Gbit/s", func(in *Inputs, s Size) float64 { return in.Egress(s) / wire }, "replicas, then relays"},
	{"inventory: open files", func(_ *Inputs, s Size) float64 { return s.Subscribers / files }, "replicas, then relays"},
	{"inventory: all back within a minute of a restart, by digest", func(in *Inputs, s Size) float64 {
		d, _ := in.Return(s)
		return d / 60
	}, "replicas, then relays"},
	{"inventory: all back within five minutes, each reading the whole set", func(in *Inputs, s Size) float64 {
		_, r := in.Return(s)
		return r / 300
	}, "replicas, then relays"},
	{"writer: nodes of one source", func(_ *Inputs, s Size) float64 { return s.Nodes / viewNodes }, "a source for each pool"},
	{"writer: CPU of probes, half of 8 cores", func(in *Inputs, s Size) float64 {
		return s.Nodes / probeEvery * in.Probe / 1e6 / (cores * busy)
	}, "writers for some namespaces each; a longer interval"},
	{
		"writer: probes at a time, when a tenth of all backends is silent", func(_ *Inputs, s Size) float64 { return 0.1 * s.Nodes / probeEvery * probeTimeout / inFlight },
		"writers for some namespaces each; a longer interval or a shorter timeout",
	},
	{"writer: CPU of decisions on one Service, one core", func(in *Inputs, s Size) float64 { return changes(s) * in.Decision(s) / 1e6 }, "node selectors: a Service needs few of them"},
	{"consuming API server: writes of one Service's slices", func(_ *Inputs, s Size) float64 { return changes(s) / sliceWrites }, "node selectors"},
	{"consuming API server: slices to 1,000 kube-proxies, 10 Gbit/s", func(in *Inputs, s Size) float64 {
		return 8 * changes(s) * in.SliceBytes * proxies / wire
	}, "node selectors"},
}

// threshold is the size up to which a limit holds: so many nodes, or, where those do not matter,
// so many subscribers of a set of so many nodes.
func (in *Inputs) threshold(u Use, nodes float64) (at float64, of string) {
	within := func(s Size) bool { return u.Of(in, s) <= 1 }
	if u.Of(in, Size{nodes, 1e3}) == u.Of(in, Size{nodes, 1e6}) {
		return most(func(n float64) bool { return within(Size{n, 1e3}) }), "nodes"
	}
	return most(func(n float64) bool { return within(Size{nodes, n}) }), "subscribers"
}

// most is the greatest number for which it is so, up to 100 million.
func most(so func(float64) bool) float64 {
	low, high := 0.0, 1e8
	for high-low > 1 {
		if middle := math.Floor((low + high) / 2); so(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

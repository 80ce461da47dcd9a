package faults

import (
	"net/netip"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// The edges, as the table names them.
const (
	toSecured   = "inventory → secured API"
	toCloud     = "inventory → IONOS"
	toInventory = "writers → inventory"
	toSecond    = "writers → second inventory"
	toConsuming = "writers → consuming API"
	toBackends  = "probers → backends"
)

// The toxics, by what people call them.
var (
	slow       = Toxic{Kind: "latency", Attributes: map[string]int{"latency": 300}}
	verySlow   = Toxic{Kind: "latency", Attributes: map[string]int{"latency": 2000}}
	jittery    = Toxic{Kind: "latency", Attributes: map[string]int{"latency": 150, "jitter": 150}}
	narrow     = Toxic{Kind: "bandwidth", Attributes: map[string]int{"rate": 1}} // KB/s
	stuck      = Toxic{Kind: "bandwidth", Attributes: map[string]int{"rate": 0}}
	resets     = Toxic{Kind: "reset_peer", Attributes: map[string]int{"timeout": 0}}
	blackHole  = Toxic{Kind: "timeout", Attributes: map[string]int{"timeout": 0}}
	slowClose  = Toxic{Kind: "slow_close", Attributes: map[string]int{"delay": 5000}}
	sliced     = Toxic{Kind: "slicer", Attributes: map[string]int{"average_size": 7, "size_variation": 3, "delay": 100}}     // microseconds
	chopped    = Toxic{Kind: "slicer", Attributes: map[string]int{"average_size": 200, "size_variation": 100, "delay": 100}} // for long answers
	torn       = Toxic{Kind: "limit_data", Attributes: map[string]int{"bytes": 2000}}                                        // in the middle of the TLS handshake
	shortLived = Toxic{Kind: "limit_data", Attributes: map[string]int{"bytes": 20000}}                                       // a few answers
)

// sent is the same toxic on what the half sends.
func (t Toxic) sent() Toxic {
	t.Upstream = true
	return t
}

// everywhere is where anything is that our halves have to do with.
var everywhere = netip.MustParsePrefix("10.0.0.0/8")

// panicWrites is what failing probes of all six endpoints are worth at most. The fault does not begin or end for all
// of them at the same moment: a failure counts if another endpoint still passes, or passes already. Then this one goes
// out, and comes back.
const panicWrites = 16

// subnets are where all backends are.
var subnets = []netip.Prefix{netip.MustParsePrefix(pair.Subnet), netip.MustParsePrefix(secondSubnet)}

// How long the way back may take: the halves' own pauses between attempts, and some room for a
// machine that does everything at once.
const (
	back    = 20 * time.Second // of API servers: client-go, and a Lease that has to expire
	rejoins = 25 * time.Second // of the link: three missed heartbeats, an attempt to connect of 4 s, and a delay of 4 s (rule R14)
	onward  = 10 * time.Second // where progress is promised, though each answer comes late
	noticed = 4 * time.Second  // a dead backend, by the probes alone
	deposed = takeover + noticed
)

func networkRows() []Row {
	return slices.Concat(securedRows(), cloudRows(), linkRows(), secondRows(), consumingRows(), backendRows(), togetherRows())
}

// on gives rows the part that they are about, and how long the truth may take when that is mended.
func on(part string, within time.Duration, rows ...Row) []Row {
	for i := range rows {
		rows[i].Part, rows[i].Within = part, within
	}
	return rows
}

func securedRows() []Row {
	at := atSecured
	return on(toSecured, back,
		Row{Name: "the secured API refuses connections, and a node joins", Fault: down(at), Meanwhile: Joins},
		Row{Name: "the secured API refuses connections, and a node dies", Fault: down(at), Meanwhile: Dies, Through: noticed},
		Row{Name: "the secured API refuses connections, and a node drains", Fault: down(at), Meanwhile: Drains},
		Row{Name: "the secured API refuses connections, and two nodes are replaced", Fault: down(at), Meanwhile: Rolls},
		Row{Name: "the secured API is a black hole, and a node dies", Fault: poisoned(at, blackHole, blackHole.sent()), Meanwhile: Dies, Through: noticed},
		Row{Name: "the secured API is a black hole, and a Node is deleted", Fault: poisoned(at, blackHole, blackHole.sent()), Meanwhile: Leaves},
		Row{Name: "what the secured API answers is lost, and a node joins", Fault: poisoned(at, blackHole), Meanwhile: Joins},
		Row{Name: "what the secured API is asked is lost, and its watch brings a node that joins", Fault: poisoned(at, blackHole.sent()), Meanwhile: Joins, Through: onward},
		Row{Name: "the secured API answers 300 ms late, and two nodes are replaced", Fault: poisoned(at, slow), Meanwhile: Rolls, Through: onward},
		Row{Name: "the secured API answers 2 s late, and a node joins", Fault: poisoned(at, verySlow), Meanwhile: Joins, Through: onward},
		Row{Name: "the secured API answers with jitter, and two nodes are replaced", Fault: poisoned(at, jittery, jittery.sent()), Meanwhile: Rolls, Through: onward},
		Row{Name: "the secured API sends nothing for a while, and a node drains", Fault: poisoned(at, stuck), Meanwhile: Drains},
		Row{Name: "the secured API sends 1 KB/s, and a node joins", Fault: poisoned(at, narrow), Meanwhile: Joins, Through: 2 * onward},
		Row{Name: "the secured API resets each connection, and a Node is deleted", Fault: poisoned(at, resets), Meanwhile: Leaves},
		Row{Name: "the secured API closes each connection after 20 KB, five seconds late, and two nodes are replaced", Fault: poisoned(at, shortLived, slowClose), Meanwhile: Rolls},
		Row{Name: "the secured API's answers come in pieces of 7 bytes, and two nodes are replaced", Fault: poisoned(at, sliced), Meanwhile: Rolls, Through: onward},
		Row{Name: "the secured API flaps, and two nodes are replaced", Fault: flaps(at, time.Second, time.Second), Meanwhile: Rolls},
		Row{Name: "the inventory's cable to the secured API is cut, and a node dies", Fault: cut(ofInventory, single(pair.SecuredAddress)), Meanwhile: Dies, Through: noticed},
		Row{Name: "the inventory's cable to the secured API is cut, and a node joins", Fault: cut(ofInventory, single(pair.SecuredAddress)), Meanwhile: Joins, Lasts: 5 * time.Second},
	)
}

func cloudRows() []Row {
	at := atCloud
	return on(toCloud, back,
		Row{Name: "the IONOS API refuses connections, and a node joins", Fault: down(at), Meanwhile: Joins},
		Row{Name: "the IONOS API refuses connections, and a node drains", Fault: down(at), Meanwhile: Drains, Through: noticed},
		Row{Name: "the IONOS API refuses connections, and a Node is deleted", Fault: down(at), Meanwhile: Leaves, Through: onward},
		Row{Name: "the IONOS API is a black hole, and a node dies", Fault: poisoned(at, blackHole, blackHole.sent()), Meanwhile: Dies, Through: noticed},
		Row{Name: "the IONOS API is a black hole, and two nodes are replaced", Fault: poisoned(at, blackHole, blackHole.sent()), Meanwhile: Rolls},
		Row{Name: "the IONOS API answers 2 s late, and a node joins", Fault: poisoned(at, verySlow), Meanwhile: Joins, Through: 3 * onward},
		Row{Name: "the IONOS API answers with jitter, and two nodes are replaced", Fault: poisoned(at, jittery, jittery.sent()), Meanwhile: Rolls, Through: 2 * onward},
		Row{Name: "the IONOS API sends nothing for a while, and a node dies", Fault: poisoned(at, stuck), Meanwhile: Dies, Through: noticed},
		Row{Name: "the IONOS API sends 1 KB/s, and a node drains", Fault: poisoned(at, narrow), Meanwhile: Drains, Through: noticed},
		Row{Name: "the IONOS API resets each connection, and two nodes are replaced", Fault: poisoned(at, resets), Meanwhile: Rolls},
		Row{Name: "the IONOS API's answers break off, and a node joins", Fault: poisoned(at, torn), Meanwhile: Joins},
		Row{Name: "the IONOS API closes each connection after 20 KB, five seconds late, and a node joins", Fault: poisoned(at, shortLived, slowClose), Meanwhile: Joins},
		Row{Name: "the IONOS API's answers come in pieces of 200 bytes, and two nodes are replaced", Fault: poisoned(at, chopped), Meanwhile: Rolls, Through: 2 * onward},
		Row{Name: "the IONOS API flaps, and two nodes are replaced", Fault: flaps(at, time.Second, 2*time.Second), Meanwhile: Rolls},
	)
}

func linkRows() []Row {
	both, leader, standby := of(links, both), of(links, leading), of(links, standingBy)
	return on(toInventory, rejoins,
		Row{Name: "the link is refused, and a node joins", Fault: down(both), Meanwhile: Joins},
		Row{Name: "the link is refused, and a node dies", Fault: down(both), Meanwhile: Dies, Through: noticed},
		Row{Name: "the link is refused, and two nodes are replaced", Fault: down(both), Meanwhile: Rolls},
		Row{Name: "the leader's link alone is refused, and a node drains", Fault: down(leader), Meanwhile: Drains},
		Row{Name: "the standby's link alone is refused, and two nodes are replaced", Fault: down(standby), Meanwhile: Rolls, Through: onward},
		Row{Name: "the link is a black hole, and a node dies", Fault: poisoned(both, blackHole, blackHole.sent()), Meanwhile: Dies, Through: noticed},
		Row{Name: "the link is a black hole until the heartbeats are missed, and a node joins", Fault: poisoned(both, blackHole, blackHole.sent()), Meanwhile: Joins, Lasts: 17 * time.Second},
		Row{Name: "what the inventory says is lost, and a Node is deleted", Fault: poisoned(both, blackHole), Meanwhile: Leaves},
		Row{Name: "what the inventory is told is lost, and two nodes are replaced", Fault: poisoned(both, blackHole.sent()), Meanwhile: Rolls, Through: onward},
		Row{Name: "the link is 300 ms late, and two nodes are replaced", Fault: poisoned(both, slow), Meanwhile: Rolls, Through: onward},
		Row{Name: "the link is 2 s late, and a node joins", Fault: poisoned(both, verySlow), Meanwhile: Joins, Through: onward},
		Row{Name: "the link jitters, and two nodes are replaced", Fault: poisoned(both, jittery, jittery.sent()), Meanwhile: Rolls, Through: onward},
		Row{Name: "the link is stuck, and a node drains", Fault: poisoned(both, stuck), Meanwhile: Drains},
		Row{Name: "the link passes 1 KB/s, and a node joins", Fault: poisoned(both, narrow), Meanwhile: Joins, Through: onward},
		Row{Name: "the link resets each connection, and a node joins", Fault: poisoned(both, resets), Meanwhile: Joins},
		Row{Name: "the link breaks in each handshake, and nothing happens", Fault: poisoned(both, torn), Lasts: 5 * time.Second},
		Row{Name: "the link passes messages in pieces of 7 bytes, and two nodes are replaced", Fault: poisoned(both, sliced), Meanwhile: Rolls, Through: onward},
		Row{Name: "the link flaps, and two nodes are replaced", Fault: flaps(both, 700*time.Millisecond, 700*time.Millisecond), Meanwhile: Rolls},
		Row{Name: "the link moves to the other replica, and nothing happens", Fault: moved(both), Lasts: 5 * time.Second},
		Row{Name: "the link moves to the other replica, and two nodes are replaced", Fault: moved(both), Meanwhile: Rolls, Through: rejoins},
		Row{Name: "the link goes to and fro between the replicas, and two nodes are replaced", Fault: swaps(both, 1500*time.Millisecond), Meanwhile: Rolls, Through: 2 * rejoins},
		Row{Name: "the leader's cable to the inventory is cut, and a node dies", Fault: cut(ofWriters(leading), single(edgesAddress)), Meanwhile: Dies, Through: noticed},
	)
}

func secondRows() []Row {
	at := of(secondLinks, both)
	return on(toSecond, rejoins,
		Row{Name: "the second link is refused, and a node joins the other cluster", Fault: down(at), Meanwhile: SecondJoins},
		Row{Name: "the second link is refused, and two nodes of the first cluster are replaced", Fault: down(at), Meanwhile: Rolls, Through: onward},
		Row{Name: "the second link is a black hole, and a node of the other cluster dies", Fault: poisoned(at, blackHole, blackHole.sent()), Meanwhile: SecondDies, Through: noticed},
		Row{Name: "the second link flaps, and a node joins the other cluster", Fault: flaps(at, 700*time.Millisecond, 700*time.Millisecond), Meanwhile: SecondJoins},
		Row{Name: "the second link resets each connection, and nothing happens", Fault: poisoned(at, resets), Lasts: 4 * time.Second},
		Row{Name: "both links are refused, and a node dies", Fault: all(down(at), down(of(links, both))), Meanwhile: Dies, Through: noticed},
	)
}

func consumingRows() []Row {
	both, leader, standby := of(stores, both), of(stores, leading), of(stores, standingBy)
	// Their Leases may have expired by the lift.
	recovers := takeover
	return on(toConsuming, back,
		Row{Name: "the consuming API refuses both writers, and nothing happens", Fault: down(both), Lasts: 5 * time.Second, Blind: true, Recovers: recovers},
		Row{Name: "the consuming API refuses both writers, and a node dies", Fault: down(both), Meanwhile: Dies, Blind: true, Recovers: recovers},
		Row{Name: "the consuming API refuses both writers, and two nodes are replaced", Fault: down(both), Meanwhile: Rolls, Blind: true, Recovers: recovers},
		Row{Name: "the consuming API refuses the leader, and a node dies", Fault: down(leader), Meanwhile: Dies, Through: deposed, Blind: true},
		Row{Name: "the consuming API refuses the standby, and two nodes are replaced", Fault: down(standby), Meanwhile: Rolls, Through: onward},
		Row{Name: "the consuming API is a black hole for the leader, and a node joins", Fault: poisoned(leader, blackHole, blackHole.sent()), Meanwhile: Joins, Through: deposed},
		Row{Name: "the consuming API is a black hole for both writers, and a node drains", Fault: poisoned(both, blackHole, blackHole.sent()), Meanwhile: Drains, Blind: true, Recovers: recovers},
		Row{Name: "what the consuming API answers the leader is lost, and a node joins", Fault: poisoned(leader, blackHole), Meanwhile: Joins, Through: deposed, Writes: 1},
		Row{Name: "the consuming API answers 300 ms late, and two nodes are replaced", Fault: poisoned(both, slow), Meanwhile: Rolls, Through: onward},
		Row{Name: "the consuming API answers 2 s late, and a node joins", Fault: poisoned(both, verySlow), Meanwhile: Joins, Through: onward},
		Row{Name: "the consuming API answers with jitter, and two nodes are replaced", Fault: poisoned(both, jittery, jittery.sent()), Meanwhile: Rolls, Through: onward},
		Row{Name: "the consuming API sends nothing for a while, and a node joins", Fault: poisoned(both, stuck), Meanwhile: Joins, Writes: 1, Blind: true, Recovers: recovers},
		Row{Name: "the consuming API sends 1 KB/s, and a node drains", Fault: poisoned(both, narrow), Meanwhile: Drains, Blind: true, Recovers: recovers},
		Row{Name: "the consuming API resets each connection, and a Node is deleted", Fault: poisoned(both, resets), Meanwhile: Leaves, Blind: true, Recovers: recovers},
		Row{Name: "the consuming API closes each connection after 20 KB, five seconds late, and two nodes are replaced", Fault: poisoned(both, shortLived, slowClose), Meanwhile: Rolls, Blind: true, Recovers: recovers},
		Row{Name: "the consuming API's answers come in pieces of 7 bytes, and two nodes are replaced", Fault: poisoned(both, sliced), Meanwhile: Rolls, Through: onward},
		Row{Name: "the consuming API flaps, and two nodes are replaced", Fault: flaps(both, time.Second, 1500*time.Millisecond), Meanwhile: Rolls, Blind: true, Recovers: recovers},
		Row{Name: "the leader's cable to the consuming API is cut, and a node dies", Fault: cut(ofWriters(leading), single(pair.ConsumingAddress)), Meanwhile: Dies, Through: deposed, Blind: true},
	)
}

func backendRows() []Row {
	everyone, one := atBackends(0), atBackends(1)
	return on(toBackends, back,
		Row{Name: "all probes are answered 2 s late, and nothing happens", Fault: poisoned(everyone, verySlow), Lasts: 6 * time.Second, Writes: panicWrites},
		Row{Name: "all probes are answered 300 ms late, and a node dies", Fault: poisoned(everyone, slow), Meanwhile: Dies, Through: noticed},
		Row{Name: "all probes are refused, and nothing happens", Fault: down(everyone), Lasts: 6 * time.Second, Writes: panicWrites},
		Row{Name: "all probes are refused, and two nodes are replaced", Fault: down(everyone), Meanwhile: Rolls, Writes: panicWrites},
		Row{Name: "the probes of one backend are refused, and nothing happens", Fault: down(one), Lasts: 5 * time.Second, Writes: 2},
		Row{Name: "the probes of one backend fall into a black hole, and a node joins", Fault: poisoned(one, blackHole, blackHole.sent()), Meanwhile: Joins, Lasts: 7 * time.Second, Writes: 2},
		Row{Name: "the probes of one backend break off, and a node drains", Fault: poisoned(one, Toxic{Kind: "limit_data", Attributes: map[string]int{"bytes": 20}}), Meanwhile: Drains, Lasts: 5 * time.Second, Writes: 2},
		Row{Name: "the probes' way jitters, and two nodes are replaced", Fault: poisoned(everyone, jittery, jittery.sent()), Meanwhile: Rolls, Through: onward},
		Row{Name: "the probes' answers come in pieces of 7 bytes, and nothing happens", Fault: poisoned(everyone, sliced), Lasts: 5 * time.Second},
		Row{Name: "the probes' way is away for 100 ms every second, and nothing happens", Fault: flaps(everyone, 100*time.Millisecond, 900*time.Millisecond), Lasts: 6 * time.Second},
		Row{Name: "the leader's cable to all backends is cut, and nothing happens", Fault: cut(ofWriters(leading), subnets...), Lasts: 7 * time.Second, Writes: panicWrites},
		Row{Name: "the standby's cable to all backends is cut, and a node dies", Fault: cut(ofWriters(standingBy), subnets...), Meanwhile: Dies, Through: noticed},
	)
}

func togetherRows() []Row {
	const part = "everything at once"
	apis := all(down(atSecured), down(atCloud))
	return on(part, rejoins,
		Row{Name: "the secured and the IONOS API are gone, and a node dies", Fault: apis, Meanwhile: Dies, Through: noticed},
		Row{Name: "the secured API and the consuming API are gone, and a node joins", Fault: all(down(atSecured), down(of(stores, both))), Meanwhile: Joins, Blind: true, Recovers: takeover},
		Row{Name: "all APIs and links are gone, and two nodes are replaced", Fault: down(every), Meanwhile: Rolls, Blind: true, Recovers: takeover},
		Row{Name: "all APIs and links are black holes, and nothing happens", Fault: poisoned(every, blackHole, blackHole.sent()), Lasts: 8 * time.Second, Blind: true, Recovers: takeover},
		Row{Name: "all APIs and links are 300 ms late, and two nodes are replaced", Fault: poisoned(every, slow), Meanwhile: Rolls, Through: 2 * onward},
		Row{Name: "all ways jitter, those to the backends too, and two nodes are replaced", Fault: all(poisoned(every, jittery), poisoned(atBackends(0), jittery)), Meanwhile: Rolls, Through: 2 * onward},
		Row{Name: "the inventory's cables to both its APIs are cut, and a node dies", Fault: cut(ofInventory, single(pair.SecuredAddress), single(pair.CloudAddress)), Meanwhile: Dies, Through: noticed},
		Row{Name: "the leader's only cable is cut, and a node dies", Fault: cut(ofWriters(leading), everywhere), Meanwhile: Dies, Through: deposed, Blind: true},
		Row{Name: "the standby's only cable is cut, and two nodes are replaced", Fault: cut(ofWriters(standingBy), everywhere), Meanwhile: Rolls, Through: onward},
		Row{Name: "the leader's link and its way to the consuming API are refused, and a node joins", Fault: all(down(of(links, leading)), down(of(stores, leading))), Meanwhile: Joins, Through: deposed},
		Row{Name: "all APIs and links flap, and a node drains", Fault: flaps(every, time.Second, 2*time.Second), Meanwhile: Drains, Lasts: 6 * time.Second, Blind: true, Recovers: takeover},
	)
}

package faults

import (
	"net/netip"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// How long recovery may take: the components' own pauses between attempts, and room for a machine that runs everything
// at the same time.
const (
	retried     = 20 * time.Second // API servers: client-go, and a Lease that has to expire
	reconnected = 25 * time.Second // inventories: three missed heartbeats, an attempt to connect of 4 s, and a delay of 4 s (rule R14)
	slowed      = 10 * time.Second // where progress is promised, though each answer is late
	detected    = 4 * time.Second  // a dead backend, by the probes alone
	replacedBy  = takeover + detected
)

// panicWrites is how many writes are allowed when the probes of all endpoints fail. No other endpoint corroborates a
// failure then, so none is expected. But a fault does not begin or end everywhere in the same instant: an endpoint whose
// probe comes in between is corroborated, so it leaves and comes back.
const panicWrites = 2

var (
	anyAddress  = netip.MustParsePrefix("10.0.0.0/8")
	allBackends = []netip.Prefix{netip.MustParsePrefix(pair.Subnet), netip.MustParsePrefix(secondSubnet)}
)

func networkRows() []row {
	return slices.Concat(securedRows(), cloudRows(), inventoryRows(), secondRows(), consumingRows(), probeRows(), severalRows())
}

// of gives rows their kind, and how long the slices may take after the end of the fault.
func of(kind string, correctAfter time.Duration, all ...row) []row {
	for i := range all {
		all[i].kind, all[i].correctAfter = kind, correctAfter
	}
	return all
}

func securedRows() []row {
	at := toSecured
	cable := cut(theInventory, only(pair.SecuredAddress))
	return of("inventory → secured API", retried,
		row{fault: "connections are refused", inject: refused(at), during: joins},
		row{fault: "connections are refused", inject: refused(at), during: dies, correctDuring: detected},
		row{fault: "connections are refused", inject: refused(at), during: drains},
		row{fault: "connections are refused", inject: refused(at), during: replaced},
		row{fault: "all data is lost", inject: isBlackHole(at), during: dies, correctDuring: detected, short: true},
		row{fault: "all data is lost", inject: isBlackHole(at), during: deleted},
		row{fault: "responses are lost", inject: toxics(at, blackHole), during: joins},
		row{fault: "requests are lost, and the watch goes on", inject: toxics(at, blackHole.sent()), during: joins, correctDuring: slowed},
		row{fault: "responses are 300 ms late", inject: toxics(at, slow), during: replaced, correctDuring: slowed},
		row{fault: "responses are 2 s late", inject: toxics(at, verySlow), during: joins, correctDuring: slowed},
		row{fault: "latency varies by 300 ms", inject: toxics(at, jittery, jittery.sent()), during: replaced, correctDuring: slowed},
		row{fault: "responses are held back", inject: toxics(at, stuck), during: drains},
		row{fault: "responses come at 1 KB/s", inject: toxics(at, narrow), during: joins, correctDuring: 2 * slowed},
		row{fault: "each connection is reset", inject: toxics(at, resets), during: deleted},
		row{fault: "each connection ends after 20 KB and closes 5 s later", inject: toxics(at, shortLived, slowClose), during: replaced},
		row{fault: "responses come in pieces of 7 bytes", inject: toxics(at, sliced), during: replaced, correctDuring: slowed},
		row{fault: "connections are refused every other second", inject: flaps(at, time.Second, time.Second), during: replaced},
		row{fault: "the inventory's packets are lost", inject: cable, during: dies, correctDuring: detected},
		row{fault: "the inventory's packets are lost", inject: cable, during: joins, lasts: 5 * time.Second},
	)
}

func cloudRows() []row {
	at := toCloud
	return of("inventory → IONOS API", retried,
		row{fault: "connections are refused", inject: refused(at), during: joins, short: true},
		row{fault: "connections are refused", inject: refused(at), during: drains, correctDuring: detected},
		row{fault: "connections are refused", inject: refused(at), during: deleted, correctDuring: slowed},
		row{fault: "all data is lost", inject: isBlackHole(at), during: dies, correctDuring: detected},
		row{fault: "all data is lost", inject: isBlackHole(at), during: replaced},
		row{fault: "responses are 2 s late", inject: toxics(at, verySlow), during: joins, correctDuring: 3 * slowed},
		row{fault: "latency varies by 300 ms", inject: toxics(at, jittery, jittery.sent()), during: replaced, correctDuring: 2 * slowed},
		row{fault: "responses are held back", inject: toxics(at, stuck), during: dies, correctDuring: detected},
		row{fault: "responses come at 1 KB/s", inject: toxics(at, narrow), during: drains, correctDuring: detected},
		row{fault: "each connection is reset", inject: toxics(at, resets), during: replaced},
		row{fault: "each response is cut off", inject: toxics(at, torn), during: joins},
		row{fault: "each connection ends after 20 KB and closes 5 s later", inject: toxics(at, shortLived, slowClose), during: joins},
		row{fault: "responses come in pieces of 200 bytes", inject: toxics(at, chopped), during: replaced, correctDuring: 2 * slowed},
		row{fault: "connections are refused one second in three", inject: flaps(at, time.Second, 2*time.Second), during: replaced},
	)
}

func inventoryRows() []row {
	both, leader, standby := toInventory(bothWriters), toInventory(theLeader), toInventory(theStandby)
	return of(
		"writers → inventory",
		reconnected,
		row{fault: "connections are refused", inject: refused(both), during: joins, short: true},
		row{fault: "connections are refused", inject: refused(both), during: dies, correctDuring: detected},
		row{fault: "connections are refused", inject: refused(both), during: replaced},
		row{fault: "the leader's connections are refused", inject: refused(leader), during: drains},
		row{fault: "the standby's connections are refused", inject: refused(standby), during: replaced, correctDuring: slowed},
		row{fault: "all data is lost", inject: isBlackHole(both), during: dies, correctDuring: detected},
		row{fault: "all data is lost until heartbeats are missed", inject: isBlackHole(both), during: joins, lasts: 17 * time.Second},
		row{fault: "responses are lost", inject: toxics(both, blackHole), during: deleted},
		row{fault: "requests are lost", inject: toxics(both, blackHole.sent()), during: replaced, correctDuring: slowed},
		row{fault: "responses are 300 ms late", inject: toxics(both, slow), during: replaced, correctDuring: slowed},
		row{fault: "responses are 2 s late", inject: toxics(both, verySlow), during: joins, correctDuring: slowed},
		row{fault: "latency varies by 300 ms", inject: toxics(both, jittery, jittery.sent()), during: replaced, correctDuring: slowed},
		row{fault: "responses are held back", inject: toxics(both, stuck), during: drains},
		row{fault: "responses come at 1 KB/s", inject: toxics(both, narrow), during: joins, correctDuring: slowed},
		row{fault: "each connection is reset", inject: toxics(both, resets), during: joins},
		row{fault: "each TLS handshake is cut off", inject: toxics(both, torn), lasts: 5 * time.Second},
		row{fault: "messages come in pieces of 7 bytes", inject: toxics(both, sliced), during: replaced, correctDuring: slowed},
		row{
			fault:  "connections are refused every other 700 ms",
			inject: flaps(both, 700*time.Millisecond, 700*time.Millisecond),
			during: replaced,
		},
		row{fault: "connections move to the other replica", inject: movedToReplica(both), lasts: 5 * time.Second},
		row{fault: "connections move to the other replica", inject: movedToReplica(both), during: replaced, correctDuring: reconnected},
		row{
			fault:         "connections move between the replicas every 1.5 s",
			inject:        alternates(both, 1500*time.Millisecond),
			during:        replaced,
			correctDuring: 2 * reconnected,
		},
		row{fault: "the leader's packets are lost", inject: cut(theLeader, only(proxyAddress)), during: dies, correctDuring: detected},
	)
}

func secondRows() []row {
	at := toSecond(bothWriters)
	return of(
		"writers → second inventory",
		reconnected,
		row{fault: "connections are refused", inject: refused(at), during: secondJoins, short: true},
		row{fault: "connections are refused", inject: refused(at), during: replaced, correctDuring: slowed},
		row{fault: "all data is lost", inject: isBlackHole(at), during: secondDies, correctDuring: detected},
		row{
			fault:  "connections are refused every other 700 ms",
			inject: flaps(at, 700*time.Millisecond, 700*time.Millisecond),
			during: secondJoins,
		},
		row{fault: "each connection is reset", inject: toxics(at, resets), lasts: 4 * time.Second},
		row{
			fault:         "connections to both inventories are refused",
			inject:        together(refused(at), refused(toInventory(bothWriters))),
			during:        dies,
			correctDuring: detected,
		},
	)
}

func consumingRows() []row {
	both, leader, standby := toConsuming(bothWriters), toConsuming(theLeader), toConsuming(theStandby)
	// The Lease may have expired by the end of the fault.
	return of(
		"writers → consuming API",
		retried,
		row{fault: "connections are refused", inject: refused(both), lasts: 5 * time.Second, noWrites: true, takeover: takeover},
		row{fault: "connections are refused", inject: refused(both), during: dies, noWrites: true, takeover: takeover},
		row{fault: "connections are refused", inject: refused(both), during: replaced, noWrites: true, takeover: takeover},
		row{
			fault:         "the leader's connections are refused",
			inject:        refused(leader),
			during:        dies,
			correctDuring: replacedBy,
			noWrites:      true,
		},
		row{fault: "the standby's connections are refused", inject: refused(standby), during: replaced, correctDuring: slowed},
		row{fault: "the leader's data is lost", inject: isBlackHole(leader), during: joins, correctDuring: replacedBy},
		row{fault: "all data is lost", inject: isBlackHole(both), during: drains, noWrites: true, takeover: takeover},
		row{
			fault:         "responses to the leader are lost",
			inject:        toxics(leader, blackHole),
			during:        joins,
			correctDuring: replacedBy,
			extraWrites:   1,
		},
		row{fault: "responses are 300 ms late", inject: toxics(both, slow), during: replaced, correctDuring: slowed},
		row{fault: "responses are 2 s late", inject: toxics(both, verySlow), during: joins, correctDuring: slowed, short: true},
		row{fault: "latency varies by 300 ms", inject: toxics(both, jittery, jittery.sent()), during: replaced, correctDuring: slowed},
		row{
			fault:       "responses are held back",
			inject:      toxics(both, stuck),
			during:      joins,
			extraWrites: 1,
			noWrites:    true,
			takeover:    takeover,
		},
		row{fault: "responses come at 1 KB/s", inject: toxics(both, narrow), during: drains, noWrites: true, takeover: takeover},
		row{fault: "each connection is reset", inject: toxics(both, resets), during: deleted, noWrites: true, takeover: takeover},
		row{
			fault:    "each connection ends after 20 KB and closes 5 s later",
			inject:   toxics(both, shortLived, slowClose),
			during:   replaced,
			noWrites: true,
			takeover: takeover,
		},
		row{fault: "responses come in pieces of 7 bytes", inject: toxics(both, sliced), during: replaced, correctDuring: slowed},
		row{
			fault:    "connections are refused one second in 2.5",
			inject:   flaps(both, time.Second, 1500*time.Millisecond),
			during:   replaced,
			noWrites: true,
			takeover: takeover,
		},
		row{
			fault:         "the leader's packets are lost",
			inject:        cut(theLeader, only(pair.ConsumingAddress)),
			during:        dies,
			correctDuring: replacedBy,
			noWrites:      true,
		},
	)
}

func probeRows() []row {
	all, one := toAllBackends, toOneBackend
	return of(
		"writers → backends",
		retried,
		row{fault: "responses to all probes are 2 s late", inject: toxics(all, verySlow), lasts: 6 * time.Second, extraWrites: panicWrites},
		row{fault: "responses to all probes are 300 ms late", inject: toxics(all, slow), during: dies, correctDuring: detected},
		row{fault: "all probes are refused", inject: refused(all), lasts: 6 * time.Second, extraWrites: panicWrites, short: true},
		// The probes of the new nodes pass, so they corroborate the failures: the four other nodes leave and come back.
		row{fault: "the probes of all present backends are refused", inject: refused(all), during: replaced, extraWrites: 4 * 2},
		row{fault: "the probes of one backend are refused", inject: refused(one), lasts: 5 * time.Second, extraWrites: 2},
		row{fault: "the probes of one backend are lost", inject: isBlackHole(one), during: joins, lasts: 7 * time.Second, extraWrites: 2},
		row{
			fault:       "responses to the probes of one backend are cut off",
			inject:      toxics(one, tornProbe),
			during:      drains,
			lasts:       5 * time.Second,
			extraWrites: 2,
		},
		row{fault: "latency varies by 300 ms", inject: toxics(all, jittery, jittery.sent()), during: replaced, correctDuring: slowed},
		row{fault: "responses come in pieces of 7 bytes", inject: toxics(all, sliced), lasts: 5 * time.Second},
		row{
			fault:  "all probes are refused for 100 ms of each second",
			inject: flaps(all, 100*time.Millisecond, 900*time.Millisecond),
			lasts:  6 * time.Second,
		},
		row{
			fault:       "the leader's packets are lost",
			inject:      cut(theLeader, allBackends...),
			lasts:       7 * time.Second,
			extraWrites: panicWrites,
		},
		row{fault: "the standby's packets are lost", inject: cut(theStandby, allBackends...), during: dies, correctDuring: detected},
	)
}

func severalRows() []row {
	securedAndCloud := together(refused(toSecured), refused(toCloud))
	return of(
		"several connections",
		reconnected,
		row{
			fault:         "the secured and the IONOS API refuse connections",
			inject:        securedAndCloud,
			during:        dies,
			correctDuring: detected,
			short:         true,
		},
		row{
			fault:    "the secured and the consuming API refuse connections",
			inject:   together(refused(toSecured), refused(toConsuming(bothWriters))),
			during:   joins,
			noWrites: true,
			takeover: takeover,
		},
		row{
			fault:    "all APIs and inventories refuse connections",
			inject:   refused(toAllAPIs),
			during:   replaced,
			noWrites: true,
			takeover: takeover,
		},
		row{
			fault:    "all data to APIs and inventories is lost",
			inject:   isBlackHole(toAllAPIs),
			lasts:    8 * time.Second,
			noWrites: true,
			takeover: takeover,
		},
		row{
			fault:         "responses of all APIs and inventories are 300 ms late",
			inject:        toxics(toAllAPIs, slow),
			during:        replaced,
			correctDuring: 2 * slowed,
		},
		row{
			fault:         "latency of all connections varies by 300 ms",
			inject:        together(toxics(toAllAPIs, jittery), toxics(toAllBackends, jittery)),
			during:        replaced,
			correctDuring: 2 * slowed,
		},
		row{
			fault:         "the inventory's packets to both APIs are lost",
			inject:        cut(theInventory, only(pair.SecuredAddress), only(pair.CloudAddress)),
			during:        dies,
			correctDuring: detected,
		},
		row{
			fault:         "all packets of the leader are lost",
			inject:        cut(theLeader, anyAddress),
			during:        dies,
			correctDuring: replacedBy,
			noWrites:      true,
		},
		row{fault: "all packets of the standby are lost", inject: cut(theStandby, anyAddress), during: replaced, correctDuring: slowed},
		row{
			fault:         "the inventory and the consuming API refuse the leader",
			inject:        together(refused(toInventory(theLeader)), refused(toConsuming(theLeader))),
			during:        joins,
			correctDuring: replacedBy,
		},
		row{
			fault:    "all APIs and inventories refuse connections one second in three",
			inject:   flaps(toAllAPIs, time.Second, 2*time.Second),
			during:   drains,
			lasts:    6 * time.Second,
			noWrites: true,
			takeover: takeover,
		},
	)
}

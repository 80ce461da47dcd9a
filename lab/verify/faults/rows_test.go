package faults

import (
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/ionosapi"
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

// rows is the table, with one row for each kind of fault at each place where it differs.
func rows() []row {
	return slices.Concat(networkRows(), processRows(), fileRows(), apiServerRows(), limitRows(), backendRows())
}

// of gives rows their kind, and how long the slices may take after the end of the fault.
func of(kind string, correctAfter time.Duration, all ...row) []row {
	for i := range all {
		all[i].kind, all[i].correctAfter = kind, correctAfter
	}
	return all
}

func networkRows() []row {
	inventories, second, api, leadersAPI := toInventory(
		bothWriters,
	), toSecond(
		bothWriters,
	), toConsuming(
		bothWriters,
	), toConsuming(
		theLeader,
	)
	probes := toAllBackends
	return slices.Concat(
		of(
			"inventory → secured API",
			retried,
			row{fault: "connections are refused", inject: refused(toSecured), during: replaced},
			row{fault: "all data is lost", inject: isBlackHole(toSecured), during: deleted},
			row{fault: "responses are held back", inject: toxics(toSecured, stuck), during: drains},
			row{
				fault:  "each connection ends after 20 KB and closes 5 s later",
				inject: toxics(toSecured, shortLived, slowClose),
				during: replaced,
			},
			row{
				fault:         "the inventory's packets are lost",
				inject:        cut(theInventory, only(pair.SecuredAddress)),
				during:        dies,
				correctDuring: detected,
			},
		),
		of("inventory → IONOS API", retried,
			row{fault: "responses come at 1 KB/s", inject: toxics(toCloud, narrow), during: drains, correctDuring: detected},
			row{fault: "each response is cut off", inject: toxics(toCloud, torn), during: joins},
			row{fault: "connections are refused one second in three", inject: flaps(toCloud, time.Second, 2*time.Second), during: replaced},
		),
		of(
			"writers → inventory",
			reconnected,
			row{fault: "connections are refused", inject: refused(inventories), during: dies, correctDuring: detected},
			row{
				fault:  "all data is lost until heartbeats are missed",
				inject: isBlackHole(inventories),
				during: joins,
				lasts:  17 * time.Second,
			},
			row{
				fault:         "latency varies by 300 ms",
				inject:        toxics(inventories, jittery, jittery.sent()),
				during:        replaced,
				correctDuring: slowed,
			},
			row{fault: "each TLS handshake is cut off", inject: toxics(inventories, torn), lasts: 5 * time.Second},
			row{fault: "messages come in pieces of 7 bytes", inject: toxics(inventories, sliced), during: replaced, correctDuring: slowed},
			row{
				fault:         "connections move to the other replica",
				inject:        movedToReplica(inventories),
				during:        replaced,
				correctDuring: reconnected,
			},
			row{fault: "connections to the second inventory are refused", inject: refused(second), during: secondJoins},
		),
		// The Lease may have expired by the end of the fault.
		of(
			"writers → consuming API",
			retried,
			row{fault: "connections are refused", inject: refused(api), during: replaced, noWrites: true, takeover: takeover},
			row{
				fault:         "the leader's connections are refused",
				inject:        refused(leadersAPI),
				during:        dies,
				correctDuring: replacedBy,
				noWrites:      true,
			},
			row{
				fault:         "responses to the leader are lost",
				inject:        toxics(leadersAPI, blackHole),
				during:        joins,
				correctDuring: replacedBy,
				extraWrites:   1,
			},
			row{fault: "responses are 2 s late", inject: toxics(api, verySlow), during: joins, correctDuring: slowed},
			row{fault: "each connection is reset", inject: toxics(api, resets), during: deleted, noWrites: true, takeover: takeover},
		),
		of(
			"writers → backends",
			retried,
			row{fault: "all probes are refused", inject: refused(probes), lasts: 6 * time.Second, extraWrites: panicWrites},
			row{
				fault:       "the probes of one backend are lost",
				inject:      isBlackHole(toOneBackend),
				during:      joins,
				lasts:       7 * time.Second,
				extraWrites: 2,
			},
			row{
				fault:  "all probes are refused for 100 ms of each second",
				inject: flaps(probes, 100*time.Millisecond, 900*time.Millisecond),
				lasts:  6 * time.Second,
			},
		),
		of(
			"several connections",
			reconnected,
			row{
				fault:    "all APIs and inventories refuse connections",
				inject:   refused(toAllAPIs),
				during:   replaced,
				noWrites: true,
				takeover: takeover,
			},
			row{
				fault:         "all packets of the leader are lost",
				inject:        cut(theLeader, anyAddress),
				during:        dies,
				correctDuring: replacedBy,
				noWrites:      true,
			},
		),
	)
}

func processRows() []row {
	const (
		inventories = "inventory process"
		writers     = "writer process"
		succeeded   = takeover + undisturbed
	)
	return []row{
		{
			kind:          inventories,
			fault:         "killed",
			inject:        killed(theInventory),
			during:        dies,
			correctDuring: detected,
			correctAfter:  undisturbed,
		},
		{
			kind:          inventories,
			fault:         "killed and started again, with another epoch",
			inject:        killedAndLaunched(theInventory),
			during:        deleted,
			correctDuring: slowed,
			correctAfter:  undisturbed,
		},
		{
			kind:         inventories,
			fault:        "killed every 1.5 s",
			inject:       crashing(theInventory, 1500*time.Millisecond),
			during:       drains,
			lasts:        5 * time.Second,
			correctAfter: retried,
		},
		{
			kind:          inventories,
			fault:         "frozen until the writers disconnect",
			inject:        frozen(theInventory),
			during:        dies,
			lasts:         16 * time.Second,
			correctDuring: detected,
			correctAfter:  retried,
		},
		{
			kind:          inventories,
			fault:         "runs a tenth of the time",
			inject:        starved(theInventory),
			during:        replaced,
			correctDuring: slowed,
			correctAfter:  undisturbed,
		},
		{
			kind:          writers,
			fault:         "leader killed",
			inject:        killed(theLeader),
			during:        replaced,
			correctDuring: succeeded,
			correctAfter:  undisturbed,
			noWrites:      true,
		},
		{
			kind:          writers,
			fault:         "leader frozen until the standby leads: two leaders for a moment",
			inject:        frozen(theLeader),
			during:        replaced,
			correctDuring: succeeded,
			correctAfter:  undisturbed,
			noWrites:      true,
		},
		{
			kind:         writers,
			fault:        "both killed every 2 s",
			inject:       crashing(bothWriters, 2*time.Second),
			during:       joins,
			lasts:        6 * time.Second,
			correctAfter: succeeded,
			noWrites:     true,
			takeover:     takeover,
		},
		{
			kind:         writers,
			fault:        "all writers and inventories killed",
			inject:       killed(these(theInventory, theReplica, theSecond, bothWriters)),
			during:       deleted,
			correctAfter: succeeded,
			noWrites:     true,
			takeover:     takeover,
		},
	}
}

func fileRows() []row {
	const kind = "files"
	return []row{
		{
			kind:          kind,
			fault:         "the inventory's certificate is truncated",
			inject:        corrupted(theInventory, certificate, "tls.crt", truncated),
			during:        joins,
			correctDuring: slowed,
			correctAfter:  undisturbed,
		},
		{
			kind:          kind,
			fault:         "the writers' CA of the inventory is removed",
			inject:        corrupted(bothWriters, peerCAs, "peer-ca.crt", removed),
			during:        joins,
			correctDuring: slowed,
			correctAfter:  undisturbed,
		},
		{
			kind:          kind,
			fault:         "the client list is garbage",
			inject:        corrupted(theInventory, allowedClients, "clients.yaml", garbage),
			during:        joins,
			correctDuring: slowed,
			correctAfter:  undisturbed,
		},
		{
			kind:          kind,
			fault:         "the client list lacks the writers",
			inject:        corrupted(theInventory, allowedClients, "clients.yaml", withoutWriters),
			during:        dies,
			correctDuring: detected,
			correctAfter:  reloaded,
		},
		{kind: kind, fault: "the IONOS token is emptied", inject: token(emptied), during: joins, correctAfter: retried},
		{
			kind:          kind,
			fault:         "the records file is truncated",
			inject:        records(truncated),
			during:        secondBackendDies,
			lasts:         6 * time.Second,
			correctDuring: detected,
			correctAfter:  undisturbed,
		},
		{
			kind:          kind,
			fault:         "the inventory's certificate has expired",
			inject:        inventoryCert(expired),
			during:        dies,
			correctDuring: detected,
			correctAfter:  reloaded,
		},
		{
			kind:         kind,
			fault:        "the inventory's certificate has a wrong name",
			inject:       inventoryCert(misnamed),
			during:       joins,
			correctAfter: reloaded,
		},
		{
			kind:          kind,
			fault:         "the inventory's CA is replaced with overlap",
			inject:        caReplaced(true),
			during:        replaced,
			correctDuring: slowed,
			correctAfter:  slowed,
		},
		{
			kind:          kind,
			fault:         "the inventory's certificate is renewed, but not its key",
			inject:        keyNotRenewed,
			during:        joins,
			correctDuring: slowed,
			correctAfter:  undisturbed,
		},
	}
}

func apiServerRows() []row {
	const (
		secureds   = "secured API server"
		consumings = "consuming API server"
		others     = "other clients of the consuming API"
		relisted   = 40 * time.Second // client-go waits up to 30 s between attempts
		written    = 15 * time.Second // a writer, between two attempts
		led        = takeover + written
	)
	return []row{
		{
			kind:          secureds,
			fault:         "killed and started again",
			inject:        apiServerKilled(secured),
			during:        backendDies,
			correctDuring: detected,
			correctAfter:  relisted,
		},
		{
			kind:         secureds,
			fault:        "etcd compacted behind the watch (410 Gone)",
			inject:       compacted(secured, toSecured),
			during:       replaced,
			correctAfter: relisted,
		},
		{
			kind:          secureds,
			fault:         "each Node changes about a hundred times a second in what does not concern us",
			inject:        unrelatedNodeChanges,
			during:        replaced,
			correctDuring: undisturbed + 2*time.Second,
			correctAfter:  undisturbed,
		},
		{
			kind:         consumings,
			fault:        "killed and started again",
			inject:       apiServerKilled(consuming),
			during:       joins,
			correctAfter: led,
			noWrites:     true,
			takeover:     led,
		},
		{
			kind:         consumings,
			fault:        "frozen for longer than the Lease",
			inject:       programFrozen(consuming, controlplane.APIServer),
			during:       deleted,
			lasts:        14 * time.Second,
			correctAfter: led,
			noWrites:     true,
			takeover:     led,
		},
		{
			kind:         consumings,
			fault:        "etcd killed and started again",
			inject:       etcdKilled(consuming),
			during:       joins,
			lasts:        4 * time.Second,
			correctAfter: led,
			noWrites:     true,
			takeover:     led,
		},
		{
			kind:         consumings,
			fault:        "429 with Retry-After: 2 to each write of a slice",
			inject:       webhookAnswers(http.StatusTooManyRequests, 2, sliceWrites),
			during:       joins,
			lasts:        5 * time.Second,
			correctAfter: written,
			noWrites:     true,
			takeover:     written,
		},
		{
			kind:         consumings,
			fault:        "403 to each write of a slice: permission removed",
			inject:       forbidden,
			during:       dies,
			lasts:        4 * time.Second,
			correctAfter: relisted,
			noWrites:     true,
			takeover:     relisted,
		},
		{
			kind:         others,
			fault:        "one sets an endpoint to not ready four times a second",
			inject:       sliceEdited,
			lasts:        3 * time.Second,
			correctAfter: 20 * time.Second,
			extraWrites:  12,
		},
		{
			kind:          others,
			fault:         "one deletes our slices",
			inject:        slicesDeleted,
			during:        joins,
			correctDuring: undisturbed,
			correctAfter:  undisturbed,
			extraWrites:   2,
			whyLost:       "until the slice is created again, some milliseconds later, there is none",
		},
	}
}

func limitRows() []row {
	const (
		kind      = "resource limits"
		openFiles = 3 // standard input, output and error: no other one can be opened
		restarted = 20 * time.Second
	)
	return []row{
		{
			kind:          kind,
			fault:         "no file descriptor for the leader",
			inject:        limited(theLeader, pair.OpenFiles, openFiles),
			during:        deleted,
			correctDuring: undisturbed,
			correctAfter:  undisturbed,
			noWrites:      true,
		},
		{
			kind:         kind,
			fault:        "no file descriptor for the inventory",
			inject:       limited(theInventory, pair.OpenFiles, openFiles),
			during:       replaced,
			correctAfter: restarted,
		},
		{
			kind:         kind,
			fault:        "no more memory for the leader",
			inject:       limited(theLeader, pair.AddressSpace, 1<<20),
			during:       replaced,
			correctAfter: takeover + undisturbed,
			noWrites:     true,
			takeover:     takeover,
		},
		{
			kind:          kind,
			fault:         "the disk with the leader's log is full",
			inject:        limited(theLeader, pair.FileSize, 1),
			during:        replaced,
			correctDuring: takeover + undisturbed,
			correctAfter:  slowed,
			noWrites:      true,
			takeover:      takeover,
		},
	}
}

func backendRows() []row {
	const (
		backends = "backends"
		ionosAPI = "IONOS API"
		silence  = 6 * time.Second
		passing  = 10 * time.Second // two good probes
		listed   = 15 * time.Second
	)
	servers := "/datacenters/" + pair.Datacenter + "/servers"
	return []row{
		{
			kind:          backends,
			fault:         "half of a cluster's hang",
			inject:        someFail(backend.Hang),
			correctDuring: silence,
			correctAfter:  passing,
			extraWrites:   4,
		},
		{
			kind:         backends,
			fault:        "all refuse connections",
			inject:       allFail(backend.Refuse),
			lasts:        5 * time.Second,
			correctAfter: passing,
			extraWrites:  panicWrites,
		},
		{
			kind:         backends,
			fault:        "one dies and comes back every 5 s",
			inject:       oneFlaps(5 * time.Second),
			during:       joins,
			lasts:        10 * time.Second,
			correctAfter: passing,
			extraWrites:  4,
		},
		{
			kind: ionosAPI, fault: "429 with Retry-After: 3 to everything", during: joins, correctAfter: listed,
			inject: cloudAnswers(ionosapi.Fault{Kind: ionosapi.TooManyRequestsSeconds, Wait: ionosapi.Duration(3 * time.Second)}),
		},
		{
			kind: ionosAPI, fault: "every server has the address of one", during: joins, correctDuring: listed, correctAfter: listed,
			inject: cloudAnswers(ionosapi.Fault{Kind: ionosapi.HiddenSharing, Address: "10.0.1.250", Path: servers}),
		},
	}
}

package faults

import (
	"cmp"
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

var anyAddress = netip.MustParsePrefix("10.0.0.0/8")

// rows is the table, with one row for each kind of fault at each place where it differs.
func rows() []row {
	return slices.Concat(networkRows(), processRows(), fileRows(), apiServerRows(), limitRows(), backendRows())
}

// of gives rows their kind, and how long after the end of the fault the slices may take, unless a row says it.
func of(kind string, correctAfter time.Duration, all ...row) []row {
	for i := range all {
		all[i].kind, all[i].correctAfter = kind, cmp.Or(all[i].correctAfter, correctAfter)
	}
	return all
}

// on begins a row; the methods below set its fields.
func on(name string, inject fault) row { return row{fault: name, inject: inject} }

func (r row) while(c change) row                { r.during = c; return r }
func (r row) lasting(d time.Duration) row       { r.lasts = d; return r }
func (r row) correctWithin(d time.Duration) row { r.correctDuring = d; return r }
func (r row) andAfter(d time.Duration) row      { r.correctAfter = d; return r }
func (r row) unwritable(takeover time.Duration) row {
	r.noWrites, r.takeover = true, takeover
	return r
}
func (r row) writing(n int) row     { r.extraWrites = n; return r }
func (r row) losing(why string) row { r.whyLost = why; return r }

func networkRows() []row {
	inventories, second := toInventory(bothWriters), toSecond(bothWriters)
	api, leadersAPI := toConsuming(bothWriters), toConsuming(theLeader)
	return slices.Concat(
		of("inventory → secured API", retried,
			on("connections are refused", refused(toSecured)).while(replaced),
			on("all data is lost", isBlackHole(toSecured)).while(deleted),
			on("responses are held back", toxics(toSecured, stuck)).while(drains),
			on("each connection ends after 20 KB and closes 5 s later", toxics(toSecured, shortLived, slowClose)).while(replaced),
			on("the inventory's packets are lost", cut(theInventory, only(pair.SecuredAddress))).while(dies).correctWithin(detected),
		),
		of("inventory → IONOS API", retried,
			on("responses come at 1 KB/s", toxics(toCloud, narrow)).while(drains).correctWithin(detected),
			on("each response is cut off", toxics(toCloud, torn)).while(joins),
			on("connections are refused one second in three", flaps(toCloud, time.Second, 2*time.Second)).while(replaced),
		),
		of("writers → inventory", reconnected,
			on("connections are refused", refused(inventories)).while(dies).correctWithin(detected),
			on("all data is lost until heartbeats are missed", isBlackHole(inventories)).while(joins).lasting(17*time.Second),
			on("latency varies by 300 ms", toxics(inventories, jittery, jittery.sent())).while(replaced).correctWithin(slowed),
			on("each TLS handshake is cut off", toxics(inventories, torn)).lasting(5*time.Second),
			on("messages come in pieces of 7 bytes", toxics(inventories, sliced)).while(replaced).correctWithin(slowed),
			on("connections move to the other replica", movedToReplica(inventories)).while(replaced).correctWithin(reconnected),
			on("connections to the second inventory are refused", refused(second)).while(secondJoins),
		),
		// The Lease may have expired by the end of the fault.
		of("writers → consuming API", retried,
			on("connections are refused", refused(api)).while(replaced).unwritable(takeover),
			on("the leader's connections are refused", refused(leadersAPI)).while(dies).correctWithin(replacedBy).unwritable(0),
			on("responses to the leader are lost", toxics(leadersAPI, blackHole)).while(joins).correctWithin(replacedBy).writing(1),
			on("responses are 2 s late", toxics(api, verySlow)).while(joins).correctWithin(slowed),
			on("each connection is reset", toxics(api, resets)).while(deleted).unwritable(takeover),
		),
		of("writers → backends", retried,
			on("all probes are refused", refused(toAllBackends)).lasting(6*time.Second).writing(panicWrites),
			on("the probes of one backend are lost", isBlackHole(toOneBackend)).while(joins).lasting(7*time.Second).writing(2),
			on(
				"all probes are refused for 100 ms of each second",
				flaps(toAllBackends, 100*time.Millisecond, 900*time.Millisecond),
			).lasting(6*time.Second),
		),
		of("several connections", reconnected,
			on("all APIs and inventories refuse connections", refused(toAllAPIs)).while(replaced).unwritable(takeover),
			on("all packets of the leader are lost", cut(theLeader, anyAddress)).while(dies).correctWithin(replacedBy).unwritable(0),
		),
	)
}

func processRows() []row {
	const succeeded = takeover + undisturbed
	return slices.Concat(
		of("inventory process", undisturbed,
			on("killed", killed(theInventory)).while(dies).correctWithin(detected),
			on("killed and started again, with another epoch", killedAndLaunched(theInventory)).while(deleted).correctWithin(slowed),
			on("killed every 1.5 s", crashing(theInventory, 1500*time.Millisecond)).while(drains).lasting(5*time.Second).andAfter(retried),
			on("frozen until the writers disconnect", frozen(theInventory)).while(dies).lasting(16*time.Second).correctWithin(detected).
				andAfter(retried),
			on("runs a tenth of the time", starved(theInventory)).while(replaced).correctWithin(slowed),
		),
		of("writer process", undisturbed,
			on("leader killed", killed(theLeader)).while(replaced).correctWithin(succeeded).unwritable(0),
			on("leader frozen until the standby leads: two leaders for a moment", frozen(theLeader)).while(replaced).
				correctWithin(succeeded).unwritable(0),
			on("both killed every 2 s", crashing(bothWriters, 2*time.Second)).while(joins).lasting(6*time.Second).andAfter(succeeded).
				unwritable(takeover),
			on("all writers and inventories killed", killed(these(theInventory, theReplica, theSecond, bothWriters))).while(deleted).
				andAfter(succeeded).unwritable(takeover),
		),
	)
}

func fileRows() []row {
	return of("files", undisturbed,
		on("the inventory's certificate is truncated", corrupted(theInventory, certificate, "tls.crt", truncated)).while(joins).
			correctWithin(slowed),
		on("the writers' CA of the inventory is removed", corrupted(bothWriters, peerCAs, "peer-ca.crt", removed)).while(joins).
			correctWithin(slowed),
		on("the client list is garbage", corrupted(theInventory, allowedClients, "clients.yaml", garbage)).while(joins).
			correctWithin(slowed),
		on("the client list lacks the writers", corrupted(theInventory, allowedClients, "clients.yaml", withoutWriters)).while(dies).
			correctWithin(detected).andAfter(reloaded),
		on("the IONOS token is emptied", token(emptied)).while(joins).andAfter(retried),
		on("the records file is truncated", records(truncated)).while(secondBackendDies).lasting(6*time.Second).correctWithin(detected),
		on("the inventory's certificate has expired", inventoryCert(expired)).while(dies).correctWithin(detected).andAfter(reloaded),
		on("the inventory's certificate has a wrong name", inventoryCert(misnamed)).while(joins).andAfter(reloaded),
		on("the inventory's CA is replaced with overlap", caReplaced(true)).while(replaced).correctWithin(slowed).andAfter(slowed),
		on("the inventory's certificate is renewed, but not its key", keyNotRenewed).while(joins).correctWithin(slowed),
	)
}

func apiServerRows() []row {
	const (
		relisted = 40 * time.Second // client-go waits up to 30 s between attempts
		written  = 15 * time.Second // a writer, between two attempts
		led      = takeover + written
	)
	return slices.Concat(
		of("secured API server", relisted,
			on("killed and started again", apiServerKilled(secured)).while(backendDies).correctWithin(detected),
			on("etcd compacted behind the watch (410 Gone)", compacted(secured, toSecured)).while(replaced),
			on("each Node changes about a hundred times a second in what does not concern us", unrelatedNodeChanges).while(replaced).
				correctWithin(undisturbed+2*time.Second).andAfter(undisturbed),
		),
		of("consuming API server", led,
			on("killed and started again", apiServerKilled(consuming)).while(joins).unwritable(led),
			on("frozen for longer than the Lease", programFrozen(consuming, controlplane.APIServer)).while(deleted).lasting(14*time.Second).
				unwritable(led),
			on("etcd killed and started again", etcdKilled(consuming)).while(joins).lasting(4*time.Second).unwritable(led),
			on("429 with Retry-After: 2 to each write of a slice", webhookAnswers(http.StatusTooManyRequests, 2, sliceWrites)).while(joins).
				lasting(5*time.Second).andAfter(written).unwritable(written),
			on("403 to each write of a slice: permission removed", forbidden).while(dies).lasting(4*time.Second).andAfter(relisted).
				unwritable(relisted),
		),
		of("other clients of the consuming API", undisturbed,
			on("one sets an endpoint to not ready four times a second", sliceEdited).lasting(3*time.Second).andAfter(20*time.Second).
				writing(12),
			on("one deletes our slices", slicesDeleted).while(joins).correctWithin(undisturbed).writing(2).
				losing("until the slice is created again, some milliseconds later, there is none"),
		),
	)
}

func limitRows() []row {
	const (
		openFiles = 3 // standard input, output and error: no other one can be opened
		restarted = 20 * time.Second
	)
	return of("resource limits", undisturbed,
		on("no file descriptor for the leader", limited(theLeader, pair.OpenFiles, openFiles)).while(deleted).correctWithin(undisturbed).
			unwritable(0),
		on("no file descriptor for the inventory", limited(theInventory, pair.OpenFiles, openFiles)).while(replaced).andAfter(restarted),
		on("no more memory for the leader", limited(theLeader, pair.AddressSpace, 1<<20)).while(replaced).andAfter(takeover+undisturbed).
			unwritable(takeover),
		on("the disk with the leader's log is full", limited(theLeader, pair.FileSize, 1)).while(replaced).
			correctWithin(takeover+undisturbed).andAfter(slowed).unwritable(takeover),
	)
}

func backendRows() []row {
	const (
		silence = 6 * time.Second
		passing = 10 * time.Second // two good probes
		listed  = 15 * time.Second
	)
	servers := "/datacenters/" + pair.Datacenter + "/servers"
	return slices.Concat(
		of("backends", passing,
			on("half of a cluster's hang", someFail(backend.Hang)).correctWithin(silence).writing(4),
			on("all refuse connections", allFail(backend.Refuse)).lasting(5*time.Second).writing(panicWrites),
			on("one dies and comes back every 5 s", oneFlaps(5*time.Second)).while(joins).lasting(10*time.Second).writing(4),
		),
		of("IONOS API", listed,
			on(
				"429 with Retry-After: 3 to everything",
				cloudAnswers(ionosapi.Fault{Kind: ionosapi.TooManyRequestsSeconds, Wait: ionosapi.Duration(3 * time.Second)}),
			).while(joins),
			on(
				"every server has the address of one",
				cloudAnswers(ionosapi.Fault{Kind: ionosapi.HiddenSharing, Address: "10.0.1.250", Path: servers}),
			).while(joins).
				correctWithin(listed),
		),
	)
}

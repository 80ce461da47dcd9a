package sim

import (
	"fmt"
	"time"
)

// Script is a world before it runs: what there is in it and which faults befall it when. Draw
// makes one from a seed; a shorter one is made by leaving faults out. What happens is a function
// of the Script alone.
type Script struct { //nolint:recvcheck // it is drawn in place, and a value afterwards
	Seed   uint64 // of all that is left to chance while it runs, such as latencies
	Setup  Setup
	Faults []Fault // by At

	Quiet   time.Duration // before the first fault may come: everything starts, and is served
	Trouble time.Duration // in which the faults come; those that last end with it
	Settle  time.Duration // in which nothing happens any more
}

// Setup is what there is in a world.
type Setup struct {
	Sources  int // secured clusters, each with an inventory of its own: 1 or 2
	Replicas int // of each inventory: 1 or 2
	Nodes    int // of each secured cluster, at the start
	Writers  int // 1 or 2

	ByCloud        bool // addresses come from the cloud; otherwise from the Nodes themselves
	Probing        bool // at the start
	ProbeInterval  time.Duration
	ShrinkWindow   time.Duration
	EmptyThreshold int
	MaxStaleness   time.Duration
	ListOut        bool // at the start

	Failover    bool          // the second source stands by for the first
	ExpireAfter time.Duration // how long a source may not be trusted before its endpoints leave; 0: any time

	Ports bool // each node has a port of its own, and the Service follows them
}

// Fault is one thing that goes wrong, or is changed by someone.
type Fault struct {
	At   time.Duration // since the Trouble began
	For  time.Duration // how long it lasts; 0: it is done at once
	Kind Kind
	On   int // whom it befalls, of those whom it can: counted round
	N    int // what the Kind makes of it
}

func (f Fault) String() string {
	text := fmt.Sprintf("%s %s on %d", f.At, f.Kind, f.On)
	if f.For > 0 {
		text += " for " + f.For.String()
	}
	if f.N != 0 {
		text += fmt.Sprintf(" (%d)", f.N)
	}
	return text
}

// Kind is a kind of fault.
type Kind string

// What befalls the nodes of a secured cluster. On names the node, counted through all clusters.
const (
	NodeAdded       Kind = "node added"
	NodeDeleted     Kind = "node deleted"           // N odd: its machine answers on
	NodeReplaced    Kind = "node replaced"          // a new one comes, then this one is deleted; N odd: it inherits the address
	NodeNotReady    Kind = "node not ready"         // N odd: its backend is dead too
	NodeDrained     Kind = "node drained"           // the autoscaler's taint; N odd: and deleted in the end
	NodeRelabelled  Kind = "node relabelled"        // it moves to the other pool
	AddressChanged  Kind = "address changed"        // the machine's
	AllNotReady     Kind = "all nodes not ready"    // of a cluster; the backends answer on
	AllDrained      Kind = "all nodes drained"      // of a cluster
	AllNodesDeleted Kind = "all nodes deleted"      // of a cluster; N odd: the machines answer on; new ones come at the end
	NodesChurn      Kind = "nodes churn"            // N nodes come or go, one after the other
	AddressesSwap   Kind = "addresses are swapped"  // between two machines
	SecuredDown     Kind = "secured API down"       // every request to a secured cluster's API fails
	SecuredHangs    Kind = "secured API hangs"      // every request to it times out, and its watches are silent
	EtcdFrozen      Kind = "etcd frozen"            // looks time out, nothing changes, bookmarks go on
	CacheStale      Kind = "API server cache stale" // watches are N seconds behind
	WatchCut        Kind = "watch cut"              // the watches of a cluster end at once
)

// What befalls a cloud.
const (
	CloudErrors    Kind = "cloud errors"
	CloudThrottles Kind = "cloud throttles" // 429, Retry-After N seconds
	CloudHangs     Kind = "cloud hangs"
	CloudStale     Kind = "cloud stale"          // it answers as of N seconds ago
	CloudOdd       Kind = "cloud odd"            // one machine's data cannot be read
	CloudHidesNIC  Kind = "cloud hides a NIC"    // of one machine, though the listing is whole
	CloudShares    Kind = "cloud shares address" // a machine's address is on another one too
)

// What befalls a link, and the inventories. On names the writer and the source, or the replica.
const (
	LinkCut         Kind = "link cut"
	LinkHalfOpen    Kind = "link half-open" // nothing comes any more, and nobody says so
	LinkDelayed     Kind = "link delayed"   // by up to N milliseconds
	StreamEnded     Kind = "stream ended"   // as by a connection's age; another replica may be next
	InventoryKilled Kind = "inventory killed"
	InventoryLies   Kind = "inventory lies" // N says how
)

// What befalls a writer.
const (
	WriterKilled  Kind = "writer killed"
	WriterStalled Kind = "writer stalled" // stopped, with what it was about to send in its hands
	WriterCutOff  Kind = "writer cut off" // from backends, inventories and API server
	ProberBlind   Kind = "prober blind"   // its probes reach nothing
	LeaseLost     Kind = "Lease deleted"  // by hand: for a moment there are two leaders
)

// What befalls backends.
const (
	BackendDead  Kind = "backend dead"  // it refuses
	BackendHangs Kind = "backend hangs" // it does not answer
	BackendFlaps Kind = "backend flaps" // every N seconds
	AllDead      Kind = "all backends dead"
)

// What befalls the consuming cluster.
const (
	ConsumingDown      Kind = "consuming API down"
	ConsumingHangs     Kind = "consuming API hangs" // requests arrive up to N seconds late
	ConsumingThrottles Kind = "consuming API throttles"
	ConsumingStale     Kind = "consuming cache stale" // watches are N seconds behind
	AnswersLost        Kind = "answers lost"          // the write is done, and nobody says so
	Conflicts          Kind = "conflicts"             // somebody touches slices just before we write
	SliceEdited        Kind = "slice edited"          // N says how
	SliceDeleted       Kind = "slice deleted"
)

// What somebody changes in the configuration.
const (
	SelectorChanged Kind = "selector changed" // N: none, pool a, pool b
	FenceChanged    Kind = "fence changed"    // N odd: to one that excludes half, 0: back; the writers start anew
	ProbeChanged    Kind = "probe changed"
	ProbingSwitched Kind = "probing switched"
	ListOutSwitched Kind = "list-out switched"
	OptedOut        Kind = "opted out" // and in again at the end
	Paused          Kind = "paused"
)

// What befalls ports, in worlds whose nodes have their own.
const (
	PortMoved     Kind = "port moved"      // a backend moves to another port: nothing answers at the old one
	PortWrong     Kind = "port wrong"      // a node reports a port at which nothing answers, one that is denied, or none
	AllPortsMoved Kind = "all ports moved" // of a cluster
	AllPortsWrong Kind = "all ports wrong" // of a cluster
	PortsFlip     Kind = "ports flip"      // of a cluster, every N seconds, between two that answer
	PortsSet      Kind = "ports set"       // N: followed, by annotation, those of the Service, others of the Service
	PortsAllowed  Kind = "ports allowed"   // N odd: to those that are denied too, 0: back; the writers start anew
)

// PortKinds are the kinds of faults of ports.
var PortKinds = []Kind{PortMoved, PortWrong, AllPortsMoved, AllPortsWrong, PortsFlip, PortsSet, PortsAllowed}

// Kinds are all others, in the order of the constants.
var Kinds = []Kind{
	NodeAdded, NodeDeleted, NodeReplaced, NodeNotReady, NodeDrained, NodeRelabelled, AddressChanged, AllNotReady,
	AllDrained, AllNodesDeleted, NodesChurn, AddressesSwap, SecuredDown, SecuredHangs, EtcdFrozen, CacheStale, WatchCut,
	CloudErrors, CloudThrottles, CloudHangs, CloudStale, CloudOdd, CloudHidesNIC, CloudShares,
	LinkCut, LinkHalfOpen, LinkDelayed, StreamEnded, InventoryKilled, InventoryLies,
	WriterKilled, WriterStalled, WriterCutOff, ProberBlind, LeaseLost,
	BackendDead, BackendHangs, BackendFlaps, AllDead,
	ConsumingDown, ConsumingHangs, ConsumingThrottles, ConsumingStale, AnswersLost, Conflicts, SliceEdited, SliceDeleted,
	SelectorChanged, FenceChanged, ProbeChanged, ProbingSwitched, ListOutSwitched, OptedOut, Paused,
}

// lasts is whether a Kind lasts; the others are done at once.
func (k Kind) lasts() bool {
	switch k {
	case NodeAdded, NodeDeleted, NodeReplaced, NodeRelabelled, AddressChanged, AddressesSwap, WatchCut,
		NodesChurn, StreamEnded, LeaseLost, SliceEdited, SliceDeleted,
		SelectorChanged, FenceChanged, ProbeChanged, ProbingSwitched, ListOutSwitched, PortMoved, AllPortsMoved, PortsSet, PortsAllowed:
		return false
	}
	return true
}

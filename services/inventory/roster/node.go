package roster

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// State is what the control plane says of a node. The zero value is no state.
type State uint8

// The states of a node, as slicefeed.inventory.v1.NodeState has them.
const (
	Ready State = iota + 1
	Draining
	NotReady
)

// Node is a member of the roster: an eligible worker with at least one address.
// Nodes are immutable once published.
type Node struct {
	Name string // of the Kubernetes Node; the key
	UID  string // of the Kubernetes Node object

	// Addresses are canonical, sorted, at least one, at most one of each family,
	// and borne by no other node of the roster.
	Addresses []netip.Addr

	State State
	Since time.Time // when the node entered its state, by this process's clock

	Zone, Region string
	Labels       map[string]string // all of the Node's labels; views choose from them

	ProviderID string // spec.providerID, for operators
	ServerID   string // the cloud's identifier of the machine, for operators; empty with node-address
}

// Equal reports whether a subscriber could tell the two nodes apart: Since does not count.
func (n Node) Equal(o Node) bool {
	return n.Name == o.Name && n.UID == o.UID && n.State == o.State &&
		n.Zone == o.Zone && n.Region == o.Region &&
		n.ProviderID == o.ProviderID && n.ServerID == o.ServerID &&
		slices.Equal(n.Addresses, o.Addresses) && maps.Equal(n.Labels, o.Labels)
}

// Change is what became of one node: Node is nil when it left the roster.
type Change struct {
	Name string
	Node *Node
}

// Reason is why a node is left out of the roster. The zero value: it is not.
type Reason uint8

// The reasons for leaving a node out, as slicefeed.inventory.v1.OmissionReason has them.
const (
	ControlPlane Reason = iota + 1
	ExcludedByLabel
	NotSelected
	NotFoundInIONOS
	AmbiguousServer
	NoAddressOnLAN
	AmbiguousAddress
	OutsideSubnet
	SharedAddress
	NotResolvedYet
	InvalidRecord
)

// Omission is a node that is left out, with one sentence that says what was seen and what to do.
type Omission struct {
	Name       string
	Reason     Reason
	Advice     string
	ProviderID string
}

// Sync is how far a part of the source can be believed.
type Sync uint8

// The states of a part, as slicefeed.inventory.v1.SyncState has them.
const (
	Synced Sync = iota + 1
	Degraded
	Unsynced
)

// Part is the state of one part of the source.
type Part struct {
	Sync   Sync
	Reason string    // for people, when not Synced
	Since  time.Time // when it entered this state
}

// Status says how much the roster is worth at present.
type Status struct {
	Membership Part // which nodes there are, as Kubernetes says
	Addresses  Part // where they are, as the cloud says

	// Observation is the number of the last complete observation, from 1; 0: none yet.
	Observation uint64
	ObservedAt  time.Time // when it was complete; zero: none yet

	Ports []Port // of the source's own endpoints, if it knows any

	// Told is whether the first word has been given: from then on the roster may be told as complete.
	Told bool
}

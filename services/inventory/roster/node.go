package roster

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

// Node is a node: what its source reports about it, and of a published one what the roster decided. Nodes are immutable.
type Node struct {
	Name, UID    string       // of the Kubernetes Node; the name is the key
	ProviderID   string       // spec.providerID, unchanged
	SystemUUID   string       // status.nodeInfo.systemUUID, unchanged
	InternalIPs  []netip.Addr // status.addresses of type InternalIP, canonical, in the order of the Node
	State        NodeState
	Zone, Region string
	Hostname     string          // by which a headless Service names it; empty: none
	Ports        []contract.Port // at which it serves, sorted; none: not known
	Labels       map[string]string

	// Excluded is why the node is not eligible, and ExcludedBy what says so; zero: it is eligible.
	Excluded   OmissionReason
	ExcludedBy string

	// Invalid is why the source's data about this node cannot be used; empty: it can. Otherwise only
	// the Name counts: a known node keeps its last valid state, a new one is omitted.
	Invalid string

	// StateReason is what the source reports and what state follows from it, for people only.
	StateReason string

	// What follows is decided by the roster.

	// Addresses are canonical and sorted: one or two, at most one of each family, and assigned to no
	// other node of the roster. None: the node is omitted.
	Addresses []netip.Addr
	// Omission is why the node is omitted; of a published one, why the current data gives it no address: it keeps what
	// it has.
	Omission Omission
	Since    time.Time // when the node entered its state, by this process's clock
	ServerID string    // the cloud's identifier of the server, for operators; empty with node-address
}

// Omission is why a node is omitted, with a message about it of at most 100 characters. Longer ones are cut off.
type Omission struct {
	Reason  OmissionReason
	Message string
}

// IsPublished reports whether subscribers get the node.
func (n Node) IsPublished() bool { return len(n.Addresses) > 0 }

// Equal reports whether a source reported the same of both.
func (n Node) Equal(o Node) bool { return reflect.DeepEqual(n, o) }

// looksLike reports whether two published nodes look the same to a subscriber and to operators.
func (n Node) looksLike(o *Node) bool {
	return n.UID == o.UID && n.State == o.State && n.Since.Equal(o.Since) &&
		n.Zone == o.Zone && n.Region == o.Region && n.Hostname == o.Hostname &&
		n.ProviderID == o.ProviderID && n.ServerID == o.ServerID &&
		slices.Equal(n.Addresses, o.Addresses) && slices.Equal(n.Ports, o.Ports) && maps.Equal(n.Labels, o.Labels)
}

// NodeState is the state of a node in the control plane. The zero value is no state.
type NodeState uint8

// The states of a node, as slicefeed.inventory.v1.NodeState has them.
const (
	Ready NodeState = iota + 1
	Draining
	NotReady
)

// OmissionReason is why a node is omitted. The zero value: it is not.
type OmissionReason uint8

// The reasons for omitting a node. The first three are intended: the node is excluded.
const (
	ControlPlane OmissionReason = iota + 1
	ExcludedByLabel
	NotSelected
	NotFoundInIONOS
	AmbiguousServer
	NoAddressOnLAN
	OutsideSubnet
	SharedAddress
	NotResolvedYet
	InvalidRecord
)

// String is the name of the state, as metrics label it.
func (s NodeState) String() string { return enumName(s, "", "ready", "draining", "not_ready") }

// String is the name of the reason, as reports and metrics have it.
func (r OmissionReason) String() string {
	return enumName(r, "", "ControlPlane", "ExcludedByLabel", "NotSelected", "NotFoundInIONOS", "AmbiguousServer",
		"NoAddressOnLAN", "OutsideSubnet", "SharedAddress", "NotResolvedYet", "InvalidRecord")
}

// IsIntended reports whether nodes that are omitted for this reason are not meant to be published.
func (r OmissionReason) IsIntended() bool { return r >= ControlPlane && r <= NotSelected }

// String is the name of the synchronization state.
func (s SyncState) String() string {
	return enumName(s, "", "synced", "degraded", "unsynced", "withheld")
}

// String is the name of the verification.
func (v Verification) String() string { return enumName(v, "none", "light", "full") }

func enumName[T ~uint8](n T, names ...string) string {
	if int(n) < len(names) {
		return names[n]
	}
	return "unknown"
}

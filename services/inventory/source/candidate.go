package source

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

// Candidate is what a source reports about one node, reduced to what decisions need.
type Candidate struct {
	Name, UID    string
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
}

// Equal reports whether the roster would treat, publish and report both in the same way.
func (c Candidate) Equal(o Candidate) bool {
	return c.Name == o.Name && c.UID == o.UID && c.ProviderID == o.ProviderID && c.SystemUUID == o.SystemUUID &&
		c.State == o.State && c.Zone == o.Zone && c.Region == o.Region && c.Hostname == o.Hostname &&
		c.Excluded == o.Excluded && c.ExcludedBy == o.ExcludedBy && c.Invalid == o.Invalid && c.StateReason == o.StateReason &&
		slices.Equal(c.InternalIPs, o.InternalIPs) && slices.Equal(c.Ports, o.Ports) && maps.Equal(c.Labels, o.Labels)
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

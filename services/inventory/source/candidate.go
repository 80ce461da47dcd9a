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

	// Excluded is why the node is not eligible, with Advice for people; zero: it is eligible.
	Excluded OmissionReason
	Advice   string

	// Invalid is why the source's data about this node cannot be used; empty: it can. Otherwise only
	// the Name counts: a known node keeps its last valid state, a new one is omitted.
	Invalid string

	// Steps are how the source came to this candidate, for explanations only.
	Steps []Step
}

// Equal reports whether the roster would treat, publish and explain both in the same way.
func (c Candidate) Equal(o Candidate) bool {
	return c.Name == o.Name && c.UID == o.UID && c.ProviderID == o.ProviderID && c.SystemUUID == o.SystemUUID &&
		c.State == o.State && c.Zone == o.Zone && c.Region == o.Region && c.Hostname == o.Hostname &&
		c.Excluded == o.Excluded && c.Advice == o.Advice && c.Invalid == o.Invalid &&
		slices.Equal(
			c.InternalIPs,
			o.InternalIPs,
		) && slices.Equal(c.Ports, o.Ports) && maps.Equal(c.Labels, o.Labels) && slices.Equal(c.Steps, o.Steps)
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

// The reasons for omitting a node, as slicefeed.inventory.v1.OmissionReason has them.
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

// String is the name of the reason, as metrics label it.
func (r OmissionReason) String() string {
	return enumName(r, "", "control_plane", "excluded_by_label", "not_selected", "not_found_in_ionos",
		"ambiguous_server", "no_address_on_lan", "outside_subnet",
		"shared_address", "not_resolved_yet", "invalid_record")
}

// String is the name of the synchronization state.
func (s SyncState) String() string { return enumName(s, "", "synced", "degraded", "unsynced") }

// String is the name of the verification.
func (v Verification) String() string { return enumName(v, "none", "light", "full") }

func enumName[T ~uint8](n T, names ...string) string {
	if int(n) < len(names) {
		return names[n]
	}
	return "unknown"
}

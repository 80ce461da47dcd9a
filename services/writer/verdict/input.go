package verdict

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// State is what a source reports about one of its members. One that this version does not know is Unknown (rule R12).
type State = inventoryv1.NodeState

// The states that a source may report.
const (
	Unknown  = inventoryv1.NodeState_NODE_STATE_UNSPECIFIED
	Ready    = inventoryv1.NodeState_NODE_STATE_READY
	Draining = inventoryv1.NodeState_NODE_STATE_DRAINING
	NotReady = inventoryv1.NodeState_NODE_STATE_NOT_READY
)

// Ports are those of an endpoint.
type Ports struct {
	Text  string // names them, as in http/TCP:30080,dns/UDP:30053; empty: those of the Service
	Probe uint16 // at which it is probed
}

// cover reports whether an endpoint with these ports has all that other ones name.
func (p Ports) cover(other Ports) bool {
	if p.Text == "" || other.Text == "" {
		return true
	}
	for port := range strings.SplitSeq(other.Text, ",") {
		if name, _, _ := strings.Cut(port, ":"); !strings.Contains(","+p.Text, ","+name+":") {
			return false
		}
	}
	return true
}

// Conditions are those of an EndpointSlice's endpoint. All three are always written.
type Conditions struct {
	Ready, Serving, Terminating bool
}

var (
	ready    = Conditions{Ready: true, Serving: true}
	draining = Conditions{Serving: true, Terminating: true}
	notReady = Conditions{}
)

// String names the state that the conditions stand for.
func (c Conditions) String() string {
	return display.EndpointConditions(c.Ready, c.Serving, c.Terminating)
}

// inUse reports whether consumers may send traffic to an endpoint with these conditions.
func (c Conditions) inUse() bool { return c.Ready || c.Serving }

// Member is one address of one node of a source.
type Member struct {
	Address  netip.Addr
	Name     string // of the node, for reasons
	State    State
	Since    time.Time         // when it entered its state, by our clock
	Zone     string            // as the source reports it; of a chosen member, as written: usually empty
	Hostname string            // by which a headless Service names the endpoint; usually empty
	Serves   []contract.Port   // at which the node serves; none: not known
	Labels   map[string]string // that its inventory exports

	// Of a member that was chosen for a target: the ports of the endpoint, and why they cannot be used; empty: they can. An
	// endpoint that is listed keeps those that it has.
	Ports    Ports
	Unusable string
}

func (m *Member) at() netip.Addr { return m.Address }

// Source is one source of the target at this moment.
type Source struct {
	Name string

	// EverSynced is whether it was synced since this process started. Its members mean nothing before.
	EverSynced bool
	// Connected is whether the link is alive and was synced in its present epoch.
	Connected bool
	// MembershipSynced is what the source last reported about its membership, at MembershipSyncedAt by our clock.
	MembershipSynced   bool
	MembershipSyncedAt time.Time

	// Epoch and Observation number its last complete observation, received at ObservationAt by our clock.
	Epoch         string
	Observation   uint64
	ObservationAt time.Time

	// Members has one member per address. The caller has chosen them by the target's families and selector.
	Members []Member
	// Trusted are the members as they were last reported while the source was trusted. They count while it is not:
	// a decision may come later than several reports and the loss of the link.
	Trusted []Member
	// Selector chose the members from all that the source reports. A change of it is a change of our own settings.
	// Deselected are the addresses that the last one would still have chosen of the trusted report, and this one does not,
	// sorted.
	Selector   string
	Deselected []netip.Addr
	// Unusable says why its report cannot be used for this target, although its inventory answers; empty: it can.
	Unusable string
	// Tier is its failover tier: endpoints of tier 0 are always listed, those of a later one while the earlier ones have
	// fewer than Limits.FailoverBelow ready.
	Tier int

	Allowlist Allowlist
}

// Allowlist bounds what may be written for a source.
type Allowlist struct {
	CIDRs []netip.Prefix
	// Denied are addresses that are never written, such as ClusterIPs of watched Services.
	Denied map[netip.Addr]struct{}
}

// DefaultSource owns an endpoint whose slice names no source.
const DefaultSource = "default"

// CurrentEndpoint is an endpoint that the slices list now, never older than our own last write.
type CurrentEndpoint struct {
	Address    netip.Addr
	Conditions Conditions
	Source     string // the slice's label; empty stands for DefaultSource
	Zone       string
	Hostname   string
	Ports      Ports
	Portless   bool // the allowlist denies all ports that the slice has
}

func (c *CurrentEndpoint) sourceName() string { return cmp.Or(c.Source, DefaultSource) }

func (c *CurrentEndpoint) at() netip.Addr { return c.Address }

// Defaults of the limits that have no useful zero.
const (
	DefaultMaxStaleness   = 15 * time.Minute
	DefaultEmptyThreshold = 3
)

// Limits are settings: the first three are the operator's, the others the target's.
type Limits struct {
	MaxStaleness   time.Duration // how old the last synced membership of a trusted source may be; 0: the default
	EmptyThreshold int           // complete observations that confirm an empty set; 0: the default
	ShrinkWindow   time.Duration // in which half of a source's endpoints may leave on its report alone; 0: no limit
	FailoverBelow  int           // so many ready endpoints of earlier tiers keep a later one out; 0: the default
	ExpireAfter    time.Duration // how long a source may not be trusted before its endpoints leave; 0: any time
	ListUnready    bool          // list endpoints that are not ready, all conditions false
	Probing        bool
}

// Input is all that a decision depends on, except Memory and the time.
type Input struct {
	Sources []Source
	Probes  []probe.Status // by address and port, each once; what has none is pending
	Current []CurrentEndpoint
	Limits  Limits

	// Rejected: the Service cannot be managed as it is now. No source is trusted, so current endpoints stay and follow
	// their probes, and nothing is added.
	Rejected bool
	// Paused: nothing is written. The decision is the one to expect after the pause; it spends no budget of shrink.
	Paused bool
	// LeadingSince is when we took the Lease; zero: we do not lead, and nothing is written.
	LeadingSince time.Time
}

// Probe returns the probe of an address at a port; false: it has none.
func (i *Input) Probe(a netip.Addr, port uint16) (probe.Status, bool) {
	at, found := slices.BinarySearchFunc(i.Probes, probe.Status{Address: a, Port: port}, compareProbes)
	if !found {
		return probe.Status{Address: a, Port: port}, false
	}
	return i.Probes[at], true
}

func compareProbes(a, b probe.Status) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
}

package roster

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/inventory/assign"
	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// Node is a published node: an eligible worker with at least one address. Nodes are immutable.
type Node struct {
	Name string // of the Kubernetes Node; the key
	UID  string // of the Kubernetes Node object

	// Addresses are canonical and sorted: one or two, at most one of each family, and assigned to no
	// other node of the roster.
	Addresses []netip.Addr

	State source.NodeState
	Since time.Time // when the node entered its state, by this process's clock

	Zone, Region string
	Hostname     string            // by which a headless Service names it; empty: none
	Ports        []contract.Port   // at which it serves; none: not known
	Labels       map[string]string // those that are exported

	ProviderID string // spec.providerID, for operators
	ServerID   string // the cloud's identifier of the server, for operators; empty with node-address
}

// Equal reports whether the two nodes look the same to a subscriber: Since does not count.
func (n Node) Equal(o Node) bool {
	return n.Name == o.Name && n.UID == o.UID && n.State == o.State &&
		n.Zone == o.Zone && n.Region == o.Region && n.Hostname == o.Hostname &&
		n.ProviderID == o.ProviderID && n.ServerID == o.ServerID &&
		slices.Equal(n.Addresses, o.Addresses) && slices.Equal(n.Ports, o.Ports) && maps.Equal(n.Labels, o.Labels)
}

// equalNodes reports whether two published nodes are equal, including their time in their state.
func equalNodes(a, b *Node) bool {
	return a == b || a != nil && b != nil && a.Since.Equal(b.Since) && a.Equal(*b)
}

// Change is the new state of one node; Node is nil if it is no longer published.
type Change struct {
	Name string
	Node *Node
}

// Member is a node of the source and what was decided about it, at one moment.
type Member struct {
	*source.Candidate // as last valid; immutable

	Node *Node // as published; nil: omitted
	// Omission is why the node is omitted; of a published one, why the current data gives it no address: it keeps what
	// it has.
	Omission resolve.Omission

	Previous  *Node     // as published before the last change; nil: it was not
	ChangedAt time.Time // when that was; zero: there was none

	Holding *assign.Holding // nil without details
}

// Members returns all nodes of the source, in no order, and with details those that are of interest. Its cost grows
// with their number.
func (r *Roster) Members(isOfInterest func(name string) bool) []Member {
	all := make([]Member, 0, len(r.members))
	for _, m := range r.members {
		one := m.Member
		if isOfInterest(m.Name) {
			one.Holding = new(r.assigner.Holding(m.Name))
		}
		if one.Node != nil {
			one.Omission = m.resolved.Omission
		}
		all = append(all, one)
	}
	return all
}

// Resolver returns the resolver as it is now, to describe members.
func (r *Roster) Resolver() resolve.Resolver { return r.resolver }

// Counts are the numbers of published nodes by state and of omitted nodes by reason. Every state and
// reason has an entry.
type Counts struct {
	States  map[source.NodeState]int
	Omitted map[source.OmissionReason]int
}

// Add adds the numbers of another roster.
func (c *Counts) Add(o Counts) {
	if c.States == nil {
		*c = Counts{States: map[source.NodeState]int{}, Omitted: map[source.OmissionReason]int{}}
	}
	for state, n := range o.States {
		c.States[state] += n
	}
	for reason, n := range o.Omitted {
		c.Omitted[reason] += n
	}
}

// Counts returns the counts. Its cost does not depend on the number of nodes.
func (r *Roster) Counts() Counts {
	c := Counts{States: map[source.NodeState]int{}, Omitted: map[source.OmissionReason]int{}}
	for s := source.Ready; s <= source.NotReady; s++ {
		c.States[s] = r.states[s]
	}
	for reason := source.ControlPlane; reason <= source.InvalidRecord; reason++ {
		c.Omitted[reason] = r.omitted[reason]
	}
	return c
}

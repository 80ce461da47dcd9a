package roster

import (
	"maps"
	"net/netip"
	"slices"
	"time"
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

// Omission is a node that is left out, with one sentence that says what was seen and what to do.
type Omission struct {
	Name       string
	Reason     Reason
	Advice     string
	ProviderID string
}

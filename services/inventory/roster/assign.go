package roster

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// claim is what the current data gives a node. It replaces the node's previous claim.
type claim struct {
	Node      string
	State     NodeState
	Addresses AddrPair // may be empty: a node without a claim keeps what it has
	Excluded  bool     // the node loses what it has
}

// assigner has the assignments of all nodes. It is not safe for concurrent use.
type assigner struct {
	nodes      map[string]*claimant
	owners     map[netip.Addr]*claimant            // one address, one node
	contenders map[netip.Addr]map[string]*claimant // nodes that claim an address of another one
}

type claimant struct {
	claim

	assigned   AddrPair
	contested  AddrPair      // claimed, but assigned to another node
	prevOwner  [2]string     // node that had the assigned address before, by family
	reassigned [2]reassigned // the address that another node took over last, by family
}

type reassigned struct {
	address netip.Addr
	to      string
}

// New returns an assigner without nodes.
func newAssigner() *assigner {
	return &assigner{
		nodes: map[string]*claimant{}, owners: map[netip.Addr]*claimant{}, contenders: map[netip.Addr]map[string]*claimant{},
	}
}

// claim applies the claims of several nodes and returns the nodes whose assignment may have changed,
// including those of the claims. All claims are known before the first is granted, because whether an
// owner gives way depends on what it claims itself.
func (a *assigner) Claim(claims []claim) (changed []string) {
	queue := make([]*claimant, 0, len(claims))
	for _, claim := range claims {
		c := a.nodes[claim.Node]
		if c == nil {
			c = &claimant{}
			a.nodes[claim.Node] = c
		}
		c.claim = claim
		queue = append(queue, c)
	}
	for _, c := range queue {
		queue = append(queue, a.contendersOf(c.assigned)...) // the owner may give way now
		if c.Excluded {
			a.dropAssigned(c)
		}
	}
	slices.SortFunc(queue, byPriority)
	return a.settle(queue)
}

// Release forgets a node. Its addresses go to the nodes that contend for them.
func (a *assigner) Release(node string) (changed []string) {
	c := a.nodes[node]
	if c == nil {
		return nil
	}
	delete(a.nodes, node)
	a.setContested(c, AddrPair{})
	contenders := a.contendersOf(c.assigned)
	a.dropAssigned(c)
	return a.settle(contenders)
}

func (a *assigner) dropAssigned(c *claimant) {
	for _, address := range c.assigned.List() {
		delete(a.owners, address)
	}
	c.assigned = AddrPair{}
}

// settle grants claims one after the other; a node that loses an address by that, or contends for one
// that is released, comes after them. It ends because an address only moves to a node with a better
// right (see mustYield).
func (a *assigner) settle(queue []*claimant) (changed []string) {
	for len(queue) > 0 {
		c := queue[0]
		changed = append(changed, c.Node)
		queue = append(queue[1:], a.grant(c)...)
	}
	return changed
}

// grant assigns what a node claims and may have, and returns the nodes that this affects. With the first
// address that it gets, it loses what it had and does not claim, in both families: otherwise a node that
// changed its family would keep the other address for as long as the process runs.
func (a *assigner) grant(c *claimant) (affected []*claimant) {
	granted, contested := c.Addresses, AddrPair{}
	for family, address := range c.Addresses {
		if owner := a.owners[address]; owner != nil && owner != c && !mustYield(owner, c, address) {
			granted[family], contested[family] = netip.Addr{}, address
		}
	}
	a.setContested(c, contested)
	if granted.Empty() {
		return nil
	}
	for family, address := range granted {
		old := c.assigned[family]
		if address == old {
			continue
		}
		if old.IsValid() {
			delete(a.owners, old)
			affected = append(affected, a.contendersOf(AddrPair{old})...)
		}
		c.assigned[family], c.prevOwner[family] = address, ""
		if !address.IsValid() {
			continue
		}
		if owner := a.owners[address]; owner != nil {
			owner.assigned[family] = netip.Addr{}
			owner.reassigned[family], c.prevOwner[family] = reassigned{address, c.Node}, owner.Node
			affected = append(affected, owner)
		}
		a.owners[address] = c
	}
	return affected
}

// mustYield reports whether the owner of an address gives way to another node that the current data gives
// it to. If the same data names the owner too (two Nodes of one server, two Nodes of one InternalIP), a
// fixed order decides, so that replicas agree whatever they saw before.
func mustYield(owner, c *claimant, address netip.Addr) bool {
	return owner.Addresses[Family(address)] != address || byPriority(c, owner) < 0
}

func (a *assigner) setContested(c *claimant, contested AddrPair) {
	for _, address := range c.contested.List() {
		delete(a.contenders[address], c.Node)
		if len(a.contenders[address]) == 0 {
			delete(a.contenders, address)
		}
	}
	for _, address := range contested.List() {
		if a.contenders[address] == nil {
			a.contenders[address] = map[string]*claimant{}
		}
		a.contenders[address][c.Node] = c
	}
	c.contested = contested
}

// contendersOf returns the nodes that contend for any of these addresses.
func (a *assigner) contendersOf(addresses AddrPair) []*claimant {
	var all []*claimant
	for _, address := range addresses.List() {
		all = slices.AppendSeq(all, maps.Values(a.contenders[address]))
	}
	slices.SortFunc(all, byPriority)
	return all
}

// byPriority sorts by state, READY nodes first, then by name.
func byPriority(x, y *claimant) int {
	return cmp.Or(cmp.Compare(x.State, y.State), cmp.Compare(x.Node, y.Node))
}

// Holding is what a node has of the addresses that it claims, at one moment.
type Holding struct {
	Assigned  AddrPair
	Contested AddrPair  // claimed, but assigned to another node
	Owners    [2]string // that have the contested addresses

	claimed    AddrPair
	prevOwner  [2]string
	reassigned [2]reassigned
	contenders [2][]string
}

// Holding returns what a node has.
func (a *assigner) Holding(node string) (h Holding) {
	c := a.nodes[node]
	if c == nil {
		return h
	}
	h = Holding{Assigned: c.assigned, Contested: c.contested, claimed: c.Addresses, prevOwner: c.prevOwner, reassigned: c.reassigned}
	for family := range h.Assigned {
		if owner := a.owners[c.contested[family]]; owner != nil {
			h.Owners[family] = owner.Node
		}
		if all := a.contenders[c.assigned[family]]; len(all) > 0 {
			h.contenders[family] = slices.Sorted(maps.Keys(all))
		}
	}
	return h
}

// Addresses returns the addresses that the node has, waits for or has lost.
func (h *Holding) Addresses() []netip.Addr {
	all := slices.Concat(h.Assigned.List(), h.Contested.List())
	for family, lost := range h.reassigned {
		if lost.address.IsValid() && !h.Assigned[family].IsValid() {
			all = append(all, lost.address)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// Describe says who else has, had or wants an address of the node. Empty: no other node.
func (h *Holding) Describe(address netip.Addr) string {
	family := Family(address)
	var all []string
	switch {
	case h.Contested[family] == address:
		return fmt.Sprintf("node %q has it, and the same data names both", truncate(h.Owners[family]))
	case h.Assigned[family] != address && h.reassigned[family].address == address:
		return fmt.Sprintf("reassigned to node %q", truncate(h.reassigned[family].to))
	case h.Assigned[family] != address:
		return ""
	case h.claimed[family] != address:
		all = append(all, "kept until another address replaces it, although the current data does not have it")
	case h.prevOwner[family] != "":
		all = append(all, fmt.Sprintf("reassigned from node %q", truncate(h.prevOwner[family])))
	}
	if contenders := h.contenders[family]; len(contenders) > 0 {
		all = append(all, "the same data also names "+truncate(display.List(contenders)))
	}
	return strings.Join(all, "; ")
}

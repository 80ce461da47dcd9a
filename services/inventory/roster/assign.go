package roster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// addrPair is at most one address of each family: IPv4, IPv6. An invalid address stands for none.
type addrPair [2]netip.Addr

// familyOf is the place of an address in a pair.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// list returns the addresses of the pair, sorted.
func (p addrPair) list() []netip.Addr {
	return keepIf(p[:], netip.Addr.IsValid)
}

func (p addrPair) isEmpty() bool { return !p[0].IsValid() && !p[1].IsValid() }

// assigner gives each address to one member: to that with the best right of those that the current data gives it to. A
// member that gets nothing of that keeps what it has, as long as the current data gives it to no other one, and the member
// is not excluded. The result does not depend on the order of claims.
type assigner struct {
	claimants map[netip.Addr][]*member // that the current data gives the address to
	owners    map[netip.Addr]*member

	// What may have changed since the last settle: the right to addresses, and members.
	touched  map[netip.Addr]struct{}
	affected map[*member]struct{}
}

// holding is what a member has of the addresses that it claims.
type holding struct {
	claimed, assigned addrPair
	priorOwner        [2]string     // member that had the assigned address before, by family
	reassigned        [2]reassigned // the address that another member took over last, by family
}

type reassigned struct {
	address netip.Addr
	to      string
}

func newAssigner() *assigner {
	return &assigner{
		claimants: map[netip.Addr][]*member{}, owners: map[netip.Addr]*member{},
		touched: map[netip.Addr]struct{}{}, affected: map[*member]struct{}{},
	}
}

// claim replaces what the current data gives a member. All claims are known before settle grants the first, because
// whether an owner gives way depends on what it claims itself.
func (a *assigner) claim(m *member, claimed addrPair) {
	for _, address := range m.claimed.list() {
		a.touched[address] = struct{}{}
		a.claimants[address] = slices.DeleteFunc(a.claimants[address], func(c *member) bool { return c == m })
		if len(a.claimants[address]) == 0 {
			delete(a.claimants, address)
		}
	}
	for _, address := range claimed.list() {
		a.touched[address] = struct{}{}
		a.claimants[address] = append(a.claimants[address], m)
	}
	m.claimed = claimed
	a.affected[m] = struct{}{}
}

// release forgets a member.
func (a *assigner) release(m *member) {
	a.claim(m, addrPair{})
	delete(a.affected, m)
	for _, address := range m.assigned.list() {
		delete(a.owners, address)
	}
}

// settle assigns the addresses to which the right may have changed, and calls decide with each member that this may
// affect.
func (a *assigner) settle(decide func(*member)) {
	for address := range a.touched {
		for _, m := range a.claimants[address] {
			a.affected[m] = struct{}{}
		}
		if owner := a.owners[address]; owner != nil {
			a.affected[owner] = struct{}{}
		}
	}
	winners := map[netip.Addr]*member{}
	for address := range a.touched {
		if all := a.claimants[address]; len(all) > 0 {
			winners[address] = slices.MinFunc(all, byPriority)
		}
	}
	for m := range a.affected {
		a.assign(m, winners)
	}
	for m := range a.affected {
		decide(m)
	}
	clear(a.touched)
	clear(a.affected)
}

// assign gives a member what it may have. With the first address that it gets, it loses what it had and does not claim,
// in both families: otherwise a node that changed its family would keep the other address for as long as the process
// runs.
func (a *assigner) assign(m *member, winners map[netip.Addr]*member) {
	var granted addrPair
	for family, address := range m.claimed {
		_, touched := a.touched[address]
		if touched && winners[address] == m || !touched && a.owners[address] == m {
			granted[family] = address
		}
	}
	if granted.isEmpty() && m.Excluded == 0 {
		for family, address := range m.assigned {
			if len(a.claimants[address]) == 0 {
				granted[family] = address
			}
		}
	}
	for family, old := range m.assigned {
		address := granted[family]
		if address == old {
			continue
		}
		if winner := winners[old]; winner != nil {
			m.reassigned[family] = reassigned{old, winner.Name}
		} else {
			delete(a.owners, old)
		}
		m.priorOwner[family] = ""
		if owner := a.owners[address]; owner != nil {
			m.priorOwner[family] = owner.Name
		}
		if address.IsValid() {
			a.owners[address] = m
		}
	}
	m.assigned = granted
}

// byPriority sorts by state, READY nodes first, then by name. If the same data gives an address to several members (two
// Nodes of one server, two Nodes of one InternalIP), this order decides, so that replicas agree whatever they saw before.
func byPriority(x, y *member) int {
	return cmp.Or(cmp.Compare(x.State, y.State), cmp.Compare(x.Name, y.Name))
}

// contested returns an address that the member claims and another one has, and that one.
func (a *assigner) contested(m *member) (address netip.Addr, owner *member) {
	for _, address := range m.claimed.list() {
		if owner := a.owners[address]; owner != m {
			return address, owner
		}
	}
	return netip.Addr{}, m
}

// describe says who else has, had or claims an address of the member. Empty: no other node.
func (a *assigner) describe(m *member, address netip.Addr) string {
	var all []string
	switch family := familyOf(address); {
	case m.assigned[family] != address && m.claimed[family] == address:
		return fmt.Sprintf("node %q has it, and the same data names both", truncate(a.owners[address].Name))
	case m.assigned[family] != address && m.reassigned[family].address == address:
		return fmt.Sprintf("reassigned to node %q", truncate(m.reassigned[family].to))
	case m.assigned[family] != address:
		return ""
	case m.claimed[family] != address:
		all = append(all, "kept until another address replaces it, although the current data does not have it")
	case m.priorOwner[family] != "":
		all = append(all, fmt.Sprintf("reassigned from node %q", truncate(m.priorOwner[family])))
	}
	var others []string
	for _, c := range a.claimants[address] {
		if c != m {
			others = append(others, c.Name)
		}
	}
	if slices.Sort(others); len(others) > 0 {
		all = append(all, "the same data also names "+truncate(display.List(others)))
	}
	return strings.Join(all, "; ")
}

// described returns the addresses that a member has, waits for or has lost.
func (h *holding) described() []netip.Addr {
	all := slices.Concat(h.assigned.list(), h.claimed.list())
	for family, lost := range h.reassigned {
		if lost.address.IsValid() && !h.assigned[family].IsValid() {
			all = append(all, lost.address)
		}
	}
	return canonical(all)
}

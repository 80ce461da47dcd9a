package roster

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// settle lets members claim what the last whole answer gives them, one after the other;
// who loses an address by that, or waits for one that is let go, comes after them.
//
// It ends because an address only ever moves to someone with a better right (see yields).
func (r *Roster) settle(queue []*member) {
	for len(queue) > 0 {
		m := queue[0]
		queue = append(queue[1:], r.claim(m)...)
		r.publish(m)
	}
}

// claim gives a member what it wants and may have, and returns who is affected. What it
// has is never taken from it without giving it another address of the family.
func (r *Roster) claim(m *member) (affected []*member) {
	var waits pair
	for f, a := range m.want {
		if !a.IsValid() || a == m.held[f] {
			continue
		}
		owner := r.owners[a]
		if owner != nil && !yields(owner, m, a) {
			waits[f] = a
			continue
		}
		m.heirOf[f] = ""
		if owner != nil {
			owner.held[f] = netip.Addr{}
			owner.lost[f], m.heirOf[f] = lost{a, m.Name}, owner.Name
			affected = append(affected, owner)
		}
		if old := m.held[f]; old.IsValid() {
			delete(r.owners, old)
			affected = append(affected, r.waiters(pair{old})...)
		}
		m.held[f], r.owners[a] = a, m
	}
	r.wait(m, waits)
	return affected
}

// yields reports whether the owner of an address gives way to another member that the last
// whole answer gives it to. An owner that the same answer names too (two Nodes
// of one machine, two Nodes of one InternalIP) gives way only to a READY one when it is not.
func yields(owner, m *member, a netip.Addr) bool {
	if owner.Excluded != 0 || owner.want[family(a)] != a {
		return true
	}
	return owner.State != Ready && m.State == Ready
}

// wait records what a member waits for, in place of what it waited for before.
func (r *Roster) wait(m *member, waits pair) {
	for _, a := range m.waits.list() {
		delete(r.waiting[a], m.Name)
		if len(r.waiting[a]) == 0 {
			delete(r.waiting, a)
		}
	}
	for _, a := range waits.list() {
		if r.waiting[a] == nil {
			r.waiting[a] = map[string]*member{}
		}
		r.waiting[a][m.Name] = m
	}
	m.waits = waits
}

// waiters are the members that wait for any of these addresses: READY ones first, then by name.
func (r *Roster) waiters(addrs pair) []*member {
	var all []*member
	for _, a := range addrs.list() {
		for _, name := range slices.Sorted(maps.Keys(r.waiting[a])) {
			all = append(all, r.waiting[a][name])
		}
	}
	slices.SortStableFunc(all, func(a, b *member) int { return int(a.State) - int(b.State) })
	return all
}

// publish shows what became of a member.
func (r *Roster) publish(m *member) {
	switch {
	case m.Excluded != 0:
		r.show(m, nil, omission{reason: m.Excluded, advice: m.Advice, excluded: true})
	case m.held.empty() && !m.waits.empty():
		a := m.waits.list()[0]
		r.show(m, nil, omission{reason: SharedAddress, advice: fmt.Sprintf(
			"Its address %s is assigned to node %q, which the same data names. Delete the Node that is gone, or give each its own address.",
			a, clip(r.owners[a].Name))})
	case m.held.empty():
		r.show(m, nil, m.why)
	default:
		node := &Node{
			Name: m.Name, UID: m.UID, Addresses: m.held.list(), State: m.State, Since: m.since,
			Zone: m.Zone, Region: m.Region, Labels: m.Labels, ProviderID: m.ProviderID, ServerID: m.server,
		}
		if same(node, m.node) {
			node = m.node
		}
		r.show(m, node, omission{})
	}
}

package inputs

import (
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// maxPatches is how many changes of a list are made one by one. Each may move all items behind it.
const maxPatches = 16

// patch collects the changes of a list that is sorted by address.
type patch[T any] struct {
	address func(*T) netip.Addr
	removed []netip.Addr
	added   []T
}

// collect passes each item that is in one of two sorted lists only to remove or to add. False: too many are changed.
func collect[T comparable, P any](p *patch[P], before, after []T, compare func(a, b T) int, remove, add func(T)) bool {
	for len(before)+len(after) > 0 {
		if len(before) > 0 && len(after) > 0 && before[0] == after[0] {
			before, after = before[1:], after[1:]
			continue
		}
		order := len(after) - len(before) // decides if one is empty
		if len(before) > 0 && len(after) > 0 {
			order = compare(before[0], after[0])
		}
		if order <= 0 {
			remove(before[0])
			before = before[1:]
		}
		if order >= 0 {
			add(after[0])
			after = after[1:]
		}
		if len(p.removed)+len(p.added) > maxPatches {
			return false
		}
	}
	return true
}

// apply returns the list with the changes. The list itself is shared and stays as it is. False: it would have an
// address twice, or something was removed that was not in it.
func (p *patch[T]) apply(list []T) ([]T, bool) {
	next := slices.Grow(slices.Clone(list), len(p.added))
	find := func(address netip.Addr) (int, bool) {
		return slices.BinarySearchFunc(next, address, func(item T, a netip.Addr) int { return p.address(&item).Compare(a) })
	}
	removed := slices.Clone(p.removed)
	for i := range p.added {
		address := p.address(&p.added[i])
		at, taken := find(address)
		frees := slices.Index(removed, address)
		switch {
		case taken && frees < 0:
			return nil, false
		case taken:
			next[at], removed = p.added[i], slices.Delete(removed, frees, frees+1)
		default:
			next = slices.Insert(next, at, p.added[i])
		}
	}
	for _, address := range removed {
		at, found := find(address)
		if !found {
			return nil, false
		}
		next = slices.Delete(next, at, at+1)
	}
	return next, true
}

// members are those of a snapshot that concern a target.
type members struct {
	choice string
	from   []*subscriber.Member
	list   []verdict.Member
}

// convert returns the chosen members of a set, one for each address, sorted by address.
func (m *members) convert(set []*subscriber.Member, choice Choice) []verdict.Member {
	key := choice.key() + " " + choice.Ports.Rule
	if m.list != nil && m.choice == key {
		if subscriber.SameSet(m.from, set) {
			return m.list
		}
		if list, ok := m.follow(set, choice); ok && !choice.exceeds(list) {
			*m = members{key, set, list}
			return list
		}
	}
	list := make([]verdict.Member, 0, min(len(set), max(choice.Limit, 64)))
	for _, member := range set {
		if list = choice.appendMembers(list, member); choice.exceeds(list) {
			*m = members{}
			return list
		}
	}
	slices.SortFunc(list, func(a, b verdict.Member) int { return a.Address.Compare(b.Address) })
	*m = members{key, set, list}
	return list
}

// follow changes the list as the members have changed. Both snapshots are sorted by name and share the members that
// are unchanged. False: too many are changed.
func (m *members) follow(now []*subscriber.Member, choice Choice) ([]verdict.Member, bool) {
	p := patch[verdict.Member]{address: func(member *verdict.Member) netip.Addr { return member.Address }}
	ok := collect(&p, m.from, now, func(a, b *subscriber.Member) int { return strings.Compare(a.Name, b.Name) },
		func(gone *subscriber.Member) {
			for _, member := range choice.appendMembers(nil, gone) {
				p.removed = append(p.removed, member.Address)
			}
		}, func(member *subscriber.Member) { p.added = choice.appendMembers(p.added, member) })
	if !ok {
		return nil, false
	}
	return p.apply(m.list)
}

// Current has the current endpoints of a target.
type Current struct {
	desired planner.Desired
	ports   Ports
	from    []*discoveryv1.EndpointSlice // which are never altered in place
	list    []verdict.CurrentEndpoint
	once    bool // no address was listed twice
}

// Convert returns what the owned ones of these slices list.
func (c *Current) Convert(desired planner.Desired, now []*discoveryv1.EndpointSlice, ports Ports) []verdict.CurrentEndpoint {
	named := planner.Desired{
		Namespace: desired.Namespace, Service: desired.Service, NameLabel: desired.NameLabel,
		Owner: desired.Owner, OwnerKinds: desired.OwnerKinds, ManagedBy: desired.ManagedBy, FirstName: desired.FirstName,
	}
	if list, ok := c.follow(named, now, ports); ok {
		c.from, c.list = now, list
		return list
	}
	listed := 0
	for _, slice := range now {
		if named.Owns(slice) {
			listed += len(slice.Endpoints)
		}
	}
	list := CurrentEndpoints(named, now, ports)
	*c = Current{named, ports, now, list, len(list) == listed}
	return list
}

// follow changes the list as the slices have changed. False: too many are, or two list the same address, so that their
// order matters.
func (c *Current) follow(named planner.Desired, now []*discoveryv1.EndpointSlice, ports Ports) ([]verdict.CurrentEndpoint, bool) {
	if len(now) != len(c.from) || !c.once || !sameNaming(named, c.desired) || ports.Rule != c.ports.Rule {
		return nil, false
	}
	p := patch[verdict.CurrentEndpoint]{address: func(e *verdict.CurrentEndpoint) netip.Addr { return e.Address }}
	for i, slice := range now {
		if slice == c.from[i] {
			continue
		}
		before, after := CurrentEndpoints(named, c.from[i:i+1], ports), CurrentEndpoints(named, now[i:i+1], ports)
		if len(after) != len(slice.Endpoints) && len(after) > 0 {
			return nil, false
		}
		if !collect(&p, before, after, func(a, b verdict.CurrentEndpoint) int { return a.Address.Compare(b.Address) },
			func(e verdict.CurrentEndpoint) { p.removed = append(p.removed, e.Address) },
			func(e verdict.CurrentEndpoint) { p.added = append(p.added, e) }) {
			return nil, false
		}
	}
	if len(p.removed)+len(p.added) == 0 {
		return c.list, true
	}
	return p.apply(c.list)
}

// sameNaming reports whether the same slices are owned.
func sameNaming(a, b planner.Desired) bool {
	return a.Namespace == b.Namespace && a.Service == b.Service && a.Owner.UID == b.Owner.UID &&
		a.ManagedBy == b.ManagedBy && a.FirstName == b.FirstName
}

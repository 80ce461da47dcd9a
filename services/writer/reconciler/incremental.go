package reconciler

import (
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Conversions are kept, and the next one only converts what has changed since: most changes concern one endpoint of
// many.

// maxPatches is how many changes of a list are made one by one. Each may move all items behind it.
const maxPatches = 16

// patched returns a list, sorted by address, without what was removed and with what was added. The list itself is
// shared and stays as it is. False: it would have an address twice, or something was removed that was not in it.
func patched[T any](list []T, at func(*T) netip.Addr, gone []netip.Addr, came []T) ([]T, bool) {
	next := slices.Grow(slices.Clone(list), len(came))
	find := func(address netip.Addr) (int, bool) {
		return slices.BinarySearchFunc(next, address, func(one T, a netip.Addr) int { return at(&one).Compare(a) })
	}
	gone = slices.Clone(gone)
	for i := range came {
		address := at(&came[i])
		where, taken := find(address)
		frees := slices.Index(gone, address)
		switch {
		case taken && frees < 0:
			return nil, false
		case taken:
			next[where], gone = came[i], slices.Delete(gone, frees, frees+1)
		default:
			next = slices.Insert(next, where, came[i])
		}
	}
	for _, address := range gone {
		where, there := find(address)
		if !there {
			return nil, false
		}
		next = slices.Delete(next, where, where+1)
	}
	return next, true
}

// reported has the members of a source's snapshots that concern a target.
type reported struct{ now, trusted members }

// of returns the chosen members of a snapshot, and those of its last trusted report.
func (r *reported) of(s subscriber.Snapshot, of choice) (now, trusted []verdict.Member) {
	now = r.now.of(s, of)
	switch {
	case s.TrustedGeneration == s.Generation && len(s.TrustedMembers) == len(s.Members):
		r.trusted = r.now
	case s.TrustedMembers == nil:
		r.trusted = members{}
	default:
		s.Members, s.Generation = s.TrustedMembers, s.TrustedGeneration
		return now, r.trusted.of(s, of)
	}
	return now, r.trusted.list
}

// members are those of a snapshot that concern a target.
type members struct {
	generation uint64
	choice     string
	from       []*subscriber.Member
	list       []verdict.Member
}

// of returns the chosen members of a snapshot, one for each address, sorted by address.
func (m *members) of(s subscriber.Snapshot, of choice) []verdict.Member {
	key := of.key()
	if m.list != nil && m.choice == key {
		if m.generation == s.Generation {
			return m.list
		}
		if list, ok := m.follow(s.Members, of); ok {
			*m = members{s.Generation, key, s.Members, list}
			return list
		}
	}
	list := make([]verdict.Member, 0, len(s.Members))
	for _, member := range s.Members {
		list = of.take(list, member)
	}
	slices.SortFunc(list, func(a, b verdict.Member) int { return a.Address.Compare(b.Address) })
	*m = members{s.Generation, key, s.Members, list}
	return list
}

// follow changes the list as the members have changed. Both snapshots are sorted by name and share the members that
// are unchanged. False: too many are changed.
func (m *members) follow(now []*subscriber.Member, of choice) ([]verdict.Member, bool) {
	var gone []netip.Addr
	var came []verdict.Member
	for was := m.from; len(was)+len(now) > 0; {
		if len(was) > 0 && len(now) > 0 && was[0] == now[0] {
			was, now = was[1:], now[1:]
			continue
		}
		leaves := len(now) == 0 || len(was) > 0 && was[0].Name <= now[0].Name
		comes := len(was) == 0 || len(now) > 0 && now[0].Name <= was[0].Name
		if leaves {
			for _, one := range of.take(nil, was[0]) {
				gone = append(gone, one.Address)
			}
			was = was[1:]
		}
		if comes {
			came, now = of.take(came, now[0]), now[1:]
		}
		if len(gone)+len(came) > maxPatches {
			return nil, false
		}
	}
	return patched(m.list, func(one *verdict.Member) netip.Addr { return one.Address }, gone, came)
}

// holding has the current endpoints of a target.
type holding struct {
	desired planner.Desired
	from    []*discoveryv1.EndpointSlice // which are never altered in place
	list    []verdict.CurrentEndpoint
	once    bool // no address was listed twice
}

// of returns what the owned ones of these slices list.
func (h *holding) of(desired planner.Desired, now []*discoveryv1.EndpointSlice) []verdict.CurrentEndpoint {
	named := planner.Desired{
		Namespace: desired.Namespace, Service: desired.Service, Owner: desired.Owner,
		ManagedBy: desired.ManagedBy, FirstName: desired.FirstName,
	}
	if list, ok := h.follow(named, now); ok {
		h.from, h.list = now, list
		return list
	}
	listed := 0
	for _, slice := range now {
		if slice.DeletionTimestamp == nil && named.Owns(slice) {
			listed += len(slice.Endpoints)
		}
	}
	list := toCurrent(planner.CurrentEndpoints(named, now))
	*h = holding{named, now, list, len(list) == listed}
	return list
}

// follow changes the list as the slices have changed. False: too many are, or two list the same address, so that their
// order matters.
func (h *holding) follow(named planner.Desired, now []*discoveryv1.EndpointSlice) ([]verdict.CurrentEndpoint, bool) {
	if len(now) != len(h.from) || !h.once || !sameNaming(named, h.desired) {
		return nil, false
	}
	var gone []netip.Addr
	var came []verdict.CurrentEndpoint
	altered := false
	for i, slice := range now {
		if slice == h.from[i] {
			continue
		}
		altered = true
		was, is := toCurrent(planner.CurrentEndpoints(named, h.from[i:i+1])), toCurrent(planner.CurrentEndpoints(named, now[i:i+1]))
		if len(is) != len(slice.Endpoints) && len(is) > 0 {
			return nil, false
		}
		for len(was)+len(is) > 0 {
			if len(was) > 0 && len(is) > 0 && was[0] == is[0] {
				was, is = was[1:], is[1:]
				continue
			}
			leaves := len(is) == 0 || len(was) > 0 && was[0].Address.Compare(is[0].Address) <= 0
			comes := len(was) == 0 || len(is) > 0 && is[0].Address.Compare(was[0].Address) <= 0
			if leaves {
				gone, was = append(gone, was[0].Address), was[1:]
			}
			if comes {
				came, is = append(came, is[0]), is[1:]
			}
			if len(gone)+len(came) > maxPatches {
				return nil, false
			}
		}
	}
	if !altered || len(gone)+len(came) == 0 {
		return h.list, true
	}
	return patched(h.list, func(one *verdict.CurrentEndpoint) netip.Addr { return one.Address }, gone, came)
}

// sameNaming reports whether the same slices are owned.
func sameNaming(a, b planner.Desired) bool {
	return a.Namespace == b.Namespace && a.Service == b.Service && a.Owner.UID == b.Owner.UID &&
		a.ManagedBy == b.ManagedBy && a.FirstName == b.FirstName
}

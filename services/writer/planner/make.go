package planner

import (
	"cmp"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// group is what shares slices: one family of one source.
type group struct {
	family discoveryv1.AddressType
	source string
}

// slot is one slice on its way to what it should be. A plan changes slots in place where it
// can; repacking would write slices whose endpoints did not change.
type slot struct {
	was    *discoveryv1.EndpointSlice
	create bool // was is a blank that does not exist yet
	group  *group
	keep   []kept // endpoints of was that stay
	add    []int  // endpoints it gains, as indexes of wanted.list
	change bool   // it must be written anyway
	give   bool   // it loses an endpoint to another slice
	gains  bool   // it lists an address that it did not, or makes one ready
}

// kept says that the endpoint at an index of the slice stays as an index of wanted.list.
type kept struct{ at, want int }

func (s *slot) len() int { return len(s.keep) + len(s.add) }

// wanted is the desired endpoints by address, and where each has found its place.
type wanted struct {
	list   []Endpoint
	group  []*group
	groups []*group           // each one once, so that they compare as pointers
	index  map[netip.Addr]int // nil: the list is sorted by address, and each is there once
	next   int                // the one behind the last that was found
	placed []bool
	moved  []bool // listed now by a slice that cannot keep it
}

// Make plans the fewest writes after which our slices list exactly the desired endpoints.
// It never changes what it is given.
//
// Endpoints stay in the slice they are in, unless it changes anyway and others that do have
// room for them all. What is new goes into slices that are written
// anyway, else into the one slice that it fills best, else into new ones: so the change of
// one endpoint is one write. An endpoint that has to move (its source changed, its slice is
// over the limit) never goes to a slice that gives one away itself; so writing those that
// give last leaves no moment in which it is listed nowhere, without writing a slice twice.
func Make(d Desired, existing []*discoveryv1.EndpointSlice) Plan {
	if len(d.Families) == 0 {
		return Plan{}
	}
	w := d.wanted()
	slots := d.claim(w, existing)
	d.merge(w, slots)
	slots = d.fill(w, slots, d.names(existing))
	return d.write(w, slots)
}

func (d Desired) wanted() *wanted {
	w := &wanted{
		list:  make([]Endpoint, 0, len(d.Endpoints)),
		group: make([]*group, 0, len(d.Endpoints)),
	}
	if !sorted(d.Endpoints) {
		w.index = make(map[netip.Addr]int, len(d.Endpoints))
	}
	for i := range d.Endpoints {
		e := &d.Endpoints[i]
		address := e.Address.Unmap()
		g := w.intern(Family(address), cmp.Or(e.Source, DefaultSource))
		if !address.IsValid() || address.Zone() != "" || !slices.Contains(d.Families, g.family) {
			continue
		}
		if w.index == nil && len(w.list) > 0 && w.list[len(w.list)-1].Address == address {
			continue
		}
		if w.index != nil {
			if _, twice := w.index[address]; twice {
				continue
			}
			w.index[address] = len(w.list)
		}
		w.list = append(w.list, *e)
		w.list[len(w.list)-1].Address = address
		w.group = append(w.group, g)
	}
	w.placed = make([]bool, len(w.list))
	w.moved = make([]bool, len(w.list))
	return w
}

// sorted reports whether the endpoints come by address, as decisions are made.
func sorted(all []Endpoint) bool {
	for i := 1; i < len(all); i++ {
		if all[i].Address.Unmap().Less(all[i-1].Address.Unmap()) {
			return false
		}
	}
	return true
}

func (w *wanted) intern(family discoveryv1.AddressType, source string) *group {
	for _, g := range w.groups {
		if g.family == family && g.source == source {
			return g
		}
	}
	g := &group{family, source}
	w.groups = append(w.groups, g)
	return g
}

// claim lets each of our slices keep what belongs into it.
func (d Desired) claim(w *wanted, existing []*discoveryv1.EndpointSlice) []*slot {
	var slots []*slot
	for _, slice := range d.ours(existing) {
		s := &slot{was: slice, group: w.intern(slice.AddressType, sourceOf(slice))}
		s.claim(w, d.maxPerSlice())
		slots = append(slots, s)
	}
	// A slice all of whose endpoints now belong to another source changes its label instead
	// of its endpoints changing their slice.
	for _, s := range slots {
		if len(s.keep) > 0 {
			continue
		}
		for i := range s.was.Endpoints {
			if want, ok := w.find(&s.was.Endpoints[i]); ok && !w.placed[want] && w.group[want].family == s.group.family {
				s.group = w.group[want]
				s.claim(w, d.maxPerSlice())
				break
			}
		}
	}
	for _, s := range slots {
		s.compare(d, w)
	}
	return slots
}

func (s *slot) claim(w *wanted, limit int) {
	s.keep = make([]kept, 0, min(len(s.was.Endpoints), limit))
	for i := range s.was.Endpoints {
		want, ok := w.find(&s.was.Endpoints[i])
		if ok && !w.placed[want] && w.group[want] == s.group && len(s.keep) < limit {
			w.placed[want] = true
			s.keep = append(s.keep, kept{i, want})
		}
	}
}

// compare finds out whether the slice must be written at all, and what it gives away.
func (s *slot) compare(d Desired, w *wanted) {
	s.change = len(s.keep) != len(s.was.Endpoints) || !samePorts(s.was.Ports, d.Ports) || !d.sameMetadata(s)
	for _, k := range s.keep {
		is, want := &s.was.Endpoints[k.at], &w.list[k.want]
		if !sameEndpoint(is, want) {
			s.change = true
			s.gains = s.gains || want.Ready && !*orTrue(is.Conditions.Ready)
		}
	}
	if len(s.keep) == len(s.was.Endpoints) {
		return
	}
	for i := range s.was.Endpoints {
		if want, ok := w.find(&s.was.Endpoints[i]); ok && !w.placed[want] {
			w.moved[want] = true
			s.give = true
		}
	}
}

// merge empties slices whose endpoints change anyway, the emptiest first, as long as the
// others of them have room for all: to delete one instead of updating it costs nothing, and
// the fewer slices there are, the fewer a later change touches.
func (d Desired) merge(w *wanted, slots []*slot) {
	for _, g := range w.groups {
		need, gives := 0, false
		for want := range w.list {
			if w.group[want] == g && !w.placed[want] {
				need++
			}
		}
		var open []*slot
		for _, s := range slots {
			// One that no consumer sees yet keeps what it has: others may list it until then.
			if s.group == g && !s.endpointsUnchanged(w) && !d.unseen(s.was) {
				open, need, gives = append(open, s), need+s.len(), gives || s.give
			}
		}
		if gives { // what moves already finds its room first
			continue
		}
		fullestFirst(open)
		for i := len(open) - 1; i > 0 && need <= i*d.maxPerSlice(); i-- {
			open[i].dissolve(w)
		}
	}
}

// dissolve gives all that the slice keeps to others.
func (s *slot) dissolve(w *wanted) {
	for _, k := range s.keep {
		w.placed[k.want], w.moved[k.want], s.give = false, true, true
	}
	s.keep = nil
}

// fill finds a slice for every endpoint that has none.
func (d Desired) fill(w *wanted, slots []*slot, names *names) []*slot {
	limit := d.maxPerSlice()
	for _, g := range d.missing(w) {
		var moved, fresh []int
		for want := range w.list {
			switch {
			case w.placed[want] || w.group[want] != g:
			case w.moved[want]:
				moved = append(moved, want)
			default:
				fresh = append(fresh, want)
			}
		}
		byAddress := func(a, b int) int { return w.list[a].Address.Compare(w.list[b].Address) }
		slices.SortFunc(moved, byAddress)
		slices.SortFunc(fresh, byAddress)

		var mine []*slot
		for _, s := range slots {
			if s.group == g {
				mine = append(mine, s)
			}
		}
		// Fullest first: emptied slices are left over, to be deleted.
		open := slices.DeleteFunc(slices.Clone(mine), func(s *slot) bool { return !s.change })
		fullestFirst(open)
		for _, s := range open {
			if !s.give {
				moved = s.take(moved, limit)
			}
		}
		for _, s := range open {
			fresh = s.take(fresh, limit)
		}
		for rest := slices.Concat(moved, fresh); len(rest) > 0; {
			s := bestFit(mine, len(rest), limit)
			if s == nil {
				s = spare(slots, g)
			}
			if s == nil {
				s = &slot{group: g, create: true, was: d.blank(names.next(d, g), g.family)}
				slots = append(slots, s)
			}
			rest = s.take(rest, limit)
		}
	}
	return slots
}

func fullestFirst(slots []*slot) {
	slices.SortStableFunc(slots, func(a, b *slot) int { return cmp.Compare(b.len(), a.len()) })
}

// missing lists the groups that have endpoints without a slice: families in the Service's
// order, the default source first, then by name.
func (d Desired) missing(w *wanted) []*group {
	var groups []*group
	for want, g := range w.group {
		if !w.placed[want] && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b *group) int {
		return cmp.Or(
			cmp.Compare(slices.Index(d.Families, a.family), slices.Index(d.Families, b.family)),
			cmp.Compare(b2i(a.source != DefaultSource), b2i(b.source != DefaultSource)),
			cmp.Compare(a.source, b.source))
	})
	return groups
}

// take fills the slot up and returns what did not fit.
func (s *slot) take(wants []int, limit int) []int {
	n := max(min(limit-s.len(), len(wants)), 0)
	if n > 0 {
		s.add = append(s.add, wants[:n]...)
		s.change, s.gains = true, true
	}
	return wants[n:]
}

// bestFit is the untouched slice that all n endpoints fit into and that is fullest then.
func bestFit(slots []*slot, n, limit int) *slot {
	var best *slot
	for _, s := range slots {
		if !s.change && s.len()+n <= limit && (best == nil || s.len() > best.len()) {
			best = s
		}
	}
	return best
}

// spare is a slice of the family that would be left empty, and so deleted, in another group.
func spare(slots []*slot, g *group) *slot {
	for _, s := range slots {
		if s.group.family == g.family && s.len() == 0 && !s.give {
			s.group = g
			return s
		}
	}
	return nil
}

// write turns slots into requests. Consumers are known to miss deletions, so the last slice
// of a family is emptied; only surplus ones are deleted.
func (d Desired) write(w *wanted, slots []*slot) Plan {
	var plan Plan
	var updates []*slot
	for _, s := range slots {
		switch {
		case s.create:
			plan.Create = append(plan.Create, d.render(s, w))
		case s.len() == 0 && d.surplus(s, slots):
			plan.Delete = append(plan.Delete, s.was)
		case s.change:
			updates = append(updates, s)
		}
	}
	// Those that no consumer sees yet, those that add, those that only remove, then those
	// that give to the former.
	slices.SortStableFunc(updates, func(a, b *slot) int {
		return cmp.Or(
			cmp.Compare(b2i(!d.unseen(a.was)), b2i(!d.unseen(b.was))),
			cmp.Compare(b2i(a.give), b2i(b.give)),
			cmp.Compare(b2i(!a.gains), b2i(!b.gains)))
	})
	for _, s := range updates {
		plan.Update = append(plan.Update, d.render(s, w))
	}
	return plan
}

// surplus reports whether an empty slice may go: its family is not the Service's, another
// slice of the family has endpoints, or an earlier one is kept empty already.
func (d Desired) surplus(s *slot, slots []*slot) bool {
	if !slices.Contains(d.Families, s.group.family) {
		return true
	}
	first := true
	for _, other := range slots {
		if other == s {
			first = false
		} else if other.group.family == s.group.family && (other.len() > 0 || first) {
			return true
		}
	}
	return false
}

func (w *wanted) find(e *discoveryv1.Endpoint) (int, bool) {
	addr, ok := address(e)
	if !ok {
		return 0, false
	}
	return w.at(addr)
}

// at finds an address. Slices mostly list in order, so the next one is tried before any search.
func (w *wanted) at(address netip.Addr) (int, bool) {
	if w.index != nil {
		want, ok := w.index[address]
		return want, ok
	}
	if w.next >= len(w.list) || w.list[w.next].Address != address {
		want, ok := slices.BinarySearchFunc(w.list, address, func(e Endpoint, a netip.Addr) int { return e.Address.Compare(a) })
		if !ok {
			return 0, false
		}
		w.next = want
	}
	w.next++
	return w.next - 1, true
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

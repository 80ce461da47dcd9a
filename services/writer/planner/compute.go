package planner

import (
	"cmp"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// sliceGroup is what shares slices: one family of one source.
type sliceGroup struct {
	family discoveryv1.AddressType
	source string
}

// plannedSlice is one slice on its way to what it should be. A plan changes slots in place where it
// can; repacking would write slices whose endpoints did not change.
type plannedSlice struct {
	base              *discoveryv1.EndpointSlice
	create            bool // was is a blank that does not exist yet
	group             *sliceGroup
	kept              []keptEndpoint // endpoints of was that stay
	added             []int          // endpoints it gains, as indexes of wanted.endpoints
	changed           bool           // it must be written anyway
	releasesEndpoints bool           // it loses an endpoint to another slice
	gainsEndpoints    bool           // it lists an address that it did not, or makes one ready
}

// keptEndpoint says that the endpoint at an index of the slice stays as an index of wanted.endpoints.
type keptEndpoint struct{ baseIndex, desiredIndex int }

func (s *plannedSlice) endpointCount() int { return len(s.kept) + len(s.added) }

// desiredSet is the desired endpoints by address, and where each has found its place.
type desiredSet struct {
	endpoints      []Endpoint
	groupOf        []*sliceGroup
	groups         []*sliceGroup      // each one once, so that they compare as pointers
	indexByAddress map[netip.Addr]int // nil: the list is sorted by address, and each is there once
	nextIndex      int                // the one behind the last that was found
	placed         []bool
	moved          []bool // listed now by a slice that cannot keep it
}

// Compute plans the fewest writes after which our slices list exactly the desired endpoints.
// It never changes what it is given.
//
// Endpoints stay in the slice they are in, unless it changes anyway and others that do have
// room for them all. What is new goes into slices that are written
// anyway, else into the one slice that it fills best, else into new ones: so the change of
// one endpoint is one write. An endpoint that has to move (its source changed, its slice is
// over the limit) never goes to a slice that gives one away itself; so writing those that
// give last leaves no moment in which it is listed nowhere, without writing a slice twice.
func Compute(d Desired, existing []*discoveryv1.EndpointSlice) Plan {
	if len(d.Families) == 0 {
		return Plan{}
	}
	w := d.buildDesiredSet()
	slots := d.keepAssigned(w, existing)
	d.mergeSlices(w, slots)
	slots = d.placeMissing(w, slots, d.newNameAllocator(existing))
	return d.assemblePlan(w, slots)
}

func (d Desired) buildDesiredSet() *desiredSet {
	w := &desiredSet{
		endpoints: make([]Endpoint, 0, len(d.Endpoints)),
		groupOf:   make([]*sliceGroup, 0, len(d.Endpoints)),
	}
	if !sortedByAddress(d.Endpoints) {
		w.indexByAddress = make(map[netip.Addr]int, len(d.Endpoints))
	}
	for i := range d.Endpoints {
		e := &d.Endpoints[i]
		address := e.Address.Unmap()
		g := w.groupFor(FamilyOf(address), cmp.Or(e.Source, DefaultSource))
		if !address.IsValid() || address.Zone() != "" || !slices.Contains(d.Families, g.family) {
			continue
		}
		if w.indexByAddress == nil && len(w.endpoints) > 0 && w.endpoints[len(w.endpoints)-1].Address == address {
			continue
		}
		if w.indexByAddress != nil {
			if _, twice := w.indexByAddress[address]; twice {
				continue
			}
			w.indexByAddress[address] = len(w.endpoints)
		}
		w.endpoints = append(w.endpoints, *e)
		w.endpoints[len(w.endpoints)-1].Address = address
		w.groupOf = append(w.groupOf, g)
	}
	w.placed = make([]bool, len(w.endpoints))
	w.moved = make([]bool, len(w.endpoints))
	return w
}

// sortedByAddress reports whether the endpoints come by address, as decisions are made.
func sortedByAddress(all []Endpoint) bool {
	for i := 1; i < len(all); i++ {
		if all[i].Address.Unmap().Less(all[i-1].Address.Unmap()) {
			return false
		}
	}
	return true
}

func (w *desiredSet) groupFor(family discoveryv1.AddressType, source string) *sliceGroup {
	for _, g := range w.groups {
		if g.family == family && g.source == source {
			return g
		}
	}
	g := &sliceGroup{family, source}
	w.groups = append(w.groups, g)
	return g
}

// keepAssigned lets each of our slices keep what belongs into it.
func (d Desired) keepAssigned(w *desiredSet, existing []*discoveryv1.EndpointSlice) []*plannedSlice {
	var slots []*plannedSlice
	for _, slice := range d.ownedSlices(existing) {
		s := &plannedSlice{base: slice, group: w.groupFor(slice.AddressType, sourceOf(slice))}
		s.keepEndpoints(w, d.maxPerSlice())
		slots = append(slots, s)
	}
	// A slice all of whose endpoints now belong to another source changes its label instead
	// of its endpoints changing their slice.
	for _, s := range slots {
		if len(s.kept) > 0 {
			continue
		}
		for i := range s.base.Endpoints {
			if want, ok := w.findEndpoint(&s.base.Endpoints[i]); ok && !w.placed[want] && w.groupOf[want].family == s.group.family {
				s.group = w.groupOf[want]
				s.keepEndpoints(w, d.maxPerSlice())
				break
			}
		}
	}
	for _, s := range slots {
		s.findChanges(d, w)
	}
	return slots
}

func (s *plannedSlice) keepEndpoints(w *desiredSet, limit int) {
	s.kept = make([]keptEndpoint, 0, min(len(s.base.Endpoints), limit))
	for i := range s.base.Endpoints {
		want, ok := w.findEndpoint(&s.base.Endpoints[i])
		if ok && !w.placed[want] && w.groupOf[want] == s.group && len(s.kept) < limit {
			w.placed[want] = true
			s.kept = append(s.kept, keptEndpoint{i, want})
		}
	}
}

// findChanges finds out whether the slice must be written at all, and what it gives away.
func (s *plannedSlice) findChanges(d Desired, w *desiredSet) {
	s.changed = len(s.kept) != len(s.base.Endpoints) || !portsEqual(s.base.Ports, d.Ports) || !d.metadataEqual(s)
	for _, k := range s.kept {
		is, want := &s.base.Endpoints[k.baseIndex], &w.endpoints[k.desiredIndex]
		if !endpointEqual(is, want) {
			s.changed = true
			s.gainsEndpoints = s.gainsEndpoints || want.Ready && !*valueOrTrue(is.Conditions.Ready)
		}
	}
	if len(s.kept) == len(s.base.Endpoints) {
		return
	}
	for i := range s.base.Endpoints {
		if want, ok := w.findEndpoint(&s.base.Endpoints[i]); ok && !w.placed[want] {
			w.moved[want] = true
			s.releasesEndpoints = true
		}
	}
}

// mergeSlices empties slices whose endpoints change anyway, the emptiest first, as long as the
// others of them have room for all: to delete one instead of updating it costs nothing, and
// the fewer slices there are, the fewer a later change touches.
func (d Desired) mergeSlices(w *desiredSet, slots []*plannedSlice) {
	for _, g := range w.groups {
		need, releasing := 0, false
		for want := range w.endpoints {
			if w.groupOf[want] == g && !w.placed[want] {
				need++
			}
		}
		var open []*plannedSlice
		for _, s := range slots {
			// One that no consumer sees yet keeps what it has: others may list it until then.
			if s.group == g && !s.endpointsUnchanged(w) && !d.isForOtherService(s.base) {
				open, need, releasing = append(open, s), need+s.endpointCount(), releasing || s.releasesEndpoints
			}
		}
		if releasing { // what moves already finds its room first
			continue
		}
		sortFullestFirst(open)
		for i := len(open) - 1; i > 0 && need <= i*d.maxPerSlice(); i-- {
			open[i].releaseAll(w)
		}
	}
}

// releaseAll gives all that the slice keeps to others.
func (s *plannedSlice) releaseAll(w *desiredSet) {
	for _, k := range s.kept {
		w.placed[k.desiredIndex], w.moved[k.desiredIndex], s.releasesEndpoints = false, true, true
	}
	s.kept = nil
}

// placeMissing finds a slice for every endpoint that has none.
func (d Desired) placeMissing(w *desiredSet, slots []*plannedSlice, names *nameAllocator) []*plannedSlice {
	limit := d.maxPerSlice()
	for _, g := range d.groupsToPlace(w) {
		var moved, fresh []int
		for want := range w.endpoints {
			switch {
			case w.placed[want] || w.groupOf[want] != g:
			case w.moved[want]:
				moved = append(moved, want)
			default:
				fresh = append(fresh, want)
			}
		}
		byAddress := func(a, b int) int { return w.endpoints[a].Address.Compare(w.endpoints[b].Address) }
		slices.SortFunc(moved, byAddress)
		slices.SortFunc(fresh, byAddress)

		var mine []*plannedSlice
		for _, s := range slots {
			if s.group == g {
				mine = append(mine, s)
			}
		}
		// Fullest first: emptied slices are left over, to be deleted.
		open := slices.DeleteFunc(slices.Clone(mine), func(s *plannedSlice) bool { return !s.changed })
		sortFullestFirst(open)
		for _, s := range open {
			if !s.releasesEndpoints {
				moved = s.addEndpoints(moved, limit)
			}
		}
		for _, s := range open {
			fresh = s.addEndpoints(fresh, limit)
		}
		for rest := slices.Concat(moved, fresh); len(rest) > 0; {
			s := findBestFit(mine, len(rest), limit)
			if s == nil {
				s = findSpare(slots, g)
			}
			if s == nil {
				s = &plannedSlice{group: g, create: true, base: d.newSlice(names.nextName(d, g), g.family)}
				slots = append(slots, s)
			}
			rest = s.addEndpoints(rest, limit)
		}
	}
	return slots
}

func sortFullestFirst(slots []*plannedSlice) {
	slices.SortStableFunc(slots, func(a, b *plannedSlice) int { return cmp.Compare(b.endpointCount(), a.endpointCount()) })
}

// groupsToPlace lists the groups that have endpoints without a slice: families in the Service's
// order, the default source first, then by name.
func (d Desired) groupsToPlace(w *desiredSet) []*sliceGroup {
	var groups []*sliceGroup
	for want, g := range w.groupOf {
		if !w.placed[want] && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b *sliceGroup) int {
		return cmp.Or(
			cmp.Compare(slices.Index(d.Families, a.family), slices.Index(d.Families, b.family)),
			cmp.Compare(boolToInt(a.source != DefaultSource), boolToInt(b.source != DefaultSource)),
			cmp.Compare(a.source, b.source))
	})
	return groups
}

// addEndpoints fills the slot up and returns what did not fit.
func (s *plannedSlice) addEndpoints(wants []int, limit int) []int {
	n := max(min(limit-s.endpointCount(), len(wants)), 0)
	if n > 0 {
		s.added = append(s.added, wants[:n]...)
		s.changed, s.gainsEndpoints = true, true
	}
	return wants[n:]
}

// findBestFit is the untouched slice that all n endpoints fit into and that is fullest then.
func findBestFit(slots []*plannedSlice, n, limit int) *plannedSlice {
	var best *plannedSlice
	for _, s := range slots {
		if !s.changed && s.endpointCount()+n <= limit && (best == nil || s.endpointCount() > best.endpointCount()) {
			best = s
		}
	}
	return best
}

// findSpare is a slice of the family that would be left empty, and so deleted, in another group.
func findSpare(slots []*plannedSlice, g *sliceGroup) *plannedSlice {
	for _, s := range slots {
		if s.group.family == g.family && s.endpointCount() == 0 && !s.releasesEndpoints {
			s.group = g
			return s
		}
	}
	return nil
}

// assemblePlan turns slots into requests. Consumers are known to miss deletions, so the last slice
// of a family is emptied; only surplus ones are deleted.
func (d Desired) assemblePlan(w *desiredSet, slots []*plannedSlice) Plan {
	var plan Plan
	var updates []*plannedSlice
	for _, s := range slots {
		switch {
		case s.create:
			plan.Create = append(plan.Create, d.renderSlice(s, w))
		case s.endpointCount() == 0 && d.isSurplus(s, slots):
			plan.Delete = append(plan.Delete, s.base)
		case s.changed:
			updates = append(updates, s)
		}
	}
	// Those that no consumer sees yet, those that add, those that only remove, then those
	// that give to the former.
	slices.SortStableFunc(updates, func(a, b *plannedSlice) int {
		return cmp.Or(
			cmp.Compare(boolToInt(!d.isForOtherService(a.base)), boolToInt(!d.isForOtherService(b.base))),
			cmp.Compare(boolToInt(a.releasesEndpoints), boolToInt(b.releasesEndpoints)),
			cmp.Compare(boolToInt(!a.gainsEndpoints), boolToInt(!b.gainsEndpoints)))
	})
	for _, s := range updates {
		plan.Update = append(plan.Update, d.renderSlice(s, w))
	}
	return plan
}

// isSurplus reports whether an empty slice may go: its family is not the Service's, another
// slice of the family has endpoints, or an earlier one is kept empty already.
func (d Desired) isSurplus(s *plannedSlice, slots []*plannedSlice) bool {
	if !slices.Contains(d.Families, s.group.family) {
		return true
	}
	first := true
	for _, other := range slots {
		if other == s {
			first = false
		} else if other.group.family == s.group.family && (other.endpointCount() > 0 || first) {
			return true
		}
	}
	return false
}

func (w *desiredSet) findEndpoint(e *discoveryv1.Endpoint) (int, bool) {
	addr, ok := firstAddress(e)
	if !ok {
		return 0, false
	}
	return w.findAddress(addr)
}

// findAddress finds an address. Slices mostly list in order, so the next one is tried before any search.
func (w *desiredSet) findAddress(address netip.Addr) (int, bool) {
	if w.indexByAddress != nil {
		want, ok := w.indexByAddress[address]
		return want, ok
	}
	if w.nextIndex >= len(w.endpoints) || w.endpoints[w.nextIndex].Address != address {
		want, ok := slices.BinarySearchFunc(w.endpoints, address, func(e Endpoint, a netip.Addr) int { return e.Address.Compare(a) })
		if !ok {
			return 0, false
		}
		w.nextIndex = want
	}
	w.nextIndex++
	return w.nextIndex - 1, true
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

package planner

import (
	"cmp"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// sliceGroup is the endpoints that may share a slice: one family of one group with the same ports.
type sliceGroup struct {
	family   discoveryv1.AddressType
	name     string // Endpoint.Group
	portList int    // index of desiredSet.portLists
}

// plannedSlice is one slice while the plan is computed. Existing slices keep their endpoints where
// possible: repacking would write slices whose endpoints did not change.
type plannedSlice struct {
	base              *discoveryv1.EndpointSlice
	create            bool // base is new and has only a name and a family
	group             *sliceGroup
	basePortList      int            // that the ports of base are; -1: none
	kept              []keptEndpoint // endpoints of base that stay
	added             []int          // endpoints to add, as indexes of desiredSet.endpoints
	changed           bool           // the slice must be written
	releasesEndpoints bool           // an endpoint moves to another slice
	gainsEndpoints    bool           // an address is added or becomes ready
}

// keptEndpoint is an endpoint that stays in its slice: its index in the slice and in desiredSet.endpoints.
type keptEndpoint struct{ baseIndex, desiredIndex int }

func (s *plannedSlice) endpointCount() int { return len(s.kept) + len(s.added) }

// desiredSet is the desired endpoints, sorted by address, and whether each has a slice.
type desiredSet struct {
	endpoints []Endpoint
	groupOf   []*sliceGroup
	groups    []*sliceGroup                // each group once, so that pointers can be compared
	placed    []bool                       // has a slice
	moved     []bool                       // listed by a slice that cannot keep it
	portLists [][]discoveryv1.EndpointPort // each once, Desired.Ports first
	next      int                          // index after the one that findEndpoint found last: slices usually list runs of addresses
}

// Compute plans the fewest writes after which the owned slices list exactly the desired endpoints. It
// does not modify its arguments.
//
// Endpoints stay in their slice, unless it changes anyway and the other changing slices have room for
// all of them. New endpoints go into slices that are written anyway, else into the fullest slice with
// room for all, else into new slices. So the change of one endpoint is one write.
//
// An endpoint that must move (its group or its ports changed, or its slice is over the limit) never goes to a slice
// that releases endpoints itself. Slices that release endpoints are written last, so a moving endpoint
// is always listed, and no slice is written twice. A slice that is being deleted is emptied after that, in case it waits
// for a finalizer.
func Compute(d Desired, existing []*discoveryv1.EndpointSlice) Plan {
	if len(d.Families) == 0 {
		return Plan{}
	}
	set := d.buildDesiredSet()
	planned := d.planExisting(set, existing)
	d.mergeSlices(set, planned)
	planned = d.placeEndpoints(set, planned, d.newNameAllocator(existing))
	plan := d.assemblePlan(set, planned)
	for _, slice := range d.OwnedSlices(existing) {
		if isTerminating(slice) { // the others list by now what it should
			plan.Update = appendEmptied(plan.Update, slice)
		}
	}
	return plan
}

func (d Desired) buildDesiredSet() *desiredSet {
	set := &desiredSet{endpoints: make([]Endpoint, 0, len(d.Endpoints))}
	portListOf := d.addPortLists(set)
	for _, e := range d.Endpoints {
		e.Address = e.Address.Unmap()
		if (e.Address.IsValid() && e.Address.Zone() == "") != (e.FQDN != "") && slices.Contains(d.Families, e.Family()) {
			set.endpoints = append(set.endpoints, e)
		}
	}
	slices.SortStableFunc(set.endpoints, Endpoint.Compare)
	set.endpoints = slices.CompactFunc(set.endpoints, func(a, b Endpoint) bool { return a.Compare(b) == 0 })
	set.groupOf = make([]*sliceGroup, len(set.endpoints))
	for i, e := range set.endpoints {
		name := d.DefaultGroup
		if len(d.GroupLabels) > 0 {
			name = cmp.Or(e.Group, name)
		}
		set.groupOf[i] = set.groupFor(e.Family(), name, portListOf[e.PortGroup])
	}
	set.placed = make([]bool, len(set.endpoints))
	set.moved = make([]bool, len(set.endpoints))
	return set
}

// addPortLists adds the ports to the set, and returns the index of each group's. Groups with the same ports are one.
func (d Desired) addPortLists(set *desiredSet) map[string]int {
	set.portLists = append(set.portLists, d.Ports)
	if len(d.PortGroups) == 0 {
		return nil
	}
	indexes := make(map[string]int, len(d.PortGroups))
	for _, name := range slices.Sorted(maps.Keys(d.PortGroups)) {
		ports := d.PortGroups[name]
		if indexes[name] = set.findPorts(ports); indexes[name] < 0 {
			indexes[name] = len(set.portLists)
			set.portLists = append(set.portLists, ports)
		}
	}
	return indexes
}

// findPorts returns the index of these ports, or -1.
func (set *desiredSet) findPorts(ports []discoveryv1.EndpointPort) int {
	return slices.IndexFunc(set.portLists, func(known []discoveryv1.EndpointPort) bool { return PortsEqual(known, ports) })
}

func (set *desiredSet) groupFor(family discoveryv1.AddressType, name string, portList int) *sliceGroup {
	for _, g := range set.groups {
		if g.family == family && g.name == name && g.portList == portList {
			return g
		}
	}
	g := &sliceGroup{family, name, portList}
	set.groups = append(set.groups, g)
	return g
}

// planExisting plans the owned slices, each with the endpoints that it keeps.
func (d Desired) planExisting(set *desiredSet, existing []*discoveryv1.EndpointSlice) []*plannedSlice {
	var planned []*plannedSlice
	for _, slice := range d.OwnedSlices(existing) {
		if isTerminating(slice) {
			continue
		}
		ports := set.findPorts(slice.Ports)
		s := &plannedSlice{base: slice, basePortList: ports, group: set.groupFor(slice.AddressType, d.Group(slice), max(ports, 0))}
		s.keepEndpoints(set, d.maxPerSlice())
		planned = append(planned, s)
	}
	// If all endpoints of a slice now belong to another group or have other ports, the slice keeps them
	// and changes its group labels or its ports.
	for _, s := range planned {
		if len(s.kept) > 0 {
			continue
		}
		for i := range s.base.Endpoints {
			index, ok := set.findEndpoint(s.base, i)
			if ok && !set.placed[index] && set.groupOf[index].family == s.group.family {
				s.group = set.groupOf[index]
				s.keepEndpoints(set, d.maxPerSlice())
				break
			}
		}
	}
	for _, s := range planned {
		s.findChanges(d, set)
	}
	return planned
}

func (s *plannedSlice) keepEndpoints(set *desiredSet, limit int) {
	s.kept = make([]keptEndpoint, 0, min(len(s.base.Endpoints), limit))
	for i := range s.base.Endpoints {
		index, ok := set.findEndpoint(s.base, i)
		if ok && !set.placed[index] && set.groupOf[index] == s.group && len(s.kept) < limit {
			set.placed[index] = true
			s.kept = append(s.kept, keptEndpoint{i, index})
		}
	}
}

// findChanges determines whether the slice must be written, and whether it releases endpoints.
func (s *plannedSlice) findChanges(d Desired, set *desiredSet) {
	s.changed = len(s.kept) != len(s.base.Endpoints) || s.basePortList != s.group.portList || !d.metadataEqual(s)
	for _, k := range s.kept {
		current, desired := &s.base.Endpoints[k.baseIndex], &set.endpoints[k.desiredIndex]
		if !endpointEqual(current, desired) {
			s.changed = true
			s.gainsEndpoints = s.gainsEndpoints || desired.Ready && !ptr.Deref(current.Conditions.Ready, true)
		}
	}
	if len(s.kept) == len(s.base.Endpoints) {
		return
	}
	for i := range s.base.Endpoints {
		if index, ok := set.findEndpoint(s.base, i); ok && !set.placed[index] {
			set.moved[index] = true
			s.releasesEndpoints = true
		}
	}
}

// mergeSlices empties the smallest of the slices whose endpoints change anyway, as long as the others of
// them have room for all endpoints. A delete costs as much as an update, and with fewer slices a later
// change writes fewer.
func (d Desired) mergeSlices(set *desiredSet, planned []*plannedSlice) {
	for _, g := range set.groups {
		need, releasing := 0, false
		for index := range set.endpoints {
			if set.groupOf[index] == g && !set.placed[index] {
				need++
			}
		}
		var changing []*plannedSlice
		for _, s := range planned {
			// A slice for another Service keeps its endpoints: until it is repaired, consumers may
			// find them only in other slices.
			if s.group == g && !s.endpointsUnchanged(set) && d.Names(s.base) {
				changing, need, releasing = append(changing, s), need+s.endpointCount(), releasing || s.releasesEndpoints
			}
		}
		if releasing { // endpoints that already move need the room first
			continue
		}
		sortFullestFirst(changing)
		for i := len(changing) - 1; i > 0 && need <= i*d.maxPerSlice(); i-- {
			changing[i].releaseAll(set)
		}
	}
}

// releaseAll releases all endpoints that the slice keeps.
func (s *plannedSlice) releaseAll(set *desiredSet) {
	for _, k := range s.kept {
		set.placed[k.desiredIndex], set.moved[k.desiredIndex], s.releasesEndpoints = false, true, true
	}
	s.kept = nil
}

// placeEndpoints adds each endpoint that has no slice yet to one, creating slices if necessary.
func (d Desired) placeEndpoints(set *desiredSet, planned []*plannedSlice, names *nameAllocator) []*plannedSlice {
	limit := d.maxPerSlice()
	for _, g := range d.groupsToPlace(set) {
		var moved, unlisted []int
		for index := range set.endpoints {
			switch {
			case set.placed[index] || set.groupOf[index] != g:
			case set.moved[index]:
				moved = append(moved, index)
			default:
				unlisted = append(unlisted, index)
			}
		}

		var ofGroup []*plannedSlice
		for _, s := range planned {
			if s.group == g {
				ofGroup = append(ofGroup, s)
			}
		}
		// Fullest first, so that emptied slices stay empty and are deleted.
		changing := slices.DeleteFunc(slices.Clone(ofGroup), func(s *plannedSlice) bool { return !s.changed })
		sortFullestFirst(changing)
		for _, s := range changing {
			if !s.releasesEndpoints {
				moved = s.addEndpoints(moved, limit)
			}
		}
		for _, s := range changing {
			unlisted = s.addEndpoints(unlisted, limit)
		}
		for rest := slices.Concat(moved, unlisted); len(rest) > 0; {
			s := findBestFit(ofGroup, len(rest), limit)
			if s == nil {
				s = takeSpareSlice(planned, g)
			}
			if s == nil {
				s = &plannedSlice{group: g, create: true, base: &discoveryv1.EndpointSlice{
					ObjectMeta:  metav1.ObjectMeta{Name: names.nextName(d, g), Namespace: d.Namespace},
					AddressType: g.family,
				}}
				planned = append(planned, s)
			}
			rest = s.addEndpoints(rest, limit)
		}
	}
	return planned
}

func sortFullestFirst(planned []*plannedSlice) {
	slices.SortStableFunc(planned, func(a, b *plannedSlice) int { return cmp.Compare(b.endpointCount(), a.endpointCount()) })
}

// groupsToPlace returns the groups that have endpoints without a slice: by family in the Service's
// order, then the default group, then other groups by name, then by ports.
func (d Desired) groupsToPlace(set *desiredSet) []*sliceGroup {
	var groups []*sliceGroup
	for index, g := range set.groupOf {
		if !set.placed[index] && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b *sliceGroup) int {
		return cmp.Or(
			cmp.Compare(slices.Index(d.Families, a.family), slices.Index(d.Families, b.family)),
			cmp.Compare(boolToInt(a.name != d.DefaultGroup), boolToInt(b.name != d.DefaultGroup)),
			cmp.Compare(a.name, b.name),
			cmp.Compare(a.portList, b.portList))
	})
	return groups
}

// addEndpoints adds endpoints up to the limit, and returns the rest.
func (s *plannedSlice) addEndpoints(indexes []int, limit int) []int {
	n := max(min(limit-s.endpointCount(), len(indexes)), 0)
	if n > 0 {
		s.added = append(s.added, indexes[:n]...)
		s.changed, s.gainsEndpoints = true, true
	}
	return indexes[n:]
}

// findBestFit returns the fullest unchanged slice with room for all n endpoints, or nil.
func findBestFit(planned []*plannedSlice, n, limit int) *plannedSlice {
	var best *plannedSlice
	for _, s := range planned {
		if !s.changed && s.endpointCount()+n <= limit && (best == nil || s.endpointCount() > best.endpointCount()) {
			best = s
		}
	}
	return best
}

// takeSpareSlice returns a slice of the same family that would otherwise be empty and deleted, after moving
// it to this group; nil if there is none.
func takeSpareSlice(planned []*plannedSlice, g *sliceGroup) *plannedSlice {
	for _, s := range planned {
		if s.group.family == g.family && s.endpointCount() == 0 && !s.releasesEndpoints {
			s.group = g
			return s
		}
	}
	return nil
}

// assemblePlan converts planned slices to writes. Consumers are known to miss deletions, so the last
// slice of a family is emptied and kept; only surplus slices are deleted.
func (d Desired) assemblePlan(set *desiredSet, planned []*plannedSlice) Plan {
	var plan Plan
	var updates []*plannedSlice
	for _, s := range planned {
		switch {
		case s.create:
			plan.Create = append(plan.Create, d.mutate(d.renderSlice(s, set)))
		case s.endpointCount() == 0 && d.isSurplus(s, planned):
			plan.Delete = append(plan.Delete, s.base)
		case s.changed || d.Mutate != nil:
			updates = append(updates, s)
		}
	}
	// In this order: slices that consumers do not find yet, slices that gain endpoints, slices that
	// only lose some, and slices that release endpoints to the others.
	slices.SortStableFunc(updates, func(a, b *plannedSlice) int {
		return cmp.Or(
			cmp.Compare(boolToInt(d.Names(a.base)), boolToInt(d.Names(b.base))),
			cmp.Compare(boolToInt(a.releasesEndpoints), boolToInt(b.releasesEndpoints)),
			cmp.Compare(boolToInt(!a.gainsEndpoints), boolToInt(!b.gainsEndpoints)))
	})
	for _, s := range updates {
		s.keepReleased(set)
		base := *s.base
		base.ManagedFields = nil // see renderSlice
		if slice := d.mutate(d.renderSlice(s, set)); !equality.Semantic.DeepEqual(slice, &base) {
			plan.Update = append(plan.Update, slice)
		}
	}
	return plan
}

func (d Desired) mutate(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if d.Mutate != nil {
		d.Mutate(slice)
	}
	return slice
}

// keepReleased keeps in place what another slice releases to one that lists it already, as after a plan that was carried
// out in part. If that is all that the slice gets, it is not written.
func (s *plannedSlice) keepReleased(set *desiredSet) {
	if len(s.added) == 0 {
		return
	}
	for i := range s.base.Endpoints {
		index, ok := set.findEndpoint(s.base, i)
		if at := slices.Index(s.added, index); ok && at >= 0 {
			s.added = slices.Delete(s.added, at, at+1)
			s.kept = append(s.kept, keptEndpoint{i, index})
		}
	}
}

// isSurplus reports whether an empty slice can be deleted: the Service does not have its family, another
// slice of the family has endpoints, or an earlier one is already kept empty.
func (d Desired) isSurplus(s *plannedSlice, planned []*plannedSlice) bool {
	if !slices.Contains(d.Families, s.group.family) {
		return true
	}
	first := true
	for _, other := range planned {
		if other == s {
			first = false
		} else if other.group.family == s.group.family && (other.endpointCount() > 0 || first) {
			return true
		}
	}
	return false
}

// findEndpoint returns the index of an endpoint's address.
func (set *desiredSet) findEndpoint(slice *discoveryv1.EndpointSlice, i int) (int, bool) {
	key, ok := firstAddress(slice, i)
	if !ok {
		return 0, false
	}
	index, found := set.next, set.next < len(set.endpoints) && set.endpoints[set.next].key() == key
	if !found {
		index, found = slices.BinarySearchFunc(set.endpoints, Endpoint{Address: key.ip, FQDN: key.fqdn}, Endpoint.Compare)
	}
	if found {
		set.next = index + 1
	}
	return index, found
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

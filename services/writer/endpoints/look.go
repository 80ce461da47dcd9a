package endpoints

import (
	"cmp"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// View is a target with all of its addresses: what is decided of each, and what the slices list.
type View struct {
	Listing

	Addresses  []Entered // by address
	Forbidden  bool      // nothing may be written at all: its guards say why
	OtherPorts bool      // some slice of a managed target lists other ports than are decided

	of posted
}

// Entered is an address that somebody speaks of, or that the slices list.
type Entered struct {
	Address netip.Addr
	Decided *Backend // as it is to be listed; nil: it is not, or nothing is decided since the target is refused and does not follow its probes
	Listed  *Backend // as the slices list it; nil: they do not
}

// AsDecided reports whether the slices list the address as is decided.
func (e *Entered) AsDecided() bool {
	if e.Decided == nil || e.Listed == nil {
		return e.Decided == e.Listed
	}
	return *e.Decided == *e.Listed
}

// Explain says of an address what Board.Explain would have said when the View was taken.
func (v *View) Explain(address netip.Addr) Explanation { return v.of.explain(address) }

// Look returns the targets of a selection with all of their addresses, sorted by namespace and
// name, and what they are worth. The loops wait only while their last words are copied.
func (b *Board) Look(selects deltaset.Filter) ([]View, Status) {
	b.mu.Lock()
	var all []View
	for group, p := range b.targets {
		if selects == nil || selects(group) {
			all = append(all, View{of: *p})
		}
	}
	status := b.status(selects)
	b.mu.Unlock()
	for i := range all {
		all[i].look()
	}
	slices.SortFunc(all, func(a, b View) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Service, b.Service))
	})
	return all, status
}

func (v *View) look() {
	t, told := &v.of.target, v.of.all()
	v.Listing, v.OtherPorts = v.of.listing(), v.of.otherPorts
	v.Forbidden = t.State == Managed && !t.Decision.Write
	listed := told.backends
	if t.State == Managed {
		listed = make([]Backend, 0, len(t.Input.Held))
		for _, h := range t.Input.Held {
			listed = append(listed, Backend{h.Address, h.Conditions, h.Source, h.Zone})
		}
	}
	decided := make([]Entered, 0, len(t.Decision.Endpoints))
	for _, e := range t.Decision.Endpoints {
		one := Entered{Address: e.Address}
		if e.Listed {
			one.Decided = named(Backend{e.Address, e.Conditions, e.Source, e.Zone})
		}
		decided = append(decided, one)
	}
	held := make([]Entered, 0, len(listed))
	for _, b := range listed {
		held = append(held, Entered{Address: b.Address, Listed: named(b)})
	}
	merge(decided, held, func(a, b Entered) int { return a.Address.Compare(b.Address) }, func(d, h *Entered) {
		switch {
		case d == nil:
			v.Addresses = append(v.Addresses, *h)
		case h == nil:
			v.Addresses = append(v.Addresses, *d)
		default:
			v.Addresses = append(v.Addresses, Entered{d.Address, d.Decided, h.Listed})
		}
	})
}

// named is a backend whose source has a name also where its slice has no label.
func named(b Backend) *Backend {
	b.Source = cmp.Or(b.Source, planner.DefaultSource)
	return &b
}

// otherPorts reports whether a slice with endpoints of a managed target lists other ports than
// are told.
func (t *Target) otherPorts(is told) bool {
	ours := planner.Desired{Namespace: t.Namespace, Service: t.Service, ManagedBy: t.ManagedBy}
	return t.State == Managed && slices.ContainsFunc(t.Slices, func(s *discoveryv1.EndpointSlice) bool {
		return s.DeletionTimestamp == nil && len(s.Endpoints) > 0 && ours.Owns(s) && !slices.Equal(ports(s.Ports), is.ports)
	})
}

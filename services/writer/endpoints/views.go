package endpoints

import (
	"cmp"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// TargetView is a target with all of its addresses: what was decided about each, and what the slices
// list.
type TargetView struct {
	Summary

	Addresses     []AddressView // by address
	WritesBlocked bool          // nothing may be written: its guards say why
	PortsDiffer   bool          // a slice of a managed target lists other ports than decided

	stored storedTarget
}

// AddressView is an address that a source or a slice lists.
type AddressView struct {
	Address netip.Addr
	Desired *Backend // as decided; nil: not listed, or no decision since the target is rejected and does not follow its probes
	Current *Backend // as the slices list it; nil: not listed
}

// InSync reports whether the slices list the address as decided.
func (e *AddressView) InSync() bool {
	if e.Desired == nil || e.Current == nil {
		return e.Desired == e.Current
	}
	return *e.Desired == *e.Current
}

// Explain returns what Store.Explain would have returned when the view was created.
func (v *TargetView) Explain(address netip.Addr) Explanation { return v.stored.explainAddress(address) }

// Views returns the selected targets with all of their addresses, sorted by namespace and name, and the
// status. It holds the lock only while it copies the last decisions.
func (s *Store) Views(filter deltaset.Filter) ([]TargetView, Status) {
	s.mu.Lock()
	var all []TargetView
	for group, p := range s.targets {
		if filter == nil || filter(group) {
			all = append(all, TargetView{stored: *p})
		}
	}
	status := s.statusFor(filter)
	s.mu.Unlock()
	for i := range all {
		all[i].fillAddresses()
	}
	slices.SortFunc(all, func(a, b TargetView) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Service, b.Service))
	})
	return all, status
}

func (v *TargetView) fillAddresses() {
	t, published := &v.stored.target, v.stored.publishedBackends()
	v.Summary, v.PortsDiffer = v.stored.summarize(), v.stored.portsDiffer
	v.WritesBlocked = t.State == Managed && !t.Decision.Write
	listed := published.backends
	if t.State == Managed {
		listed = make([]Backend, 0, len(t.Input.Current))
		for _, h := range t.Input.Current {
			listed = append(listed, Backend{h.Address, h.Conditions, h.Source, h.Zone})
		}
	}
	desired := make([]AddressView, 0, len(t.Decision.Endpoints))
	for _, e := range t.Decision.Endpoints {
		address := AddressView{Address: e.Address}
		if e.Listed {
			address.Desired = withSourceName(Backend{e.Address, e.Conditions, e.Source, e.Zone})
		}
		desired = append(desired, address)
	}
	current := make([]AddressView, 0, len(listed))
	for _, b := range listed {
		current = append(current, AddressView{Address: b.Address, Current: withSourceName(b)})
	}
	mergeSorted(desired, current, func(a, b AddressView) int { return a.Address.Compare(b.Address) }, func(d, h *AddressView) {
		switch {
		case d == nil:
			v.Addresses = append(v.Addresses, *h)
		case h == nil:
			v.Addresses = append(v.Addresses, *d)
		default:
			v.Addresses = append(v.Addresses, AddressView{d.Address, d.Desired, h.Current})
		}
	})
}

// withSourceName returns a backend with the default source if its slice has no source label.
func withSourceName(b Backend) *Backend {
	b.Source = cmp.Or(b.Source, planner.DefaultSource)
	return &b
}

// portsDiffer reports whether a slice with endpoints of a managed target lists other ports than the
// published ones.
func (t *Target) portsDiffer(published publishedState) bool {
	desired := planner.Desired{Namespace: t.Namespace, Service: t.Service, ManagedBy: t.ManagedBy}
	return t.State == Managed && slices.ContainsFunc(t.Slices, func(s *discoveryv1.EndpointSlice) bool {
		return s.DeletionTimestamp == nil && len(s.Endpoints) > 0 && desired.Owns(s) && !slices.Equal(convertPorts(s.Ports), published.ports)
	})
}

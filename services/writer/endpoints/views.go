package endpoints

import (
	"net/netip"
	"slices"
	"time"

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
func (v *TargetView) Explain(address netip.Addr, now time.Time) Explanation {
	return v.stored.explainAddress(address, now)
}

// Views returns the selected targets with all of their addresses, sorted by namespace and name, and the
// status. It holds the lock only while it copies the last decisions.
func (s *Store) Views(filter deltaset.Filter) ([]TargetView, Status) {
	s.mu.Lock()
	var all []TargetView
	for _, p := range s.selectTargets(filter) {
		all = append(all, TargetView{stored: *p})
	}
	status := s.statusFor(filter)
	s.mu.Unlock()
	for i := range all {
		all[i].fill()
	}
	return all, status
}

func (v *TargetView) fill() {
	t := &v.stored.target
	v.Summary, v.PortsDiffer = v.stored.summarize(), v.stored.portsDiffer
	v.WritesBlocked = t.State == Managed && !t.Decision.Write
	var addresses []netip.Addr
	for i := range t.Decision.Endpoints {
		addresses = append(addresses, t.Decision.Endpoints[i].Address)
	}
	for i := range t.Input.Current {
		addresses = append(addresses, t.Input.Current[i].Address)
	}
	for i := range v.stored.published.backends {
		addresses = append(addresses, v.stored.published.backends[i].Address)
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	for _, address := range slices.Compact(addresses) {
		decided, _ := v.stored.decided(address)
		v.Addresses = append(v.Addresses, AddressView{address, ListedBackend(&decided), v.stored.currentBackend(address)})
	}
}

// portsDiffer reports whether a slice with endpoints of a managed target lists other ports than the
// published ones.
func (t *Target) portsDiffer(published publishedState) bool {
	desired := t.ownedSlices()
	return t.State == Managed && slices.ContainsFunc(t.Slices, func(s *discoveryv1.EndpointSlice) bool {
		if s.DeletionTimestamp != nil || len(s.Endpoints) == 0 || !desired.Owns(s) {
			return false
		}
		listed := convertPorts(s.Ports)
		differ := func(address netip.Addr) bool {
			ports, others := published.portsAt[address]
			if !others {
				ports = published.Ports
			}
			return !samePorts(listed, ports)
		}
		if len(published.portsAt) == 0 { // all endpoints of the slice have the same ports
			return differ(netip.Addr{})
		}
		return slices.ContainsFunc(planner.EndpointsOf(s), func(e planner.Endpoint) bool { return differ(e.Address) })
	})
}

// samePorts reports whether two lists have the same ports, whatever the Service calls them.
func samePorts(a, b []Port) bool {
	return slices.EqualFunc(a, b, func(a, b Port) bool {
		a.ServicePort, b.ServicePort = 0, 0
		return a == b
	})
}

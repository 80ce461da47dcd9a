package endpoints

import (
	"cmp"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Summary is a target with the state of its endpoints.
type Summary struct {
	TargetStatus

	Namespace, Service        string
	Ready, Draining, NotReady int
	OutOfSync                 int // see Target.CountOutOfSync
	Held                      int // addresses that would be listed otherwise if no guard held them
}

func (p *storedTarget) summarize() Summary {
	l := Summary{
		Namespace: p.target.Namespace, Service: p.target.Service, TargetStatus: p.published.TargetStatus,
		OutOfSync: p.target.OutOfSync, Held: p.held,
	}
	for _, b := range p.publishedBackends().backends {
		switch {
		case b.Conditions.Ready:
			l.Ready++
		case b.Conditions.Serving:
			l.Draining++
		default:
			l.NotReady++
		}
	}
	return l
}

// View is a target as it was last put. What it refers to must not be modified.
type View struct {
	Summary

	Target   *Target
	Backends []Backend // as published, by address
}

// Views returns the selected targets, sorted by namespace and name, and the status. It holds the lock only while it
// copies the last decisions.
func (s *Store) Views(selection *stream.Selection) ([]View, Status) {
	s.mu.Lock()
	var stored []storedTarget
	for group, p := range s.targets {
		if selection.Has(group) {
			stored = append(stored, *p)
		}
	}
	status := s.status()
	s.mu.Unlock()
	all := make([]View, len(stored))
	for i := range stored {
		all[i] = View{Summary: stored[i].summarize(), Target: &stored[i].target, Backends: stored[i].published.backends}
	}
	slices.SortFunc(all, func(a, b View) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Service, b.Service))
	})
	return all, status
}

// Wanted returns what the decision lists of an address; nil: it does not list it.
func Wanted(e *verdict.Endpoint) *Backend {
	if !e.Listed {
		return nil
	}
	return &Backend{
		Address: e.Address, Conditions: e.Conditions, Source: cmp.Or(e.Source, verdict.DefaultSource), Zone: e.Zone, Hostname: e.Hostname,
	}
}

func currentBackend(c *verdict.CurrentEndpoint) Backend {
	return Backend{
		Address: c.Address, Conditions: c.Conditions, Source: cmp.Or(c.Source, verdict.DefaultSource), Zone: c.Zone, Hostname: c.Hostname,
	}
}

// Current returns what the slices list of an address; nil: they do not list it.
func (v *View) Current(address netip.Addr) *Backend {
	if v.State != Managed {
		if b, ok := Find(v.Backends, address, func(b *Backend) netip.Addr { return b.Address }); ok {
			found := *b
			found.Source = cmp.Or(found.Source, verdict.DefaultSource)
			return &found
		}
		return nil
	}
	if c, ok := Find(v.Target.Input.Current, address, func(c *verdict.CurrentEndpoint) netip.Addr { return c.Address }); ok {
		found := currentBackend(c)
		return &found
	}
	return nil
}

// Find finds the item of an address in a list sorted by address, which has each address once.
func Find[T any](items []T, address netip.Addr, of func(*T) netip.Addr) (*T, bool) {
	i, ok := slices.BinarySearchFunc(items, address, func(x T, a netip.Addr) int { return of(&x).Compare(a) })
	if !ok {
		return nil, false
	}
	return &items[i], true
}

// CountOutOfSync counts the addresses that the slices of a managed or paused target do not list as decided: all of them
// if they list other ports. Nothing else defines what is in sync.
func (t *Target) CountOutOfSync() (differ int) {
	if t.State != Managed && t.State != Paused {
		return 0
	}
	current, listed := t.Input.Current, 0
	for i := range t.Decision.Endpoints { // both are sorted by address
		wanted := Wanted(&t.Decision.Endpoints[i])
		if wanted == nil {
			continue
		}
		for listed++; len(current) > 0 && current[0].Address.Less(wanted.Address); current = current[1:] {
			differ++
		}
		if len(current) == 0 || current[0].Address != wanted.Address {
			differ++
			continue
		}
		if currentBackend(&current[0]) != *wanted {
			differ++
		}
		current = current[1:]
	}
	if t.portsDiffer() {
		return max(listed, len(t.Input.Current))
	}
	return differ + len(current)
}

// portsDiffer reports whether a slice with endpoints lists other ports than decided.
func (t *Target) portsDiffer() bool {
	wanted := publishedState{TargetStatus: TargetStatus{Ports: convertPorts(t.Ports)}}
	wanted.addDecided(t.Decision.Endpoints)
	return slices.ContainsFunc(t.ownedSlices().OwnedSlices(t.Slices), func(s *discoveryv1.EndpointSlice) bool {
		if len(s.Endpoints) == 0 {
			return false
		}
		listed := convertPorts(s.Ports)
		differ := func(address netip.Addr) bool {
			ports, others := wanted.portsAt[address]
			if !others {
				ports = wanted.Ports
			}
			return !slices.Equal(listed, ports)
		}
		if len(wanted.portsAt) == 0 { // all endpoints of the slice have the same ports
			return differ(netip.Addr{})
		}
		return slices.ContainsFunc((planner.Desired{}).EndpointsOf(s), func(e planner.Endpoint) bool { return differ(e.Address) })
	})
}

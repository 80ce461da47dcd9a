package endpoints

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Listing is a target and what became of its endpoints.
type Listing struct {
	Namespace, Service   string
	State                State
	Reason, Message      string
	Ports                []Port
	Ready, Draining, Out int
	Sources              []string // by name
	Guards               []verdict.Guard
	DecidesAt            time.Time // by itself; zero: with the next change
	FollowsProbes        bool      // see Target
}

func (p *posted) listing() Listing {
	l := Listing{
		Namespace: p.target.Namespace, Service: p.target.Service,
		State: p.told.state, Reason: p.told.reason, Message: p.told.message, Ports: p.told.ports,
		Guards: p.target.Decision.Guards, DecidesAt: p.target.Decision.Wake,
		FollowsProbes: p.target.FollowsProbes,
	}
	for _, b := range p.all().backends {
		switch {
		case b.Conditions.Ready:
			l.Ready++
		case b.Conditions.Serving:
			l.Draining++
		default:
			l.Out++
		}
	}
	for i := range p.target.Sources {
		l.Sources = append(l.Sources, p.target.Sources[i].Source)
	}
	slices.Sort(l.Sources)
	return l
}

// Worth is what a source is worth. What it is not believed for is for guards to say: this is
// about the link, and about what the source says of itself.
func Worth(s *subscriber.Snapshot) Source {
	w := Source{Name: s.Source, Alive: s.Connected && s.SyncedInStream}
	switch {
	case !s.EverSynced:
		w.Reason = "not heard since this writer started"
	case !s.Connected:
		w.Reason = "its link is down"
	case !s.SyncedInStream:
		w.Reason = "its link is up again, and not in step yet"
	case s.Membership.State != subscriber.Synced:
		w.Reason = fmt.Sprintf("its membership is %s: %s", s.Membership.State, s.Membership.Reason)
	case s.Addresses.State != subscriber.Synced:
		w.Reason = fmt.Sprintf("its addresses are %s: %s", s.Addresses.State, s.Addresses.Reason)
	}
	return w
}

// Explanation is the chain from what is known of an address to what is listed.
type Explanation struct {
	Listing

	Address netip.Addr
	Leading bool

	Witnesses []Witness      // the sources, by name
	Probe     *verdict.Probe // nil: this address is not probed
	Held      *Backend       // what the slices list; nil: they do not
	Told      *Backend       // what is listed by this decision; nil: it is not

	Judged verdict.Endpoint // zero: nothing was decided about the address
	Guard  *verdict.Guard   // that holds this endpoint back; nil: none does

	Conclusion string // what is made of it, in a sentence or two
	Advice     string // what to do about it; may be empty
}

// Witness is the word of one source.
type Witness struct {
	Source

	Heard       bool            // since this writer started
	Member      *verdict.Member // nil: it does not list the address
	Observation uint64          // the last complete one
	ObservedAt  time.Time       // when we heard of it; zero: never
}

func (p *posted) explain(address netip.Addr) Explanation {
	t := &p.target
	e := Explanation{Listing: p.listing(), Address: address, Leading: t.Leading}
	for i := range t.Input.Sources {
		e.Witnesses = append(e.Witnesses, t.witness(&t.Input.Sources[i], address))
	}
	if probe, probed := t.Input.Probes[address]; probed && t.Input.Limits.Probing {
		e.Probe = &probe
	}
	if b, ok := find(p.all().backends, address, func(b Backend) netip.Addr { return b.Address }); ok {
		e.Told = &b
	}
	e.Held = e.Told
	if t.State == Managed {
		e.Held = nil
		if h, ok := find(t.Input.Held, address, func(h verdict.Held) netip.Addr { return h.Address }); ok {
			e.Held = &Backend{h.Address, h.Conditions, cmp.Or(h.Source, verdict.DefaultSource), h.Zone}
		}
	}
	judged, ok := find(t.Decision.Endpoints, address, func(j verdict.Endpoint) netip.Addr { return j.Address })
	if ok {
		e.Judged = judged
		for i, g := range t.Decision.Guards {
			if g.Rule == judged.Rule && (g.Source == "" || g.Source == judged.Source) {
				e.Guard = &t.Decision.Guards[i]
			}
		}
	}
	e.Conclusion, e.Advice = e.conclude()
	return e
}

func (t *Target) witness(s *verdict.Source, address netip.Addr) Witness {
	w := Witness{Source: Source{Name: s.Name, Alive: s.Alive}, Heard: s.Heard, Observation: s.Observation, ObservedAt: s.ObservationAt}
	for i := range t.Sources {
		if t.Sources[i].Source == s.Name {
			w.Source = Worth(&t.Sources[i])
		}
	}
	if m, ok := find(s.Members, address, func(m verdict.Member) netip.Addr { return m.Address }); ok && s.Heard {
		w.Member = &m
	}
	return w
}

// find finds the item of an address among those sorted by address; there is one at most.
func find[T any](items []T, address netip.Addr, of func(T) netip.Addr) (item T, ok bool) {
	i, ok := slices.BinarySearchFunc(items, address, func(x T, a netip.Addr) int { return of(x).Compare(a) })
	if !ok {
		return item, false
	}
	return items[i], true
}

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

// Summary is a target with the state of its endpoints.
type Summary struct {
	TargetStatus

	Namespace, Service        string
	Ready, Draining, NotReady int
	OutOfSync                 int      // addresses of a managed target that its slices do not list as decided
	Sources                   []string // by name
	Guards                    []verdict.Guard
	NextDecisionAt            time.Time // without a change; zero: only on a change
	FollowsProbes             bool      // see Target
}

func (p *storedTarget) summarize() Summary {
	l := Summary{
		Namespace: p.target.Namespace, Service: p.target.Service,
		TargetStatus: p.published.TargetStatus, Guards: p.target.Decision.Guards, NextDecisionAt: p.target.Decision.Wake,
		FollowsProbes: p.target.FollowsProbes,
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
	l.OutOfSync = p.countOutOfSync()
	for i := range p.target.Sources {
		l.Sources = append(l.Sources, p.target.Sources[i].FeedName())
	}
	slices.Sort(l.Sources)
	return l
}

// countOutOfSync counts the addresses of a managed target that its slices do not list as decided: all of them if the
// slices list other ports.
func (p *storedTarget) countOutOfSync() int {
	if p.target.State != Managed {
		return 0
	}
	desired, current, differ := p.publishedBackends().backends, p.target.Input.Current, 0
	if p.portsDiffer {
		return max(len(desired), len(current))
	}
	for len(desired) > 0 || len(current) > 0 { // both are sorted by address
		var order int
		switch {
		case len(desired) == 0:
			order = 1
		case len(current) == 0:
			order = -1
		default:
			order = desired[0].Address.Compare(current[0].Address)
		}
		if order != 0 || desired[0].Conditions != current[0].Conditions || desired[0].Zone != current[0].Zone ||
			desired[0].Hostname != current[0].Hostname {
			differ++
		}
		if order <= 0 {
			desired = desired[1:]
		}
		if order >= 0 {
			current = current[1:]
		}
	}
	return differ
}

// NewSourceStatus describes a source's link and what the source reports about itself. Whether it is
// trusted is up to the guards.
func NewSourceStatus(s *subscriber.Snapshot) SourceStatus {
	w := SourceStatus{Name: s.Source, Connected: s.Connected && s.SyncedInStream}
	switch {
	case s.Denial != "":
		w.Reason = s.NotSyncedReason()
	case !s.EverSynced:
		w.Reason = "not synced since start"
	case !s.Connected:
		w.Reason = "link down"
	case !s.SyncedInStream:
		w.Reason = "link up, resyncing"
	case s.Membership.State != subscriber.Synced:
		w.Reason = fmt.Sprintf("membership %s: %s", s.Membership.State, s.Membership.Reason)
	case s.Addresses.State != subscriber.Synced:
		w.Reason = fmt.Sprintf("addresses %s: %s", s.Addresses.State, s.Addresses.Reason)
	}
	return w
}

// Explanation is how reports and probe status of an address lead to what is listed.
type Explanation struct {
	Summary

	Address netip.Addr
	Leading bool

	Reports  []SourceReport   // by source
	Probe    *verdict.Probe   // nil: this address is not probed
	Current  *Backend         // what the slices list; nil: not listed
	Desired  *Backend         // what is published; nil: not listed
	Endpoint verdict.Endpoint // the decision; zero: there is none about the address
	Guard    *verdict.Guard   // the guard that holds this endpoint; nil: none

	Steps      []Step // the same as text, in the order of the decision
	Conclusion string // the outcome, in a sentence or two
	Advice     string // what to do; may be empty
}

// Step is what one stage contributed to a decision.
type Step struct{ Stage, Detail string }

// SourceReport is what one source reports about the address.
type SourceReport struct {
	SourceStatus

	EverSynced  bool            // once since this writer started
	Member      *verdict.Member // nil: not listed
	Observation uint64          // the last complete one
	ObservedAt  time.Time       // when it was received; zero: never
}

func (p *storedTarget) explainAddress(address netip.Addr, now time.Time) Explanation {
	t := &p.target
	e := Explanation{Summary: p.summarize(), Address: address, Leading: t.Leading, Current: p.currentBackend(address)}
	for i := range t.Input.Sources {
		e.Reports = append(e.Reports, t.sourceReport(&t.Input.Sources[i], address))
	}
	decided, ok := p.decided(address)
	if probe, probed := t.Input.Probe(address, decided.Ports.Probe); probed && t.Input.Limits.Probing {
		e.Probe = &probe
	}
	if b, ok := findAddress(p.publishedBackends().backends, address, func(b Backend) netip.Addr { return b.Address }); ok {
		e.Desired = &b
	}
	if e.Endpoint = decided; !ok && slices.ContainsFunc(e.Reports, func(r SourceReport) bool { return r.Member != nil }) {
		decided.Rule = verdict.RuleAllowlist // it blocks all writes, so only current endpoints have a decision
	}
	for i, g := range t.Decision.Guards {
		if g.Rule == decided.Rule && (g.Source == "" || decided.Source == "" || g.Source == decided.Source) {
			e.Guard = &t.Decision.Guards[i]
		}
	}
	e.describe(now)
	return e
}

// currentBackend returns what the slices list of an address; nil: they do not list it.
func (p *storedTarget) currentBackend(address netip.Addr) *Backend {
	t := &p.target
	if t.State == Managed {
		if c, ok := findAddress(t.Input.Current, address, func(c verdict.CurrentEndpoint) netip.Addr { return c.Address }); ok {
			return &Backend{
				Address:    c.Address,
				Conditions: c.Conditions,
				Source:     cmp.Or(c.Source, verdict.DefaultSource),
				Zone:       c.Zone,
				Hostname:   c.Hostname,
			}
		}
		return nil
	}
	if b, ok := findAddress(p.published.backends, address, func(b Backend) netip.Addr { return b.Address }); ok {
		b.Source = cmp.Or(b.Source, verdict.DefaultSource)
		return &b
	}
	return nil
}

func (p *storedTarget) decided(address netip.Addr) (verdict.Endpoint, bool) {
	return findAddress(p.target.Decision.Endpoints, address, func(e verdict.Endpoint) netip.Addr { return e.Address })
}

// ListedBackend returns what a decision lists of an address; nil: nothing.
func ListedBackend(e *verdict.Endpoint) *Backend {
	if !e.Listed {
		return nil
	}
	return &Backend{
		Address:    e.Address,
		Conditions: e.Conditions,
		Source:     cmp.Or(e.Source, verdict.DefaultSource),
		Zone:       e.Zone,
		Hostname:   e.Hostname,
	}
}

func (t *Target) sourceReport(s *verdict.Source, address netip.Addr) SourceReport {
	w := SourceReport{
		SourceStatus: SourceStatus{Name: s.Name, Connected: s.Connected},
		EverSynced:   s.EverSynced,
		Observation:  s.Observation,
		ObservedAt:   s.ObservationAt,
	}
	for i := range t.Sources {
		if t.Sources[i].Source == s.Name {
			w.SourceStatus = NewSourceStatus(&t.Sources[i])
		}
	}
	if w.Connected && s.MembershipSynced {
		w.Reason = cmp.Or(s.Unusable, w.Reason)
	}
	if m, ok := findAddress(s.Members, address, func(m verdict.Member) netip.Addr { return m.Address }); ok && s.EverSynced {
		w.Member = &m
	}
	return w
}

// findAddress finds the item of an address in a list sorted by address, which has each address once.
func findAddress[T any](items []T, address netip.Addr, of func(T) netip.Addr) (item T, ok bool) {
	i, ok := slices.BinarySearchFunc(items, address, func(x T, a netip.Addr) int { return of(x).Compare(a) })
	if !ok {
		return item, false
	}
	return items[i], true
}

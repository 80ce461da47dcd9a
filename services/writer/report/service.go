package report

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func (b *Builder) serviceReport(v *endpoints.View, f *report.Filter, now time.Time) *writerv1.ServiceReport {
	s := &writerv1.ServiceReport{
		Namespace: v.Namespace, Name: v.Service, State: writerv1.TargetState(v.State), Problem: report.Worst(v.Target.Problems),
		Ready: new(uint32(v.Ready)), Draining: new(uint32(v.Draining)), NotReady: new(uint32(v.NotReady)),
		OutOfSync: new(uint32(v.OutOfSync)), Held: new(uint32(v.Held)),
	}
	if !b.whole && !f.Detailed() {
		return s
	}
	for i, p := range v.Target.Problems {
		s.Problems = append(s.Problems, withAge(p, v.Target.Since[i], now))
	}
	for _, p := range v.Ports {
		s.Ports = append(s.Ports, &writerv1.Port{
			Name: p.Name, Protocol: p.Protocol, Number: uint32(p.Number), AppProtocol: p.AppProtocol, ServicePort: uint32(p.ServicePort),
		})
	}
	for i := range v.Target.Sources {
		s.Sources = append(s.Sources, v.Target.Sources[i].FeedName())
	}
	slices.Sort(s.GetSources())
	if at := v.Target.Decision.Wake; !at.IsZero() {
		s.NextDecisionIn = report.Age(now, at)
	}
	addresses := addressesOf(v, f)
	for _, a := range addresses[:b.limit(len(addresses), maxAddresses)] {
		s.Addresses = append(s.Addresses, addressReport(v, a, now))
	}
	s.AddressesOmitted = uint32(len(addresses) - len(s.GetAddresses()))
	for _, w := range b.Writes.Of(v.Namespace, v.Service) {
		aged := proto.CloneOf(w.WriteReport)
		aged.Age = report.Age(w.At, now)
		s.Writes = append(s.Writes, aged)
	}
	return s
}

// addressesOf returns the addresses of a Service that a source or a slice lists, as far as a filter selects them, and
// the one that it names.
func addressesOf(v *endpoints.View, f *report.Filter) (all []netip.Addr) {
	if f.Address.IsValid() && f.Service != "" {
		return []netip.Addr{f.Address}
	}
	t := v.Target
	add := func(a netip.Addr) {
		if !f.Address.IsValid() || a == f.Address {
			all = append(all, a)
		}
	}
	for i := range t.Input.Sources {
		for _, m := range t.Input.Sources[i].Members {
			if f.Node == "" || m.Name == f.Node {
				add(m.Address)
			}
		}
	}
	if f.Node == "" {
		for i := range t.Decision.Endpoints {
			add(t.Decision.Endpoints[i].Address)
		}
		for i := range t.Input.Current {
			add(t.Input.Current[i].Address)
		}
		for i := range v.Backends {
			add(v.Backends[i].Address)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// stateName names the state of a node.
func stateName(s verdict.State) string {
	if s == verdict.Unknown {
		return "UNKNOWN"
	}
	return strings.TrimPrefix(s.String(), "NODE_STATE_")
}

// addressReport says why an address is, or is not, an endpoint.
func addressReport(v *endpoints.View, address netip.Addr, now time.Time) *writerv1.AddressReport {
	t := v.Target
	r := &writerv1.AddressReport{Address: address.String()}
	current := v.Current(address)
	wanted := current // of a Service that nothing is decided about
	decided, ok := endpoints.Find(t.Decision.Endpoints, address, func(e *verdict.Endpoint) netip.Addr { return e.Address })
	if ok {
		r.Rule, r.Reason = string(decided.Rule), text(decided.Reason.String())
		wanted = endpoints.Wanted(decided)
	} else if v.State == endpoints.Managed {
		wanted = nil
	}
	r.Now, r.Wanted = backend(current), backend(wanted)
	var since time.Time
	var member *verdict.Member
	for i := range t.Input.Sources {
		s := &t.Input.Sources[i]
		in := &writerv1.AddressInSource{Source: s.Name}
		if m, ok := endpoints.Find(s.Members, address, func(m *verdict.Member) netip.Addr { return m.Address }); ok && s.EverSynced {
			in.Node, in.State, in.Age = text(m.Name), stateName(m.State), report.Age(m.Since, now)
			if member == nil || decided != nil && s.Name == decided.Source {
				member, since = m, m.Since
			}
		}
		r.Reports = append(r.Reports, in)
	}
	slices.SortFunc(r.GetReports(), func(a, b *writerv1.AddressInSource) int { return cmp.Compare(a.GetSource(), b.GetSource()) })
	var port uint16
	if decided != nil {
		port = decided.Ports.Probe
	}
	if p, probed := t.Input.Probe(address, port); probed && t.Input.Limits.Probing {
		r.Probe = &writerv1.ProbeReport{
			Result: p.Health.String(), Age: report.Age(p.Since, now), Detail: text(p.Detail), PassedAge: report.Age(p.LastPassed, now),
		}
		if p.Since.After(since) {
			since = p.Since
		}
	}
	r.Age = report.Age(since, now)
	differs := (current == nil) != (wanted == nil) || current != nil && *current != *wanted
	r.Problem = ofAddress(v, r, decided, member, differs && v.State == endpoints.Managed)
	return r
}

func backend(b *endpoints.Backend) *writerv1.Backend {
	if b == nil {
		return nil
	}
	return &writerv1.Backend{
		Address: b.Address.String(), Ready: b.Conditions.Ready, Serving: b.Conditions.Serving, Terminating: b.Conditions.Terminating,
		Source: b.Source, Zone: text(b.Zone), Hostname: text(b.Hostname),
	}
}

// ofAddress returns why an address is not ready, or not listed as wanted; nil: it is.
func ofAddress(
	v *endpoints.View,
	r *writerv1.AddressReport,
	decided *verdict.Endpoint,
	member *verdict.Member,
	differs bool,
) *report.Problem {
	object := fmt.Sprintf("address %s of %s", r.GetAddress(), objectName(v.Namespace, v.Service))
	problem := func(level report.Level, reason, format string, args ...any) *report.Problem {
		return report.NewProblem(level, reason, object, format, args...)
	}
	if decided != nil && decided.Held {
		for _, g := range v.Target.Decision.Guards {
			if g.Rule == decided.Rule && (g.Source == "" || g.Source == decided.Source) {
				return problem(report.Warning, GuardReasons[g.Rule], "%s", g.Message)
			}
		}
	}
	switch d := &v.Target.Decision; {
	case v.State == endpoints.Managed && decided == nil && !d.Write && len(d.Guards) > 0:
		return problem(report.Warning, GuardReasons[d.Guards[0].Rule], "%s", d.Guards[0].Message)
	case differs:
		return problem(report.Error, "OutOfSync", "Its slices do not list it as wanted.")
	case r.GetWanted().GetReady():
		return nil
	case decided != nil && decided.Verdict == verdict.StandBy:
		return problem(report.Note, "StandBy", "Source %s stands by: those before it have enough ready endpoints.", decided.Source)
	case member == nil:
		for i := range v.Target.Input.Sources {
			if s := &v.Target.Input.Sources[i]; !s.EverSynced {
				return problem(report.Warning, "SourceNotSynced", "Source %s has not synced, so it may list the address.", s.Name)
			}
		}
		return problem(report.Warning, "NotReported", "No source of the Service reports it.")
	case r.GetProbe().GetResult() == probe.Failing.String():
		return problem(report.Warning, "ProbeFailing", "Its probe fails: %s.", r.GetProbe().GetDetail())
	case r.GetProbe().GetResult() == probe.Pending.String():
		return problem(report.Note, "ProbePending", "Its probe has no result yet.")
	case decided != nil && decided.Rule == verdict.RuleTrust:
		return problem(report.Warning, "SourceNotTrusted", "Not added: %s.", decided.Reason)
	case member.State == verdict.NotReady:
		return problem(report.Warning, "NodeNotReady", "Node %s is NOT_READY.", member.Name)
	case member.State == verdict.Draining:
		return problem(report.Note, "NodeDraining", "Node %s is DRAINING.", member.Name)
	case member.State == verdict.Unknown:
		return problem(report.Warning, "StateUnknown", "Node %s has a state that this version does not know.", member.Name)
	}
	return nil
}

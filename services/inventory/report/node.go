package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// parseFilter reads a filter. Without exported Services, a Service in it selects nothing. Its error is for the client.
func parseFilter(text string, exports bool) (f report.Filter, err error) {
	if f, err = report.ParseFilter(text); !exports {
		f.Namespace, f.Service = "", ""
	}
	return f, err
}

// isOfInterest returns whether a node of a name may be shown in full.
func isOfInterest(f *report.Filter) func(name string) bool {
	return func(name string) bool { return f.Detailed() && (f.Node == "" || f.Node == name) }
}

// selectsNode reports whether a filter selects a node of a Service that it selects.
func selectsNode(f *report.Filter, m *roster.Member, resolver *roster.Resolver) bool {
	switch {
	case f.Node != "":
		return m.Name == f.Node
	case !f.Address.IsValid():
		return true
	case slices.Contains(m.InternalIPs, f.Address), slices.Contains(m.Holding.Addresses(), f.Address):
		return true
	}
	return slices.ContainsFunc(resolver.Describe(m.Node).Candidates, func(c roster.CandidateAddress) bool { return c.Address == f.Address })
}

// nodeLine is the line of a node and what its details are made of.
type nodeLine struct {
	*inventoryv1.NodeReport

	service  string
	member   *roster.Member
	resolver *roster.Resolver
}

// key sorts like the lines.
func (l nodeLine) key() string { return l.service + "\x00" + l.member.Name }

// describeNodes returns the lines of the nodes of a set that a filter selects.
func describeNodes(s collector.Snapshot, service string, f report.Filter, now time.Time) (lines []nodeLine) {
	for i := range s.Members {
		m := &s.Members[i]
		if !selectsNode(&f, m, &s.Resolver) {
			continue
		}
		n := &inventoryv1.NodeReport{
			Name: truncate(m.Name), Zone: truncate(m.Zone), Problem: nodeProblem(m, now), Excluded: m.Excluded.String(),
		}
		if m.Published != nil {
			n.State, n.Age = inventoryv1.NodeState(m.Published.State), report.Age(m.Published.Since, now)
			for _, a := range m.Published.Addresses {
				n.Addresses = append(n.Addresses, a.String())
			}
		}
		lines = append(lines, nodeLine{NodeReport: n, service: service, member: m, resolver: &s.Resolver})
	}
	return lines
}

// addDetails adds what was read about the node and decided by that.
func (l nodeLine) addDetails(now time.Time) {
	m := l.member
	l.Service, l.Uid, l.Hostname = l.service, truncate(m.UID), m.Hostname
	l.StateReason, l.ProviderId, l.SystemUuid = truncate(m.StateReason), truncate(m.ProviderID), truncate(m.SystemUUID)
	l.LastChange, l.LastChangeAge = truncate(describeChange(m)), report.Age(m.ChangedAt, now)
	for _, p := range m.Ports {
		l.Ports = append(l.Ports, p.String())
	}
	if m.Published != nil {
		l.ServerId = m.Published.ServerID
	}
	if m.Excluded != 0 {
		return // nothing more is decided
	}
	facts := l.resolver.Describe(m.Node)
	l.Match, l.ServerId = facts.Match, cmp.Or(facts.ServerID, l.GetServerId())
	add := func(c roster.CandidateAddress) {
		reasons := slices.DeleteFunc([]string{c.Reason, m.Holding.Describe(c.Address)}, func(s string) bool { return s == "" })
		l.Candidates = append(l.Candidates, &inventoryv1.CandidateAddress{
			Address: c.Address.String(), From: truncate(c.From), Reason: truncate(strings.Join(reasons, "; ")),
			Chosen: new(m.Published != nil && slices.Contains(m.Published.Addresses, c.Address)),
		})
	}
	for _, c := range facts.Candidates {
		add(c)
	}
	for _, a := range m.Holding.Addresses() {
		if !slices.ContainsFunc(facts.Candidates, func(c roster.CandidateAddress) bool { return c.Address == a }) {
			add(roster.CandidateAddress{Address: a})
		}
	}
}

// describeChange says what changed last in what is published of a node; empty: nothing.
func describeChange(m *roster.Member) string {
	if m.ChangedAt.IsZero() {
		return ""
	}
	before, now := describePublished(m.Previous), describePublished(m.Published)
	if before == now {
		return "zone, labels, ports or identifiers"
	}
	return before + " → " + now
}

func describePublished(n *roster.Node) string {
	if n == nil {
		return "not published"
	}
	return fmt.Sprintf("%s at %s", n.State, strings.Trim(fmt.Sprint(n.Addresses), "[]"))
}

// truncate limits a text that someone else chose.
func truncate(text string) string { return display.Truncate(text, contract.MaxTextLength) }

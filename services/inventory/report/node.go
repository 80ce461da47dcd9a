package report

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// nodeLine is the line of a node and what its details are made of.
type nodeLine struct {
	*inventoryv1.NodeReport

	service  string
	member   *roster.Member
	resolver *resolve.Resolver
}

// key sorts like the lines.
func (l nodeLine) key() string { return l.service + "\x00" + l.member.Name }

// describeNodes returns the lines of the nodes of a set that a filter selects.
func describeNodes(s collector.Snapshot, service string, f filter, now time.Time) (lines []nodeLine) {
	for i := range s.Members {
		m := &s.Members[i]
		if !f.selectsNode(m, &s.Resolver) {
			continue
		}
		n := &inventoryv1.NodeReport{Name: truncate(m.Name), Zone: truncate(m.Zone), Problem: nodeProblem(m, now)}
		if m.Node != nil {
			n.State, n.Age, n.Zone = inventoryv1.NodeState(m.Node.State), age(now, m.Node.Since), m.Node.Zone
			for _, a := range m.Node.Addresses {
				n.Addresses = append(n.Addresses, a.String())
			}
		}
		if m.Excluded != 0 {
			n.Excluded = m.Excluded.String()
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
	if !m.ChangedAt.IsZero() {
		l.LastChange, l.LastChangeAge = truncate(describeChange(m.Previous, m.Node)), age(now, m.ChangedAt)
	}
	for _, p := range m.Ports {
		l.Ports = append(l.Ports, p.String())
	}
	if m.Node != nil {
		l.ServerId = m.Node.ServerID
	}
	if m.Excluded != 0 {
		return // nothing more is decided
	}
	facts := l.resolver.Describe(&m.Candidate)
	l.Match, l.ServerId = facts.Match, cmp.Or(facts.ServerID, l.GetServerId())
	add := func(c resolve.Candidate) {
		reasons := slices.DeleteFunc([]string{c.Reason, m.Holding.Describe(c.Address)}, func(s string) bool { return s == "" })
		l.Candidates = append(l.Candidates, &inventoryv1.CandidateAddress{
			Address: c.Address.String(), From: truncate(c.From), Reason: truncate(strings.Join(reasons, "; ")),
			Chosen: new(m.Node != nil && slices.Contains(m.Node.Addresses, c.Address)),
		})
	}
	current := map[netip.Addr]bool{}
	for _, c := range facts.Candidates {
		current[c.Address] = true
		add(c)
	}
	for _, a := range m.Holding.Addresses() {
		if !current[a] {
			add(resolve.Candidate{Address: a})
		}
	}
}

// describeChange says what changed in what is published of a node; nil: it was not, or is not published.
func describeChange(before, now *roster.Node) string {
	switch {
	case before == nil:
		return "published"
	case now == nil:
		return "no longer published"
	}
	var all []string
	for _, c := range []struct{ what, before, now string }{
		{"state", before.State.String(), now.State.String()},
		{"addresses", fmt.Sprint(before.Addresses), fmt.Sprint(now.Addresses)},
		{"zone", before.Zone, now.Zone},
		{"server", before.ServerID, now.ServerID},
		{"ports", fmt.Sprint(before.Ports), fmt.Sprint(now.Ports)},
	} {
		if c.before != c.now {
			all = append(all, fmt.Sprintf("%s %s → %s", c.what, cmp.Or(c.before, "none"), cmp.Or(c.now, "none")))
		}
	}
	return cmp.Or(strings.Join(all, ", "), "labels or identifiers")
}

// truncate limits a text that someone else chose.
func truncate(text string) string { return display.Truncate(text, contract.MaxTextLength) }

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

// members returns the filter of the nodes of a set that a filter selects.
func members(f report.Filter) roster.Filter {
	return roster.Filter{Name: f.Node, Address: f.Address, Details: f.Detailed()}
}

// nodeLine is the line of a node and what its details are made of.
type nodeLine struct {
	*inventoryv1.NodeReport

	service string
	member  *roster.Member
}

// key sorts like the lines.
func (l nodeLine) key() string { return l.service + "\x00" + l.member.Name }

// describeNodes returns the lines of the nodes of a set that a filter selects.
func describeNodes(s collector.Snapshot, service string, now time.Time) (lines []nodeLine) {
	for i := range s.Members {
		m := &s.Members[i]
		n := &inventoryv1.NodeReport{
			Name: truncate(m.Name), Zone: truncate(m.Zone), Problem: nodeProblem(m, now), Excluded: m.Excluded.String(),
		}
		if m.IsPublished() {
			n.State, n.Age = inventoryv1.NodeState(m.State), report.Age(m.Since, now)
			for _, a := range m.Addresses {
				n.Addresses = append(n.Addresses, a.String())
			}
		}
		lines = append(lines, nodeLine{NodeReport: n, service: service, member: m})
	}
	return lines
}

// addDetails adds what was read about the node and decided by that.
func (l nodeLine) addDetails(now time.Time) {
	m := l.member
	l.Service, l.Uid, l.Hostname = l.service, truncate(m.UID), m.Hostname
	l.StateReason, l.ProviderId, l.SystemUuid = truncate(m.StateReason), truncate(m.ProviderID), truncate(m.SystemUUID)
	l.LastChange, l.LastChangeAge = truncate(describeChange(m)), report.Age(m.ChangedAt, now)
	l.Match, l.ServerId = m.Match, cmp.Or(m.Server, m.ServerID)
	for _, p := range m.Ports {
		l.Ports = append(l.Ports, p.String())
	}
	for _, c := range m.Candidates {
		l.Candidates = append(l.Candidates, &inventoryv1.CandidateAddress{
			Address: c.Address.String(), From: truncate(c.From), Reason: truncate(c.Reason),
			Chosen: new(slices.Contains(m.Addresses, c.Address)),
		})
	}
}

// describeChange says what changed last in what is published of a node; empty: nothing.
func describeChange(m *roster.Member) string {
	if m.ChangedAt.IsZero() {
		return ""
	}
	before, now := describePublished(m.Previous), describePublished(m.Node)
	if before == now {
		return "zone, labels, ports or identifiers"
	}
	return before + " → " + now
}

func describePublished(n *roster.Node) string {
	if n == nil || !n.IsPublished() {
		return "not published"
	}
	return fmt.Sprintf("%s at %s", n.State, strings.Trim(fmt.Sprint(n.Addresses), "[]"))
}

// truncate limits a text that someone else chose.
func truncate(text string) string { return display.Truncate(text, contract.MaxTextLength) }

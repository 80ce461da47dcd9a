package report

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

const maxFilter = 512 // bytes

// filter is the filter of a request. The zero value selects everything.
type filter struct {
	text string

	namespace, service string // only of exported Services; the service as namespace/name, empty: all of the namespace
	node               string
	address            netip.Addr
}

// parseFilter reads a filter, as the comments of GetReportRequest define it. Its error is for the client.
func parseFilter(text string, exports bool) (f filter, err error) {
	if len(text) > maxFilter || !utf8.ValidString(text) {
		return f, status.Errorf(codes.InvalidArgument, "filter is longer than %d bytes or not UTF-8", maxFilter)
	}
	f.text, f.node = text, text
	if namespace, rest, ok := strings.Cut(text, "/"); ok {
		var name string
		name, f.node, _ = strings.Cut(rest, "/")
		if exports {
			f.namespace = namespace
			if name != "" {
				f.service = namespace + "/" + name
			}
		}
	}
	if a, err := netip.ParseAddr(f.node); err == nil {
		f.node, f.address = "", a.Unmap().WithZone("")
	}
	return f, nil
}

// hasDetails reports whether the filter selects single nodes, which are shown in full.
func (f *filter) hasDetails() bool { return f.service != "" || f.isNode() }

func (f *filter) isNode() bool { return f.node != "" || f.address.IsValid() }

func (f *filter) selectsService(name string) bool {
	if f.service != "" {
		return name == f.service
	}
	return f.namespace == "" || strings.HasPrefix(name, f.namespace+"/")
}

// isOfInterest reports whether a node of this name may be shown in full.
func (f *filter) isOfInterest(name string) bool {
	return f.hasDetails() && (f.node == "" || f.node == name)
}

// selectsNode reports whether the filter selects a node of a Service that it selects.
func (f *filter) selectsNode(m *roster.Member, resolver *roster.Resolver) bool {
	switch {
	case f.node != "":
		return m.Name == f.node
	case !f.address.IsValid():
		return true
	case slices.Contains(m.InternalIPs, f.address), slices.Contains(m.Holding.Addresses(), f.address):
		return true
	}
	return slices.ContainsFunc(resolver.Describe(m.Node).Candidates, func(c roster.CandidateAddress) bool { return c.Address == f.address })
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
func describeNodes(s collector.Snapshot, service string, f filter, now time.Time) (lines []nodeLine) {
	for i := range s.Members {
		m := &s.Members[i]
		if !f.selectsNode(m, &s.Resolver) {
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

package roster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Member is a node of the source and what was decided about it, at one moment.
type Member struct {
	*Node

	Previous  *Node     // as published before the last change; nil: it was not
	ChangedAt time.Time // when that was; zero: there was none

	// Only with details, and not of excluded nodes:

	Match      string // how its server was found, or why it was not; empty: addresses do not come from the cloud
	Server     string // the ID of the server that matches, even if it was listed too early
	Candidates []CandidateAddress
}

// CandidateAddress is an address that a node has, could have, waits for or has lost.
type CandidateAddress struct {
	Address netip.Addr
	From    string // where it was read; empty: the current data does not have it
	Reason  string // for or against it, and which other nodes have or claim it
}

// Filter selects nodes. The zero value selects all of them.
type Filter struct {
	Name    string
	Address netip.Addr // of one of the candidates of a node, or an InternalIP of it
	Details bool
}

// Members returns the nodes of the source that a filter selects, in no order. Its cost grows with the number of all
// nodes.
func (r *Roster) Members(f Filter) []Member {
	all := make([]Member, 0, len(r.members))
	for _, m := range r.members {
		one := m.Member
		if f.Name != "" && f.Name != m.Name {
			continue
		}
		if m.Excluded == 0 && (f.Details || f.Address.IsValid()) {
			r.describe(m, &one)
		}
		if f.Address.IsValid() && !slices.Contains(m.InternalIPs, f.Address) &&
			!slices.ContainsFunc(one.Candidates, func(c CandidateAddress) bool { return c.Address == f.Address }) {
			continue
		}
		all = append(all, one)
	}
	return all
}

// maxDescribed limits how many addresses of one server are described.
const maxDescribed = 32

// describe adds what a member was resolved by, and who else has, had or claims its addresses.
func (r *Roster) describe(m *member, out *Member) {
	from := func(netip.Addr) string { return "the Node" }
	all := canonical(m.InternalIPs)
	switch {
	case r.resolver.method == ByRecord:
		from = func(netip.Addr) string { return "the source" }
	case r.resolver.method == ByCloud && r.resolver.cloud.startedAt.IsZero():
		out.Match, all = notListed, nil
	case r.resolver.method == ByCloud:
		found := r.resolver.cloud.matchServer(m.Node)
		out.Match, out.Server, all = found.describe(m.Node), found.id, nil
		if found.server != nil {
			all, from = serverAddresses(found.server), func(a netip.Addr) string { return describeNIC(found.server, a) }
		}
	}
	filtered := r.resolver.filter(m.Node, all)
	for _, a := range all[:min(len(all), maxDescribed)] {
		reasons := []string{r.resolver.describeAddress(m.Node, filtered, a)}
		if text := r.assigner.describe(m, a); text != "" {
			reasons = append(reasons, text)
		}
		out.Candidates = append(out.Candidates, CandidateAddress{Address: a, From: from(a), Reason: strings.Join(reasons, "; ")})
	}
	for _, a := range m.described() {
		if !slices.ContainsFunc(out.Candidates, func(c CandidateAddress) bool { return c.Address == a }) {
			out.Candidates = append(out.Candidates, CandidateAddress{Address: a, Reason: r.assigner.describe(m, a)})
		}
	}
}

// describeAddress says at which stage of the filter an address was dropped, or how it was chosen.
func (r *resolver) describeAddress(n *Node, addresses filteredAddrs, a netip.Addr) string {
	chosen, usable := addresses.chosen[familyOf(a)], len(addresses.ofFamily(familyOf(a)))
	switch {
	case !canBeNodeAddress(a):
		return "loopback, link-local, multicast or unspecified address"
	case !slices.Contains(addresses.inCIDRs, a):
		return "outside of SECURED_SUBNET_CIDR " + joinSome(r.cidrs)
	case !slices.Contains(addresses.exclusive, a) && r.cloud.failover[a]:
		return "a failover address of its LAN, which moves between servers"
	case !slices.Contains(addresses.exclusive, a):
		return fmt.Sprintf("listed on %d servers", r.cloud.serverCount[a])
	case chosen == a && usable == 1:
		return "the only usable address of its family"
	case chosen != a:
		return fmt.Sprintf("%s comes first", chosen)
	case slices.Contains(inOrder(n.InternalIPs), a):
		return "the first of several that is an InternalIP of the Node"
	}
	return "the lowest of several; none is an InternalIP of the Node"
}

// describeNIC names the server's NIC that has an address.
func describeNIC(s *Server, a netip.Addr) string {
	for _, n := range s.NICs {
		if slices.Contains(canonical(n.Addresses), a) {
			return fmt.Sprintf("LAN %s, NIC %s", truncate(n.LAN), truncate(n.ID))
		}
	}
	return ""
}

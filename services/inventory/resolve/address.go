package resolve

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// AddrPair is at most one address of each family: IPv4, IPv6. An invalid address stands for none.
type AddrPair [2]netip.Addr

// Family is the place of an address in a pair.
func Family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// List returns the addresses of the pair, sorted.
func (p AddrPair) List() []netip.Addr {
	return keepIf(p[:], netip.Addr.IsValid)
}

// Empty reports whether the pair has no address.
func (p AddrPair) Empty() bool { return !p[0].IsValid() && !p[1].IsValid() }

// addrFilter decides which addresses of a node or server can be used.
type addrFilter struct {
	cidrs       []netip.Prefix
	cloud       *cloudIndex  // knows shared addresses; nil: none is shared
	internalIPs []netip.Addr // of the node, in its order
}

// filteredAddrs are the addresses that are left after each stage of the filter.
type filteredAddrs struct {
	all, inCIDRs, exclusive []netip.Addr
	chosen                  AddrPair
}

// apply chooses at most one address of each family: the node's first InternalIP that can be used, as Kubernetes
// does, or else the lowest address. What is chosen depends on nothing earlier, so that a restart changes nothing.
func (f addrFilter) apply(all []netip.Addr) filteredAddrs {
	result := filteredAddrs{all: all}
	result.inCIDRs = keepIf(all, func(a netip.Addr) bool {
		return canBeNodeAddress(a) && slices.ContainsFunc(f.cidrs, func(p netip.Prefix) bool { return p.Contains(a) })
	})
	result.exclusive = keepIf(result.inCIDRs, func(a netip.Addr) bool { return f.cloud == nil || !f.cloud.isShared(a) })
	for family := range result.chosen {
		usable := result.ofFamily(family)
		preferred := keepIf(f.internalIPs, func(a netip.Addr) bool { return slices.Contains(usable, a) })
		if first := slices.Concat(preferred, usable); len(first) > 0 {
			result.chosen[family] = first[0]
		}
	}
	return result
}

// ofFamily returns the addresses of a family among which one is chosen, sorted.
func (f filteredAddrs) ofFamily(family int) []netip.Addr {
	return keepIf(f.exclusive, func(a netip.Addr) bool { return Family(a) == family })
}

// omissionReason is why no address was chosen, 0 if one was: the reason of the last stage, because an
// address that passed more of them says more.
func (f filteredAddrs) omissionReason() source.OmissionReason {
	switch {
	case !f.chosen.Empty():
		return 0
	case len(f.inCIDRs) > 0:
		return source.SharedAddress
	case slices.ContainsFunc(f.all, canBeNodeAddress):
		return source.OutsideSubnet
	}
	return source.NoAddressOnLAN
}

// canBeNodeAddress reports whether a node can have the address: not the unspecified one, nor one of the
// machine itself, its link or a group. Rule R13 of the contract: a client ends the stream for others.
func canBeNodeAddress(a netip.Addr) bool { return a.IsGlobalUnicast() }

func keepIf(addrs []netip.Addr, ok func(netip.Addr) bool) []netip.Addr {
	var kept []netip.Addr
	for _, a := range addrs {
		if ok(a) {
			kept = append(kept, a)
		}
	}
	return kept
}

// maxTraced limits how many addresses of one server are explained.
const maxTraced = 32

// traceAddresses records what became of each address of a server, or of the node itself (nil).
func (f addrFilter) traceAddresses(trace *source.Trace, addresses filteredAddrs, s *source.Server) {
	if len(addresses.all) == 0 {
		detail := "the node has no address"
		if s != nil {
			detail = fmt.Sprintf("the server has no address on the configured LANs (NICs there: %d)", len(s.NICs))
		}
		trace.Add(source.Failed, source.StageAddress, addressQuestion, "%s", detail)
	}
	for _, a := range addresses.all[:min(len(addresses.all), maxTraced)] {
		result := source.Failed
		if addresses.chosen[Family(a)] == a {
			result = source.Passed
		}
		trace.Add(
			result,
			source.StageAddress,
			fmt.Sprintf("Can %s be used?", a),
			"%s%s",
			describeNIC(s, a),
			f.describeAddress(addresses, a),
		)
	}
	if more := len(addresses.all) - maxTraced; more > 0 {
		trace.Add(source.Note, source.StageAddress, "Are there more?", "%d more", more)
	}
}

// describeAddress describes at which stage of the filter an address was dropped, or how it was chosen.
func (f addrFilter) describeAddress(addresses filteredAddrs, a netip.Addr) string {
	chosen, usable := addresses.chosen[Family(a)], len(addresses.ofFamily(Family(a)))
	switch {
	case !canBeNodeAddress(a):
		return "loopback, link-local, multicast or unspecified address"
	case !slices.Contains(addresses.inCIDRs, a):
		return "outside " + joinSome(f.cidrs)
	case !slices.Contains(addresses.exclusive, a) && f.cloud.failover[a]:
		return "a failover address of its LAN, which moves between servers"
	case !slices.Contains(addresses.exclusive, a):
		return fmt.Sprintf("listed on %d servers", f.cloud.serverCount[a])
	case chosen == a && usable == 1:
		return "chosen as the only usable address of its family"
	case chosen != a:
		return fmt.Sprintf("not chosen: %s comes first", chosen)
	case slices.Contains(f.internalIPs, a):
		return "chosen of several, as the node's first InternalIP"
	}
	return "chosen of several as the lowest: none is an InternalIP of the node"
}

// describeNIC names the server's NIC that has an address.
func describeNIC(s *source.Server, a netip.Addr) string {
	if s == nil {
		return ""
	}
	for _, n := range s.NICs {
		if slices.Contains(canonical(n.Addresses), a) {
			return fmt.Sprintf("on LAN %s, NIC %s: ", truncate(n.LAN), truncate(n.ID))
		}
	}
	return ""
}

func (r *Resolver) adviseServer(s *source.Server, addresses filteredAddrs) Omission {
	reason, all := addresses.omissionReason(), addresses.all
	if reason == 0 {
		return Omission{}
	}
	text := fmt.Sprintf("Server %s has %s on %s", s.ID, joinSome(all), describeLANs(s))
	switch {
	case reason == source.NoAddressOnLAN && len(all) > 0:
		text += ", which no node can use. Give its NIC another address"
	case reason == source.NoAddressOnLAN:
		text = fmt.Sprintf(
			"Server %s has no address on the configured LAN (NICs there: %d). Attach a NIC to the LAN, or check IONOS_PRIVATE_LAN_ID",
			s.ID,
			len(s.NICs),
		)
	case reason == source.OutsideSubnet:
		text += fmt.Sprintf(", none of them inside %s. Check SECURED_SUBNET_CIDR", joinSome(r.CIDRs))
	case reason == source.SharedAddress:
		text += ", each of them a failover address or also listed on another server. Give the server its own address"
	}
	return Omission{reason, text + "."}
}

func (r *Resolver) adviseNode(addresses filteredAddrs) Omission {
	reason, all := addresses.omissionReason(), joinSome(addresses.all)
	subject, none := "The Node's InternalIPs are", "The Node has no address of type InternalIP. Check what its kubelet or cloud controller reports."
	if r.Method == ByRecord {
		subject, none = "The addresses in the source are", "The source has no address for this node."
	}
	switch {
	case reason == 0:
		return Omission{}
	case reason == source.NoAddressOnLAN && all != "":
		return Omission{reason, fmt.Sprintf("%s %s, which no node can use. Correct them where they come from.", subject, all)}
	case reason == source.NoAddressOnLAN:
		return Omission{reason, none}
	}
	return Omission{reason, fmt.Sprintf("%s %s, none of them inside %s. Check SECURED_SUBNET_CIDR.", subject, all, joinSome(r.CIDRs))}
}

// describeLANs names the LANs on which a server has NICs.
func describeLANs(s *source.Server) string {
	var ids []string
	for _, n := range s.NICs {
		ids = append(ids, truncate(n.LAN))
	}
	slices.Sort(ids)
	return "LAN " + strings.Join(slices.Compact(ids), ", ")
}

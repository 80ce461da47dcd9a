package roster

import (
	"fmt"
	"net/netip"
	"slices"
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
func (f filteredAddrs) omissionReason() OmissionReason {
	switch {
	case !f.chosen.Empty():
		return 0
	case len(f.inCIDRs) > 0:
		return SharedAddress
	case slices.ContainsFunc(f.all, canBeNodeAddress):
		return OutsideSubnet
	}
	return NoAddressOnLAN
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

// describe says at which stage of the filter an address was dropped, or how it was chosen.
func (f addrFilter) describe(addresses filteredAddrs, a netip.Addr) string {
	chosen, usable := addresses.chosen[Family(a)], len(addresses.ofFamily(Family(a)))
	switch {
	case !canBeNodeAddress(a):
		return "loopback, link-local, multicast or unspecified address"
	case !slices.Contains(addresses.inCIDRs, a):
		return "outside of SECURED_SUBNET_CIDR " + joinSome(f.cidrs)
	case !slices.Contains(addresses.exclusive, a) && f.cloud.failover[a]:
		return "a failover address of its LAN, which moves between servers"
	case !slices.Contains(addresses.exclusive, a):
		return fmt.Sprintf("listed on %d servers", f.cloud.serverCount[a])
	case chosen == a && usable == 1:
		return "the only usable address of its family"
	case chosen != a:
		return fmt.Sprintf("%s comes first", chosen)
	case slices.Contains(f.internalIPs, a):
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

// explainServer says why none of a server's addresses can be used.
func explainServer(s *Server, addresses filteredAddrs) Omission {
	reason, all := addresses.omissionReason(), addresses.all
	switch {
	case reason == NoAddressOnLAN && len(all) == 0:
		return Omission{reason, fmt.Sprintf("server %s has no address on the configured LAN (NICs there: %d)", s.ID, len(s.NICs))}
	case reason == NoAddressOnLAN:
		return Omission{reason, "no node can use the addresses of its server: " + joinSome(all)}
	case reason == OutsideSubnet:
		return Omission{reason, "its server has no address in SECURED_SUBNET_CIDR, only " + joinSome(all)}
	case reason == SharedAddress:
		return Omission{reason, "failover addresses, or also on another server: " + joinSome(all)}
	}
	return Omission{}
}

// explainNode says why none of the addresses that the source reports can be used.
func (r *Resolver) explainNode(addresses filteredAddrs) Omission {
	reason, all := addresses.omissionReason(), addresses.all
	switch {
	case reason == 0:
		return Omission{}
	case reason == NoAddressOnLAN && len(all) > 0:
		return Omission{reason, "no node can use its addresses: " + joinSome(all)}
	case reason == NoAddressOnLAN && r.Method == ByNodeAddress:
		return Omission{reason, "the Node has no address of type InternalIP"}
	case reason == NoAddressOnLAN:
		return Omission{reason, "the source has no address for it"}
	}
	return Omission{reason, "it has no address in SECURED_SUBNET_CIDR, only " + joinSome(all)}
}

package roster

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Method is how the addresses of a node are found.
type Method uint8

// The methods: by the NICs of its server in the cloud, by the Node's own InternalIP, or by the address in
// the record of the source.
const (
	ByCloud Method = iota + 1
	ByNodeAddress
	ByRecord
)

// resolver resolves nodes by the last complete listing of the cloud. A listing from before a node's time confirms
// neither its name nor the address of a server that another node has left.
type resolver struct {
	method Method
	cidrs  []netip.Prefix // addresses outside them are ignored

	cloud cloudIndex
	left  map[string]time.Time // servers that a node has left since the listing started, and when
}

// resolution is what was found for a node.
type resolution struct {
	serverID     string // empty: no server was found
	addresses    addrPair
	omission     Omission // why there is no address
	isUnreadable bool     // the cloud has invalid data for the server
}

// setListing replaces the listing by a complete one that was started at this time.
func (r *resolver) setListing(l Listing, startedAt time.Time) {
	r.cloud = newCloudIndex(l, startedAt)
	maps.DeleteFunc(r.left, func(_ string, at time.Time) bool { return at.Before(startedAt) })
}

// leave records that a node has left its server: the next node of that server may have another address.
func (r *resolver) leave(serverID string, now time.Time) {
	if serverID != "" {
		r.left[serverID] = now
	}
}

// isTooEarly reports whether the listing says nothing about a node that was first seen after it had started: the next
// server may have the same name, and a server that a node has left another address.
func (r *resolver) isTooEarly(found serverMatch, firstSeen time.Time) bool {
	_, left := r.left[found.id]
	return r.cloud.startedAt.Before(firstSeen) && (found.server == nil || found.by == byName || left)
}

// resolve resolves a node that was first seen at this time.
func (r *resolver) resolve(n *Node, firstSeen time.Time) resolution {
	if r.method != ByCloud {
		addresses := r.filter(n, canonical(n.InternalIPs))
		return resolution{addresses: addresses.chosen, omission: r.explain(nil, addresses)}
	}
	if r.cloud.startedAt.IsZero() {
		return resolution{omission: Omission{NotResolvedYet, notListed}}
	}
	found := r.cloud.matchServer(n)
	if r.isTooEarly(found, firstSeen) {
		return resolution{omission: Omission{NotResolvedYet, "the last cloud listing started before it was first seen"}}
	}
	if found.server == nil {
		return resolution{omission: found.omission, isUnreadable: found.omission.Reason == InvalidRecord}
	}
	addresses := r.filter(n, serverAddresses(found.server))
	return resolution{serverID: found.id, addresses: addresses.chosen, omission: r.explain(found.server, addresses)}
}

const notListed = "the cloud has not been listed yet"

// filteredAddrs are the addresses that are left after each stage of the filter.
type filteredAddrs struct {
	all, inCIDRs, exclusive []netip.Addr
	chosen                  addrPair
}

// filter chooses at most one address of each family: the node's first InternalIP that can be used, as Kubernetes
// does, or else the lowest address. What is chosen depends on nothing earlier, so that a restart changes nothing.
func (r *resolver) filter(n *Node, all []netip.Addr) filteredAddrs {
	f := filteredAddrs{all: all}
	f.inCIDRs = keepIf(all, func(a netip.Addr) bool {
		return canBeNodeAddress(a) && slices.ContainsFunc(r.cidrs, func(p netip.Prefix) bool { return p.Contains(a) })
	})
	f.exclusive = keepIf(f.inCIDRs, func(a netip.Addr) bool { return r.method != ByCloud || !r.cloud.isShared(a) })
	for family := range f.chosen {
		usable := f.ofFamily(family)
		preferred := keepIf(inOrder(n.InternalIPs), func(a netip.Addr) bool { return slices.Contains(usable, a) })
		if first := slices.Concat(preferred, usable); len(first) > 0 {
			f.chosen[family] = first[0]
		}
	}
	return f
}

// ofFamily returns the addresses of a family among which one is chosen, sorted.
func (f filteredAddrs) ofFamily(family int) []netip.Addr {
	return keepIf(f.exclusive, func(a netip.Addr) bool { return familyOf(a) == family })
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

// explain says why none of the addresses of a node or its server can be used: by the last stage, because an address
// that passed more of them says more.
func (r *resolver) explain(s *Server, addresses filteredAddrs) Omission {
	if !addresses.chosen.isEmpty() {
		return Omission{}
	}
	has, its, all := "it has", "its addresses", joinSome(addresses.all)
	if s != nil {
		has, its = "its server has", "the addresses of its server"
	}
	switch {
	case len(addresses.inCIDRs) > 0:
		return Omission{SharedAddress, "failover addresses, or also on another server: " + all}
	case slices.ContainsFunc(addresses.all, canBeNodeAddress):
		return Omission{OutsideSubnet, has + " no address in SECURED_SUBNET_CIDR, only " + all}
	case len(addresses.all) > 0:
		return Omission{NoAddressOnLAN, "no node can use " + its + ": " + all}
	case s != nil:
		return Omission{NoAddressOnLAN, fmt.Sprintf("server %s has no address on the configured LAN (NICs there: %d)", s.ID, len(s.NICs))}
	case r.method == ByNodeAddress:
		return Omission{NoAddressOnLAN, "the Node has no address of type InternalIP"}
	}
	return Omission{NoAddressOnLAN, "the source has no address for it"}
}

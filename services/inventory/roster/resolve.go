package roster

import (
	"maps"
	"net/netip"
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

// Resolver resolves nodes by the last complete listing of the cloud. The zero value has no listing. A copy keeps
// the listing of its time.
type Resolver struct {
	Method Method
	CIDRs  []netip.Prefix // addresses outside them are ignored

	cloud cloudIndex
	left  map[string]time.Time // servers that a node has left since the listing started, and when
}

// resolution is what was found for a node.
type resolution struct {
	ServerID   string // empty: no server was found
	Addresses  AddrPair
	Omission   Omission // why there is no address
	Unreadable bool     // the cloud has invalid data for the server
}

// Omission is why a node is omitted, with a message about it of at most 100 characters. Longer ones are cut off.
type Omission struct {
	Reason  OmissionReason
	Message string
}

// Facts are what a node was resolved by, for people.
type Facts struct {
	Match      string // how its server was found, or why it was not; empty: addresses do not come from the cloud
	ServerID   string // of the server that matches, even if it was listed too early
	Candidates []CandidateAddress
}

// CandidateAddress is an address that a node could have.
type CandidateAddress struct {
	Address netip.Addr
	From    string // where it was read
	Reason  string // for or against it
}

// SetListing replaces the listing by a complete one that was started at this time.
func (r *Resolver) SetListing(l Listing, startedAt time.Time) {
	r.cloud = newCloudIndex(l, startedAt)
	maps.DeleteFunc(r.left, func(_ string, at time.Time) bool { return at.Before(startedAt) })
}

// Leave records that a node has left its server: the next node of that server may have another address.
func (r *Resolver) Leave(serverID string, now time.Time) {
	if serverID == "" {
		return
	}
	if r.left == nil {
		r.left = map[string]time.Time{}
	}
	r.left[serverID] = now
}

// isTooEarly reports whether the listing says nothing about a node that was first seen after it had started: the next
// server may have the same name, and a server that a node has left another address.
func (r *Resolver) isTooEarly(found serverMatch, firstSeen time.Time) bool {
	_, left := r.left[found.id]
	return r.cloud.startedAt.Before(firstSeen) && (found.server == nil || found.by == byName || left)
}

// Resolve resolves a node that was first seen at this time.
func (r *Resolver) Resolve(c *Node, firstSeen time.Time) resolution {
	if r.Method != ByCloud {
		addresses := r.filterFor(c).apply(canonical(c.InternalIPs))
		return resolution{Addresses: addresses.chosen, Omission: r.explainNode(addresses)}
	}
	if r.cloud.startedAt.IsZero() {
		return resolution{Omission: Omission{NotResolvedYet, "the cloud has not been listed yet"}}
	}
	found := r.cloud.matchServer(c)
	if r.isTooEarly(found, firstSeen) {
		return resolution{Omission: Omission{NotResolvedYet, "the last cloud listing started before it was first seen"}}
	}
	if found.server == nil {
		return resolution{Omission: found.omission, Unreadable: found.omission.Reason == InvalidRecord}
	}
	addresses := r.filterFor(c).apply(serverAddresses(found.server))
	return resolution{ServerID: found.id, Addresses: addresses.chosen, Omission: explainServer(found.server, addresses)}
}

func (r *Resolver) filterFor(c *Node) addrFilter {
	f := addrFilter{cidrs: r.CIDRs, internalIPs: inOrder(c.InternalIPs)}
	if r.Method == ByCloud {
		f.cloud = &r.cloud
	}
	return f
}

// Describe returns what Resolve decides by.
func (r *Resolver) Describe(c *Node) (f Facts) {
	from := func(netip.Addr) string { return "the Node" }
	all := canonical(c.InternalIPs)
	switch {
	case r.Method == ByRecord:
		from = func(netip.Addr) string { return "the source" }
	case r.Method == ByCloud && r.cloud.startedAt.IsZero():
		f.Match = "the cloud has not been listed yet"
		return f
	case r.Method == ByCloud:
		found := r.cloud.matchServer(c)
		f.Match, f.ServerID = found.describe(c), found.id
		if found.server == nil {
			return f
		}
		from = func(a netip.Addr) string { return describeNIC(found.server, a) }
		all = serverAddresses(found.server)
	}
	filter := r.filterFor(c)
	addresses := filter.apply(all)
	for _, a := range all[:min(len(all), maxDescribed)] {
		f.Candidates = append(f.Candidates, CandidateAddress{Address: a, From: from(a), Reason: filter.describe(addresses, a)})
	}
	return f
}

// maxDescribed limits how many addresses of one server are described.
const maxDescribed = 32

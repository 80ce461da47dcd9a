package roster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// pair is at most one address of each family: IPv4, IPv6. The zero address: none.
type pair [2]netip.Addr

// family is an address's place in a pair.
func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// list returns the addresses that are there, sorted.
func (p pair) list() []netip.Addr {
	var l []netip.Addr
	for _, a := range p {
		if a.IsValid() {
			l = append(l, a)
		}
	}
	return l
}

func (p pair) empty() bool { return !p[0].IsValid() && !p[1].IsValid() }

// addresses returns what the server's NICs bear, each once, in a fixed order: the
// cloud's own order means nothing.
func (s *Server) addresses() []netip.Addr {
	var all []netip.Addr
	for _, n := range s.NICs {
		all = append(all, n.Addresses...)
	}
	return canonical(all)
}

// canonical returns the valid addresses in the form that they are compared in, sorted, each once.
func canonical(addrs []netip.Addr) []netip.Addr {
	all := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		if a.IsValid() {
			all = append(all, a.Unmap().WithZone(""))
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// sieve is what addresses must pass to be used.
type sieve struct {
	cidrs  []netip.Prefix
	shared func(netip.Addr) bool // nil: none is
	prefer []netip.Addr          // break ties
}

// pick chooses at most one address of each family. When none remains, the reason is that
// of the last stage which took the rest: an address that came further says more.
func (s sieve) pick(borne []netip.Addr) (pair, Reason) {
	inside := keep(borne, func(a netip.Addr) bool {
		return slices.ContainsFunc(s.cidrs, func(p netip.Prefix) bool { return p.Contains(a) })
	})
	own := keep(inside, func(a netip.Addr) bool { return s.shared == nil || !s.shared(a) })
	var p pair
	for f := range p {
		of := keep(own, func(a netip.Addr) bool { return family(a) == f })
		if len(of) > 1 {
			of = keep(of, func(a netip.Addr) bool { return slices.Contains(s.prefer, a) })
		}
		if len(of) == 1 {
			p[f] = of[0]
		}
	}
	switch {
	case !p.empty():
		return p, 0
	case len(own) > 0:
		return p, AmbiguousAddress
	case len(inside) > 0:
		return p, SharedAddress
	case len(borne) > 0:
		return p, OutsideSubnet
	}
	return p, NoAddressOnLAN
}

func keep(addrs []netip.Addr, ok func(netip.Addr) bool) []netip.Addr {
	var kept []netip.Addr
	for _, a := range addrs {
		if ok(a) {
			kept = append(kept, a)
		}
	}
	return kept
}

// resolve works out which addresses the last whole answer gives a member, or why none.
func (r *Roster) resolve(m *member) {
	m.want, m.why, m.odd = pair{}, omission{}, false
	defer func() {
		delete(r.odd, m.Name)
		if m.odd {
			r.odd[m.Name] = m
		}
		if m.Bad != "" && m.Excluded == 0 {
			m.why = omission{reason: BadRecord, advice: m.Bad}
		}
	}()
	if m.Excluded != 0 {
		return
	}
	if r.cfg.Resolver != ByCloud {
		ips := canonical(m.InternalIPs)
		want, reason := sieve{cidrs: r.cfg.CIDRs}.pick(ips)
		m.want, m.why = want, r.adviseNode(reason, ips)
		return
	}
	if r.cloud.began.IsZero() {
		m.why = omission{reason: NotResolvedYet, advice: "The cloud has not been listed yet: wait, or see the reason in the status of the addresses."}
		return
	}
	found := r.cloud.match(m.Candidate)
	fresh := !r.cloud.began.Before(m.firstSeen)
	switch {
	case found.byName && !fresh:
		// A name is reused by the next machine: only a listing of this node's time counts.
		m.why = omission{reason: NotFoundInIONOS, advice: fmt.Sprintf("Server %s has the node's name, but was listed before the node was seen.", found.id)}
	case found.server != nil:
		m.server = found.id
		borne := found.server.addresses()
		want, reason := sieve{cidrs: r.cfg.CIDRs, shared: r.cloud.shared, prefer: canonical(m.InternalIPs)}.pick(borne)
		m.want, m.why = want, r.adviseServer(reason, found.server, borne)
	default:
		m.why = found.why
		m.odd = found.why.reason == BadRecord
	}
	if m.why.reason != 0 && !fresh {
		m.why = omission{reason: NotResolvedYet, advice: "The last listing of the cloud began before the node was seen, so wait for the next; as of now: " + m.why.advice}
	}
}

func (r *Roster) adviseServer(reason Reason, s *Server, borne []netip.Addr) omission {
	what := fmt.Sprintf("server %s has %s on %s", s.ID, texts(borne), lans(s))
	switch reason {
	case 0:
		return omission{}
	case NoAddressOnLAN:
		what = fmt.Sprintf("Server %s has no address on the configured LAN (it has %d NICs there): attach a NIC to the LAN, or check IONOS_PRIVATE_LAN_ID", s.ID, len(s.NICs))
	case OutsideSubnet:
		what += fmt.Sprintf(", none of them inside %s: check SECURED_SUBNET_CIDR", texts(r.cfg.CIDRs))
	case SharedAddress:
		what += ", each of them a failover address or seen on another server too: give the server an address of its own"
	case AmbiguousAddress:
		what += ", of which several could be meant and none is the Node's only InternalIP: narrow SECURED_SUBNET_CIDR, or remove the address that is not meant"
	}
	return omission{reason: reason, advice: strings.ToUpper(what[:1]) + what[1:] + "."}
}

func (r *Roster) adviseNode(reason Reason, ips []netip.Addr) omission {
	are := "The Node's InternalIPs are"
	none := "The Node has no address of type InternalIP: see what its kubelet or cloud controller reports."
	if r.cfg.Resolver == ByRecord {
		are = "The addresses in the source are"
		none = "The source gives no address of this node."
	}
	switch reason {
	case 0:
		return omission{}
	case NoAddressOnLAN:
		return omission{reason: reason, advice: none}
	case OutsideSubnet:
		return omission{reason: reason, advice: fmt.Sprintf("%s %s, none of them inside %s: check SECURED_SUBNET_CIDR.", are, texts(ips), texts(r.cfg.CIDRs))}
	}
	return omission{reason: AmbiguousAddress, advice: fmt.Sprintf("%s %s, of which several are inside %s: narrow SECURED_SUBNET_CIDR.", are, texts(ips), texts(r.cfg.CIDRs))}
}

// lans names the LANs that a server has NICs on.
func lans(s *Server) string {
	var ids []string
	for _, n := range s.NICs {
		ids = append(ids, clip(n.LAN))
	}
	slices.Sort(ids)
	return "LAN " + strings.Join(slices.Compact(ids), ", ")
}

// texts lists a few of many for a sentence.
func texts[T fmt.Stringer](all []T) string {
	const few = 6
	var s []string
	for _, t := range all[:min(len(all), few)] {
		s = append(s, t.String())
	}
	if len(all) > few {
		s = append(s, fmt.Sprintf("%d more", len(all)-few))
	}
	return strings.Join(s, ", ")
}

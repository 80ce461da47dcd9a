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
func serverAddresses(s *Server) []netip.Addr {
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

// sifted is what is left of a machine's addresses after each stage of the sieve.
type sifted struct {
	borne, inside, own []netip.Addr
	chosen             pair
}

// sift chooses at most one address of each family.
func (s sieve) sift(borne []netip.Addr) sifted {
	left := sifted{borne: borne}
	left.inside = keep(borne, func(a netip.Addr) bool {
		return reachable(a) && slices.ContainsFunc(s.cidrs, func(p netip.Prefix) bool { return p.Contains(a) })
	})
	left.own = keep(left.inside, func(a netip.Addr) bool { return s.shared == nil || !s.shared(a) })
	for f := range left.chosen {
		of := left.of(f)
		if len(of) > 1 {
			of = keep(of, func(a netip.Addr) bool { return slices.Contains(s.prefer, a) })
		}
		if len(of) == 1 {
			left.chosen[f] = of[0]
		}
	}
	return left
}

// of are the addresses of a family among which one is chosen.
func (s sifted) of(f int) []netip.Addr {
	return keep(s.own, func(a netip.Addr) bool { return family(a) == f })
}

// reason is why no address was chosen, 0 if one was: that of the last stage which took the
// rest, since an address that came further says more.
func (s sifted) reason() Reason {
	switch {
	case !s.chosen.empty():
		return 0
	case len(s.own) > 0:
		return AmbiguousAddress
	case len(s.inside) > 0:
		return SharedAddress
	case slices.ContainsFunc(s.borne, reachable):
		return OutsideSubnet
	}
	return NoAddressOnLAN
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
		delete(r.invalid, m.Name)
		if m.Invalid != "" && m.Excluded == 0 {
			r.invalid[m.Name] = m
			m.why = omission{reason: InvalidRecord, advice: m.Invalid}
		}
	}()
	if m.Excluded != 0 || !m.everValid {
		return
	}
	if r.cfg.Resolver != ByCloud {
		left := r.sieve(m).sift(canonical(m.InternalIPs))
		m.want, m.why = left.chosen, r.adviseNode(left.reason(), left.borne)
		return
	}
	if r.cloud.began.IsZero() {
		m.why = omission{reason: NotResolvedYet, advice: "The cloud has not been listed yet. Wait, or see the status of addresses."}
		return
	}
	found := r.cloud.match(m.Candidate)
	fresh := r.fresh(m)
	switch {
	case found.by == byName && found.id != "" && !fresh:
		// A name is reused by the next machine: only a listing of this node's time counts.
		m.why = omission{reason: NotFoundInIONOS, advice: fmt.Sprintf("Server %s has the node's name, but was listed before the node was first seen.", found.id)}
	case found.server != nil:
		m.server = found.id
		left := r.sieve(m).sift(serverAddresses(found.server))
		m.want, m.why = left.chosen, r.adviseServer(left.reason(), found.server, left.borne)
	default:
		m.why = found.why
		m.odd = found.why.reason == InvalidRecord
	}
	if m.why.reason != 0 && !fresh {
		m.why = omission{reason: NotResolvedYet, advice: "The last cloud listing started before the node was first seen. Wait for the next one. As of that listing: " + m.why.advice}
	}
}

// fresh reports whether the last whole listing is of the node's time.
func (r *Roster) fresh(m *member) bool { return !r.cloud.began.Before(m.firstSeen) }

// sieve is what the addresses of a member must pass.
func (r *Roster) sieve(m *member) sieve {
	if r.cfg.Resolver != ByCloud {
		return sieve{cidrs: r.cfg.CIDRs}
	}
	return sieve{cidrs: r.cfg.CIDRs, shared: r.cloud.shared, prefer: canonical(m.InternalIPs)}
}

func (r *Roster) adviseServer(reason Reason, s *Server, borne []netip.Addr) omission {
	what := fmt.Sprintf("server %s has %s on %s", s.ID, texts(borne), lans(s))
	switch {
	case reason == 0:
		return omission{}
	case reason == NoAddressOnLAN && len(borne) > 0:
		what += ", which no node can use. Give its NIC another address"
	case reason == NoAddressOnLAN:
		what = fmt.Sprintf("Server %s has no address on the configured LAN (NICs there: %d). Attach a NIC to the LAN, or check IONOS_PRIVATE_LAN_ID", s.ID, len(s.NICs))
	case reason == OutsideSubnet:
		what += fmt.Sprintf(", none of them inside %s. Check SECURED_SUBNET_CIDR", texts(r.cfg.CIDRs))
	case reason == SharedAddress:
		what += ", each of them a failover address or also listed on another server. Give the server its own address"
	case reason == AmbiguousAddress:
		what += ", several of them usable, and the Node's InternalIPs do not identify one. Narrow SECURED_SUBNET_CIDR, or remove the unused address"
	}
	return omission{reason: reason, advice: strings.ToUpper(what[:1]) + what[1:] + "."}
}

func (r *Roster) adviseNode(reason Reason, ips []netip.Addr) omission {
	are := "The Node's InternalIPs are"
	none := "The Node has no address of type InternalIP. Check what its kubelet or cloud controller reports."
	if r.cfg.Resolver == ByRecord {
		are = "The addresses in the source are"
		none = "The source has no address for this node."
	}
	switch {
	case reason == 0:
		return omission{}
	case reason == NoAddressOnLAN && len(ips) > 0:
		return omission{reason: reason, advice: fmt.Sprintf("%s %s, which no node can use. Correct them where they come from.", are, texts(ips))}
	case reason == NoAddressOnLAN:
		return omission{reason: reason, advice: none}
	case reason == OutsideSubnet:
		return omission{reason: reason, advice: fmt.Sprintf("%s %s, none of them inside %s. Check SECURED_SUBNET_CIDR.", are, texts(ips), texts(r.cfg.CIDRs))}
	}
	return omission{reason: AmbiguousAddress, advice: fmt.Sprintf("%s %s, several of them inside %s. Narrow SECURED_SUBNET_CIDR.", are, texts(ips), texts(r.cfg.CIDRs))}
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

package roster

import (
	"net/netip"
	"testing"
)

func addrs(ss ...string) (as []netip.Addr) {
	for _, s := range ss {
		as = append(as, addr(s))
	}
	return as
}

func TestPicksOneAddressOfEachFamily(t *testing.T) {
	shared := func(a netip.Addr) bool { return a == addr("10.0.0.99") }
	for _, tc := range []struct {
		name          string
		borne, prefer []netip.Addr
		want          []netip.Addr
		reason        Reason
	}{
		{"the only one", addrs("10.0.0.11"), nil, addrs("10.0.0.11"), 0},
		{"one of each family", addrs("fd00::11", "10.0.0.11"), nil, addrs("10.0.0.11", "fd00::11"), 0},
		{"an IPv4-mapped one is IPv4", addrs("::ffff:10.0.0.11"), nil, addrs("10.0.0.11"), 0},
		{"those outside of the CIDRs do not count", addrs("192.168.0.1", "10.0.0.11", "2001:db8::1"), nil, addrs("10.0.0.11"), 0},
		{"a shared one does not count", addrs("10.0.0.99", "10.0.0.11"), nil, addrs("10.0.0.11"), 0},
		{"the Node's InternalIP breaks a tie", addrs("10.0.0.11", "10.0.0.12"), addrs("10.0.0.12"), addrs("10.0.0.12"), 0},
		{"the Node's InternalIP overrules nothing", addrs("10.0.0.11"), addrs("10.0.0.12"), addrs("10.0.0.11"), 0},
		{"one family is enough when the other is ambiguous", addrs("10.0.0.11", "fd00::1", "fd00::2"), nil, addrs("10.0.0.11"), 0},
		{"two, and no InternalIP", addrs("10.0.0.11", "10.0.0.12"), nil, nil, AmbiguousAddress},
		{"two, and both are InternalIPs", addrs("10.0.0.11", "10.0.0.12"), addrs("10.0.0.11", "10.0.0.12"), nil, AmbiguousAddress},
		{"only a shared one", addrs("10.0.0.99"), nil, nil, SharedAddress},
		{"only outside", addrs("10.0.1.1", "fe80::1"), nil, nil, OutsideSubnet},
		{"none", nil, nil, nil, NoAddressOnLAN},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := sieve{cidrs: cidr, shared: shared, prefer: tc.prefer}
			for range 2 { // the order in which the cloud gives them means nothing
				got := s.sift(canonical(tc.borne))
				if want := pairOf(tc.want); got.chosen != want || got.reason() != tc.reason {
					t.Errorf("got %v, %s; want %v, %s", got.chosen, got.reason(), want, tc.reason)
				}
				for i, j := 0, len(tc.borne)-1; i < j; i, j = i+1, j-1 {
					tc.borne[i], tc.borne[j] = tc.borne[j], tc.borne[i]
				}
			}
		})
	}
}

func pairOf(as []netip.Addr) (p pair) {
	for _, a := range as {
		p[family(a)] = a
	}
	return p
}

package roster

import (
	"net/netip"
	"testing"
)

var addr = netip.MustParseAddr

func TestPicksOneAddressOfEachFamily(t *testing.T) {
	for _, tc := range []struct {
		name        string
		all, prefer []netip.Addr
		want        []netip.Addr
		reason      OmissionReason
	}{
		{"the only one", addrs("10.0.0.11"), nil, addrs("10.0.0.11"), 0},
		{"one of each family", addrs("fd00::11", "10.0.0.11"), nil, addrs("10.0.0.11", "fd00::11"), 0},
		{"an IPv4-mapped one is IPv4", addrs("::ffff:10.0.0.11"), nil, addrs("10.0.0.11"), 0},
		{"those outside of the CIDRs do not count", addrs("192.168.0.1", "10.0.0.11", "2001:db8::1"), nil, addrs("10.0.0.11"), 0},
		{"a shared one does not count", addrs("10.0.0.99", "10.0.0.11"), nil, addrs("10.0.0.11"), 0},
		{"the Node's InternalIP breaks a tie", addrs("10.0.0.11", "10.0.0.12"), addrs("10.0.0.12"), addrs("10.0.0.12"), 0},
		{"the Node's InternalIP overrules nothing", addrs("10.0.0.11"), addrs("10.0.0.12"), addrs("10.0.0.11"), 0},
		{"the lowest of each family", addrs("10.0.0.12", "10.0.0.11", "fd00::2", "fd00::1"), nil, addrs("10.0.0.11", "fd00::1"), 0},
		{
			"the first InternalIP of those that can be used", addrs("10.0.0.11", "10.0.0.12", "10.0.0.13"),
			addrs("192.0.2.1", "10.0.0.13", "10.0.0.12"), addrs("10.0.0.13"), 0,
		},
		{"only a shared one", addrs("10.0.0.99"), nil, nil, SharedAddress},
		{"only outside", addrs("10.0.1.1", "fe80::1"), nil, nil, OutsideSubnet},
		{"none", nil, nil, nil, NoAddressOnLAN},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := resolver{method: ByCloud, cidrs: cidr, cloud: cloudIndex{failover: map[netip.Addr]bool{addr("10.0.0.99"): true}}}
			for range 2 { // the order in which the cloud gives them means nothing
				got := r.filter(&Node{InternalIPs: tc.prefer}, canonical(tc.all))
				reason := r.explain(nil, got).Reason
				if want := pairOf(tc.want); got.chosen != want || reason != tc.reason {
					t.Errorf("got %v, %s; want %v, %s", got.chosen, reason, want, tc.reason)
				}
				for i, j := 0, len(tc.all)-1; i < j; i, j = i+1, j-1 {
					tc.all[i], tc.all[j] = tc.all[j], tc.all[i]
				}
			}
		})
	}
}

func pairOf(as []netip.Addr) (p addrPair) {
	for _, a := range as {
		p[familyOf(a)] = a
	}
	return p
}

func TestOnlyValidAddressesCount(t *testing.T) {
	got := canonical([]netip.Addr{{}, addr("10.0.0.2"), addr("10.0.0.1"), addr("::ffff:10.0.0.2"), {}})
	if len(got) != 2 || got[0] != addr("10.0.0.1") || got[1] != addr("10.0.0.2") {
		t.Errorf("got %v", got)
	}
}

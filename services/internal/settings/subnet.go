package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Subnet is a CIDR. Its text may also be the form of an older tool: the first octets of an IPv4
// network, such as "10.0.1." or "10.0.1" for 10.0.1.0/24.
type Subnet struct{ netip.Prefix }

// UnmarshalText parses a subnet. It rejects host bits, which suggest a typing error.
func (s *Subnet) UnmarshalText(text []byte) error {
	in := strings.TrimSpace(string(text))
	if octets := strings.Split(strings.TrimSuffix(in, "."), "."); !strings.ContainsAny(in, "/:") && len(octets) < 4 {
		in = strings.Join(octets, ".") + strings.Repeat(".0", 4-len(octets)) + fmt.Sprintf("/%d", 8*len(octets))
	}
	p, err := netip.ParsePrefix(in)
	switch {
	case err != nil:
		return errors.New("a CIDR such as 10.0.1.0/24")
	case p != p.Masked():
		return fmt.Errorf("a CIDR without host bits: %s, or the single address as %s/%d", p.Masked(), p.Addr(), p.Addr().BitLen())
	case p.Addr().Is4In6():
		return errors.New("an IPv4 CIDR in IPv4 form")
	}
	s.Prefix = p
	return nil
}

// ToPrefixes converts subnets to prefixes.
func ToPrefixes(subnets []Subnet) []netip.Prefix {
	out := make([]netip.Prefix, len(subnets))
	for i, s := range subnets {
		out[i] = s.Prefix
	}
	return out
}

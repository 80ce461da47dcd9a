package targets

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func addressTypes(svc *corev1.ServiceSpec) []discoveryv1.AddressType {
	var out []discoveryv1.AddressType
	for _, family := range svc.IPFamilies {
		switch family {
		case corev1.IPv4Protocol:
			out = append(out, discoveryv1.AddressTypeIPv4)
		case corev1.IPv6Protocol:
			out = append(out, discoveryv1.AddressTypeIPv6)
		}
	}
	if len(out) > 0 {
		return out
	}
	// Services created before dual stack have none until their next update.
	if addr, err := netip.ParseAddr(svc.ClusterIP); err == nil && addr.Is6() {
		return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6}
	}
	return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}
}

// clusterIPs are the ClusterIPs of all watched Services.
type clusterIPs struct {
	byService map[Key][]netip.Addr
	union     map[netip.Addr]struct{} // nil: recompute. Never modified once it was returned
}

// set replaces the ClusterIPs of a Service; none: the Service is gone.
func (c *clusterIPs) set(key Key, ips []netip.Addr) {
	if slices.Equal(c.byService[key], ips) {
		return
	}
	c.union = nil
	if len(ips) == 0 {
		delete(c.byService, key)
	} else {
		c.byService[key] = ips
	}
}

func (c *clusterIPs) all() map[netip.Addr]struct{} {
	if c.union == nil {
		c.union = make(map[netip.Addr]struct{}, len(c.byService))
		for _, ips := range c.byService {
			for _, ip := range ips {
				c.union[ip] = struct{}{}
			}
		}
	}
	return c.union
}

func parseClusterIPs(svc *corev1.ServiceSpec) []netip.Addr {
	given := svc.ClusterIPs
	if len(given) == 0 {
		given = []string{svc.ClusterIP}
	}
	var out []netip.Addr
	for _, s := range given {
		if addr, err := netip.ParseAddr(s); err == nil { // "None" and "" are not addresses
			out = append(out, addr.Unmap())
		}
	}
	return out
}

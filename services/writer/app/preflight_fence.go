package app

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
)

// checkAllowlist wants the consuming API server outside: else whoever speaks for the inventory
// could have a Service, and what passes credentials to it, point there.
func (o *sourceCheck) checkAllowlist(ctx context.Context) (string, error) {
	apiServer, err := url.Parse(o.checker.cluster.Host)
	if err != nil {
		return "", fmt.Errorf("address of the API server: %w", err)
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", apiServer.Hostname())
	if err != nil {
		return "", preflight.Warning("where the API server is cannot be looked up, so it is not known whether it is outside of the fence: %v", err)
	}
	return o.evaluateAllowlist(addresses, apiServer.Port())
}

func (o *sourceCheck) evaluateAllowlist(apiServer []netip.Addr, port string) (string, error) {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		number = 443
	}
	cidrs := o.settingName("SECURED_SUBNET_CIDR")
	for _, a := range apiServer {
		switch a = a.Unmap(); {
		case o.allowsAddress(a) && o.allowsPort(uint16(number)):
			return "", fmt.Errorf("%s contains this cluster's own API server, %s, and its port is allowed: a lie of the inventory could point a Service there: narrow %s or %s",
				o.describeAllowlist(), netip.AddrPortFrom(a, uint16(number)), cidrs, o.settingName("ALLOWED_PORTS"))
		case o.allowsAddress(a):
			return "", preflight.Warning("%s contains this cluster's own API server, %s: a lie of the inventory could point a Service at that machine, though not at port %d: narrow %s to the secured cluster's nodes",
				o.describeAllowlist(), a, number, cidrs)
		}
	}
	if slices.ContainsFunc(o.CIDRs, func(c netip.Prefix) bool { return c.Bits() == 0 }) {
		return "", preflight.Warning("%s is no fence, since every address is inside: narrow %s to the secured cluster's nodes", o.describeAllowlist(), cidrs)
	}
	detail := o.describeAllowlist() + ": this cluster's API server is outside of it"
	if others := o.overlappingSources(); len(others) > 0 {
		detail += "; some of these addresses may also be told by " + abbreviate(others)
	}
	return detail, nil
}

// allowsAddress reports whether the fence lets an address be written.
func (o *sourceCheck) allowsAddress(a netip.Addr) bool {
	return slices.ContainsFunc(o.CIDRs, func(c netip.Prefix) bool { return c.Contains(a) })
}

// allowsPort reports whether the fence lets a port be written and probed. TARGET_PORT is
// let through for the Service given by name.
func (o *sourceCheck) allowsPort(port uint16) bool {
	return o.AllowsPort(port) || port != 0 && port == o.checker.targets.NamedTarget.Port
}

func (o *sourceCheck) describeAllowlist() string {
	return fmt.Sprintf("%s=%v", o.settingName("SECURED_SUBNET_CIDR"), o.CIDRs)
}

// overlappingSources are the other sources whose fences let some of the same addresses in.
func (o *sourceCheck) overlappingSources() []string {
	var all []string
	for _, other := range o.checker.sources {
		if other != o && slices.ContainsFunc(other.CIDRs, func(c netip.Prefix) bool { return slices.ContainsFunc(o.CIDRs, c.Overlaps) }) {
			all = append(all, other.Name)
		}
	}
	return all
}

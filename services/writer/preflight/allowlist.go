package preflight

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
)

// checkAllowlist fails if the allowlist contains the consuming API server: a compromised inventory
// could then make a Service point there, and send it the credentials of that Service's clients.
func (sc *sourceCheck) checkAllowlist(ctx context.Context) (string, error) {
	apiServer, err := url.Parse(sc.checker.cluster.Host)
	if err != nil {
		return "", fmt.Errorf("parse address of the API server: %w", err)
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", apiServer.Hostname())
	if err != nil {
		return "", preflight.Warning("the address of the API server cannot be looked up, so the allowlist may contain it: %v", err)
	}
	return sc.evaluateAllowlist(addresses, apiServer.Port())
}

func (sc *sourceCheck) evaluateAllowlist(apiServer []netip.Addr, port string) (string, error) {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		number = 443
	}
	cidrs := sc.settingName("SECURED_SUBNET_CIDR")
	for _, a := range apiServer {
		switch a = a.Unmap(); {
		case sc.allowsAddress(a) && sc.allowsPort(uint16(number)):
			return "", fmt.Errorf(
				"%s contains this cluster's API server, %s, and its port is allowed; a compromised inventory could redirect a Service there; narrow %s or %s",
				sc.describeAllowlist(),
				netip.AddrPortFrom(a, uint16(number)),
				cidrs,
				sc.settingName("ALLOWED_PORTS"),
			)
		case sc.allowsAddress(a):
			return "", preflight.Warning(
				"%s contains this cluster's API server, %s; a compromised inventory could redirect a Service to that machine, except to port %d; narrow %s to the secured cluster's nodes",
				sc.describeAllowlist(),
				a,
				number,
				cidrs,
			)
		}
	}
	detail := sc.describeAllowlist() + " does not contain this cluster's API server"
	var others []string // whose allowlists overlap with this one
	for _, other := range sc.checker.sources {
		if other != sc && slices.ContainsFunc(other.CIDRs, func(c netip.Prefix) bool { return slices.ContainsFunc(sc.CIDRs, c.Overlaps) }) {
			others = append(others, other.Name)
		}
	}
	if len(others) > 0 {
		detail += "; some of its addresses are also allowed for " + display.List(others)
	}
	return detail, nil
}

// allowsAddress reports whether the allowlist of the source contains an address.
func (sc *sourceCheck) allowsAddress(a netip.Addr) bool {
	return slices.ContainsFunc(sc.CIDRs, func(c netip.Prefix) bool { return c.Contains(a) })
}

// allowsPort reports whether the allowlist of the source contains a port. TARGET_PORT is always
// allowed, for the named target.
func (sc *sourceCheck) allowsPort(port uint16) bool {
	return sc.AllowsPort(port) || port != 0 && port == sc.checker.targets.NamedTarget.FixedPort
}

func (sc *sourceCheck) describeAllowlist() string {
	return fmt.Sprintf("%s=%v", sc.settingName("SECURED_SUBNET_CIDR"), sc.CIDRs)
}

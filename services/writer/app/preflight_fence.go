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

// fence wants the consuming API server outside: else whoever speaks for the inventory
// could have a Service, and what passes credentials to it, point there.
func (o *origin) fence(ctx context.Context) (string, error) {
	at, err := url.Parse(o.flight.cluster.Host)
	if err != nil {
		return "", fmt.Errorf("address of the API server: %w", err)
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", at.Hostname())
	if err != nil {
		return "", preflight.Warning("where the API server is cannot be looked up, so it is not known whether it is outside of the fence: %v", err)
	}
	return o.fenceAround(found, at.Port())
}

func (o *origin) fenceAround(server []netip.Addr, port string) (string, error) {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		number = 443
	}
	cidrs := o.setting("SECURED_SUBNET_CIDR")
	for _, a := range server {
		switch a = a.Unmap(); {
		case o.inside(a) && o.allows(uint16(number)):
			return "", fmt.Errorf("%s contains this cluster's own API server, %s, and its port is allowed: a lie of the inventory could point a Service there: narrow %s or %s",
				o.fenceInWords(), netip.AddrPortFrom(a, uint16(number)), cidrs, o.setting("ALLOWED_PORTS"))
		case o.inside(a):
			return "", preflight.Warning("%s contains this cluster's own API server, %s: a lie of the inventory could point a Service at that machine, though not at port %d: narrow %s to the secured cluster's nodes",
				o.fenceInWords(), a, number, cidrs)
		}
	}
	if slices.ContainsFunc(o.CIDRs, func(c netip.Prefix) bool { return c.Bits() == 0 }) {
		return "", preflight.Warning("%s is no fence, since every address is inside: narrow %s to the secured cluster's nodes", o.fenceInWords(), cidrs)
	}
	saw := o.fenceInWords() + ": this cluster's API server is outside of it"
	if others := o.overlapping(); len(others) > 0 {
		saw += "; some of these addresses may also be told by " + some(others)
	}
	return saw, nil
}

// inside reports whether the fence lets an address be written.
func (o *origin) inside(a netip.Addr) bool {
	return slices.ContainsFunc(o.CIDRs, func(c netip.Prefix) bool { return c.Contains(a) })
}

// allows reports whether the fence lets a port be written and probed. TARGET_PORT is
// let through for the Service given by name.
func (o *origin) allows(port uint16) bool {
	return o.Allows(port) || port != 0 && port == o.flight.targets.Named.Port
}

func (o *origin) fenceInWords() string {
	return fmt.Sprintf("%s=%v", o.setting("SECURED_SUBNET_CIDR"), o.CIDRs)
}

// overlapping are the other sources whose fences let some of the same addresses in.
func (o *origin) overlapping() []string {
	var all []string
	for _, other := range o.flight.origins {
		if other != o && slices.ContainsFunc(other.CIDRs, func(c netip.Prefix) bool { return slices.ContainsFunc(o.CIDRs, c.Overlaps) }) {
			all = append(all, other.Name)
		}
	}
	return all
}

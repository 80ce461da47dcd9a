package preflight

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/ionoshttp"
)

func (c *preflightChecker) cloudChecks() []preflight.Check {
	type description struct {
		ionos.Description

		err error
	}
	known := map[ionos.Pair]description{} // several checks use the same one
	describe := func(ctx context.Context, p ionos.Pair) description {
		if _, ok := known[p]; !ok {
			d, err := c.cloud.Describe(ctx, p)
			known[p] = description{d, err}
		}
		return known[p]
	}
	pairs := c.cfg.LANPairs()
	all := []preflight.Check{{Name: tokenCheckName, Run: func(ctx context.Context) (string, error) {
		return c.checkToken(describe(ctx, pairs[0]).err)
	}}, {Name: "cloud clock", DependsOn: []string{tokenCheckName}, Run: func(ctx context.Context) (string, error) {
		err := describe(ctx, pairs[0]).err
		theirs, readAt := c.cloud.Clock() // error responses have a date as well
		if err != nil && theirs.IsZero() {
			return "", preflight.Warning("no response with a date: %s", err)
		}
		return preflight.CheckSkew(theirs, readAt)
	}}}
	for _, p := range pairs {
		all = append(all, preflight.Check{
			Name: fmt.Sprintf("LAN %s of datacenter %.8s…", p.LAN, p.Datacenter), DependsOn: []string{tokenCheckName},
			Run: func(ctx context.Context) (string, error) {
				d := describe(ctx, p)
				if d.err != nil {
					return "", fmt.Errorf("%w; check IONOS_DATACENTER_ID, IONOS_PRIVATE_LAN_ID and the token's permissions for both", d.err)
				}
				return c.checkLAN(p, d.Description)
			},
		})
	}
	return all
}

// checkToken checks the expiry that the token states, and callErr, the result of the first call with it.
func (c *preflightChecker) checkToken(callErr error) (string, error) {
	at, known, err := c.cloud.TokenExpiry()
	if err != nil {
		return "", err
	}
	left := time.Until(at)
	expiry := fmt.Sprintf("expires in %d days, on %s", int(left.Hours()/24), at.UTC().Format(time.DateOnly))
	if !known {
		expiry = "no stated expiry"
	}
	accepted := "accepted; "
	if callErr != nil {
		accepted = "" // unknown after an error
	}
	switch {
	case known && left <= 0:
		return "", fmt.Errorf("expired on %s; create a new token", at.UTC().Format(time.RFC3339))
	case ionos.Unauthorized(callErr):
		return "", callErr
	case known && left < ionoshttp.ExpiryWarning:
		return "", preflight.Warning("%s; create a new token (IONOS_TOKEN_FILE is reloaded without a restart)", expiry)
	}
	return accepted + expiry, nil
}

// checkLAN checks that a LAN is private and has addresses inside the configured subnets.
func (c *preflightChecker) checkLAN(p ionos.Pair, d ionos.Description) (string, error) {
	if d.Public {
		return "", fmt.Errorf("LAN %s (%q) of %q is public; set IONOS_PRIVATE_LAN_ID to the private one", p.LAN, d.LAN, d.Datacenter)
	}
	detail := fmt.Sprintf("private, %q in %q", d.LAN, d.Datacenter)
	if d.Location != "" {
		detail += " (" + d.Location + ")"
	}
	var blocks []netip.Prefix
	for _, b := range []netip.Prefix{d.IPv4, d.IPv6} {
		if b.IsValid() {
			blocks = append(blocks, b)
		}
	}
	if len(blocks) == 0 {
		return detail + ", no known address block", nil
	}
	subnets := settings.ToPrefixes(c.cfg.Subnets)
	if !slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return slices.ContainsFunc(blocks, s.Overlaps) }) {
		return "", fmt.Errorf(
			"%s, addresses %v, none inside %v; check SECURED_SUBNET_CIDR and IONOS_PRIVATE_LAN_ID",
			detail,
			blocks,
			subnets,
		)
	}
	return fmt.Sprintf("%s, addresses %v", detail, blocks), nil
}

package app

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
)

// expiresSoon is when the end of a token is worth a warning: as the running inventory warns.
const expiresSoon = 28 * 24 * time.Hour

var _ cloudDescriber = (*ionos.Client)(nil)

// cloudDescriber says what the cloud knows of a pair, and of the token.
type cloudDescriber interface {
	Describe(ctx context.Context, p ionos.Pair) (ionos.Description, error)
	TokenExpiry() (at time.Time, known bool, err error)
	Clock() (theirs, readAt time.Time) // zero: no answer bore a date
}

func (f *preflightChecker) cloudChecks() []preflight.Check {
	// Each pair is asked about once; several checks judge what was said.
	describe := map[ionos.Pair]func(context.Context) (ionos.Description, error){}
	for _, p := range f.cfg.lanPairs() {
		var once sync.Once
		var d ionos.Description
		var err error
		describe[p] = func(ctx context.Context) (ionos.Description, error) {
			once.Do(func() { d, err = f.cloud.Describe(ctx, p) })
			return d, err
		}
	}
	pairs := f.cfg.lanPairs()
	all := []preflight.Check{{Name: tokenCheckName, Run: func(ctx context.Context) (string, error) {
		_, err := describe[pairs[0]](ctx)
		return f.checkToken(err)
	}}, {Name: "clock of the cloud", DependsOn: []string{tokenCheckName}, Run: func(ctx context.Context) (string, error) {
		_, err := describe[pairs[0]](ctx)
		theirs, readAt := f.cloud.Clock() // an answer that refuses bears a date too
		if err != nil && theirs.IsZero() {
			return "", preflight.Warning("no answer to take it from: %s", err)
		}
		return preflight.CheckSkew(theirs.Sub(readAt), !theirs.IsZero())
	}}}
	for _, p := range pairs {
		all = append(all, preflight.Check{
			Name: fmt.Sprintf("LAN %s of datacenter %.8s…", p.LAN, p.Datacenter), DependsOn: []string{tokenCheckName},
			Run: func(ctx context.Context) (string, error) {
				d, err := describe[p](ctx)
				if err != nil {
					return "", fmt.Errorf("%w: check IONOS_DATACENTER_ID and IONOS_PRIVATE_LAN_ID, and that the token's user may see both", err)
				}
				return f.checkLAN(p, d)
			},
		})
	}
	return all
}

// tokenCheckName judges the token by its own words, and by what came of the first call with it.
func (f *preflightChecker) checkToken(callErr error) (string, error) {
	at, known, err := f.cloud.TokenExpiry()
	if err != nil {
		return "", err
	}
	left := time.Until(at)
	expiry := fmt.Sprintf("it expires in %d days, on %s", int(left.Hours()/24), at.UTC().Format(time.DateOnly))
	if !known {
		expiry = "it does not say when it expires"
	}
	accepted := "accepted; "
	if callErr != nil {
		accepted = "" // that did not come out
	}
	switch {
	case known && left <= 0:
		return "", fmt.Errorf("it expired on %s: make another", at.UTC().Format(time.RFC3339))
	case ionos.Unauthorized(callErr):
		return "", callErr
	case known && left < expiresSoon:
		return "", preflight.Warning("%s: make another; in IONOS_TOKEN_FILE it is replaced without a restart", expiry)
	}
	return accepted + expiry, nil
}

// checkLAN judges what the cloud says of a pair.
func (f *preflightChecker) checkLAN(p ionos.Pair, d ionos.Description) (string, error) {
	if d.Public {
		return "", fmt.Errorf("LAN %s (%q) of %q is public: give the private one as IONOS_PRIVATE_LAN_ID", p.LAN, d.LAN, d.Datacenter)
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
		return detail + ", of no known block of addresses", nil
	}
	subnets := settings.ToPrefixes(f.cfg.Subnets)
	if !slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return slices.ContainsFunc(blocks, s.Overlaps) }) {
		return "", fmt.Errorf("%s, has the addresses %v, none of them inside %v: check SECURED_SUBNET_CIDR and IONOS_PRIVATE_LAN_ID", detail, blocks, subnets)
	}
	return fmt.Sprintf("%s, addresses %v", detail, blocks), nil
}

package ionos

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"

	"github.com/slicefeed/slicefeed/services/inventory/ionoshttp"
)

// Description is what the API returns about a configured pair, for preflight.
type Description struct {
	Datacenter string // name
	LAN        string // name
	Public     bool   // the LAN is connected to the internet

	// IPv4 and IPv6 are the LAN's prefixes. The zero Prefix: none; a public LAN has none for IPv4.
	IPv4, IPv6 netip.Prefix
}

// TokenExpiry reads the token that the next request would use. known is false if the token does not
// state its expiry.
func (c *Client) TokenExpiry() (at time.Time, known bool, err error) {
	token, err := c.transport.Token.Read()
	if err != nil {
		return time.Time{}, false, err
	}
	at, known = ionoshttp.ParseExpiry(token)
	return at, known, nil
}

// Describe reads the datacenter and the LAN of a pair. It sends two requests, which count in the budget.
func (c *Client) Describe(ctx context.Context, p Pair) (Description, error) {
	if _, err := groupByDatacenter([]Pair{p}); err != nil {
		return Description{}, err
	}
	dc := strings.ToLower(p.Datacenter)
	var out Description
	if err := c.readDatacenter(ctx, dc, &out); err != nil {
		return Description{}, fmt.Errorf("read datacenter %s: %w", dc, err)
	}
	lan, err := c.readLAN(ctx, dc, p.LAN)
	if err != nil {
		return Description{}, fmt.Errorf("read LAN %s of datacenter %s: %w", p.LAN, dc, err)
	}
	out.LAN, out.Public = ionoscloud.ToValueDefault(lan.Name), ionoscloud.ToValueDefault(lan.Public)
	if out.IPv4, err = parsePrefix(lan.Ipv4CidrBlock); err == nil {
		out.IPv6, err = parsePrefix(lan.Ipv6CidrBlock)
	}
	if err != nil {
		return Description{}, fmt.Errorf("read LAN %s of datacenter %s: %w", p.LAN, dc, err)
	}
	return out, nil
}

func (c *Client) readDatacenter(ctx context.Context, id string, out *Description) error {
	dc, err := callAPI(ctx, c, func(ctx context.Context) (ionoscloud.Datacenter, *ionoscloud.APIResponse, error) {
		return c.api.DataCentersApi.DatacentersFindById(ctx, id).Depth(0).Pretty(false).Execute()
	})
	if err != nil {
		return err
	}
	if err := checkIdentity("datacenter", id, dc.Type, dc.Id); err != nil {
		return err
	}
	if dc.Properties != nil {
		out.Datacenter = ionoscloud.ToValueDefault(dc.Properties.Name)
	}
	return nil
}

// parsePrefix parses a prefix that may be missing.
func parsePrefix(field *string) (netip.Prefix, error) {
	text := ionoscloud.ToValueDefault(field)
	if text == "" {
		return netip.Prefix{}, nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not an address prefix", truncate(text))
	}
	return p.Masked(), nil
}

package ionos

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"
)

// Description is what the API returns about a configured pair, for preflight.
type Description struct {
	Datacenter string         // name
	LAN        string         // name
	Public     bool           // the LAN is connected to the internet
	Prefixes   []netip.Prefix // of the LAN, one of each address family at most; a public LAN has none for IPv4
}

// Describe reads the datacenter and the LAN of a pair. It sends two requests, which count in the budget.
func (c *Client) Describe(ctx context.Context, p Pair) (Description, error) {
	id := strings.ToLower(p.Datacenter)
	dc, err := callAPI(ctx, c, func(ctx context.Context) (ionoscloud.Datacenter, *ionoscloud.APIResponse, error) {
		return c.api.DataCentersApi.DatacentersFindById(ctx, id).Depth(0).Pretty(false).Execute()
	})
	if err == nil {
		err = checkIdentity("datacenter", id, dc.Type, dc.Id)
	}
	if err != nil {
		return Description{}, fmt.Errorf("read datacenter %s: %w", id, err)
	}
	lan, err := c.readLAN(ctx, id, p.LAN)
	if err != nil {
		return Description{}, err
	}
	out := Description{
		Datacenter: ionoscloud.ToValueDefault(ionoscloud.ToValueDefault(dc.Properties).Name),
		LAN:        ionoscloud.ToValueDefault(lan.Name),
		Public:     ionoscloud.ToValueDefault(lan.Public),
	}
	for _, field := range []*string{lan.Ipv4CidrBlock, lan.Ipv6CidrBlock} {
		text := ionoscloud.ToValueDefault(field)
		if text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return Description{}, fmt.Errorf("read LAN %s of datacenter %s: %q is not an address prefix", p.LAN, id, truncate(text))
		}
		out.Prefixes = append(out.Prefixes, prefix.Masked())
	}
	return out, nil
}

package ionos

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"
)

// Description is what the API returns about a configured pair, for preflight.
type Description struct {
	Datacenter string // name
	Location   string // such as de/fra
	LAN        string // name
	Public     bool   // the LAN is connected to the internet

	// IPv4 and IPv6 are the LAN's prefixes. The zero Prefix: none; a public LAN has none for IPv4.
	IPv4, IPv6 netip.Prefix
}

// Clock returns the Date header of the last response that had one, even if it was an error response, and
// the time at which this machine received it. Both are zero if there was none.
func (c *Client) Clock() (serverTime, readAt time.Time) {
	clock := c.clock
	clock.mu.Lock()
	defer clock.mu.Unlock()
	return clock.serverTime, clock.readAt
}

// serverClock keeps the date of the last response that had one.
type serverClock struct {
	mu                 sync.Mutex
	serverTime, readAt time.Time
}

func (c *serverClock) recordDate(h http.Header, now time.Time) {
	serverTime, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serverTime, c.readAt = serverTime, now
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
	out.LAN, out.Public = deref(lan.Name), deref(lan.Public)
	if out.IPv4, err = parsePrefix(lan.Ipv4CidrBlock); err == nil {
		out.IPv6, err = parsePrefix(lan.Ipv6CidrBlock)
	}
	if err != nil {
		return Description{}, fmt.Errorf("read LAN %s of datacenter %s: %w", p.LAN, dc, err)
	}
	return out, nil
}

func (c *Client) readDatacenter(ctx context.Context, id string, out *Description) error {
	var dc ionoscloud.Datacenter
	err := c.callAPI(ctx, func(ctx context.Context) error {
		var err error
		dc, _, err = c.api.DataCentersApi.DatacentersFindById(ctx, id).Depth(0).Pretty(false).Execute()
		return err
	})
	if err != nil {
		return err
	}
	if err := checkIdentity("datacenter", id, dc.Type, dc.Id); err != nil {
		return err
	}
	if dc.Properties != nil {
		out.Datacenter, out.Location = deref(dc.Properties.Name), deref(dc.Properties.Location)
	}
	return nil
}

// parsePrefix parses a prefix that may be missing.
func parsePrefix(text *string) (netip.Prefix, error) {
	if text == nil || *text == "" {
		return netip.Prefix{}, nil
	}
	p, err := netip.ParsePrefix(*text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not an address prefix", truncate(*text))
	}
	return p.Masked(), nil
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

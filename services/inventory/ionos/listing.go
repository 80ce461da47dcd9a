package ionos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"
)

// List reads a complete, consistent listing of all pairs, or returns an error. A server whose data is
// invalid is in the listing's Invalid and not among its Servers. Servers are sorted by ID. States such as
// BUSY only mean that a change is pending, and are ignored.
func (c *Client) List(ctx context.Context) (roster.Listing, error) {
	out := roster.Listing{Invalid: make(map[string]string)}
	datacenterOf := make(map[string]string) // by server ID
	for _, dc := range c.datacenters {
		servers, err := c.listServers(ctx, dc)
		if err != nil {
			return roster.Listing{}, err
		}
		for _, s := range servers {
			if other, ok := datacenterOf[s.ID]; ok {
				return roster.Listing{}, fmt.Errorf("server %s is in datacenter %s and in %s", truncate(s.ID), other, dc.id)
			}
			datacenterOf[s.ID] = dc.id
			if s.err != nil {
				out.Invalid[s.ID] = s.err.Error()
			} else {
				out.Servers = append(out.Servers, s.Server)
			}
		}
		// LANs are read after servers. An address is added to NICs first, and then declared as failover by
		// the LAN: if the LAN was read first, a declaration between the two requests would be missed.
		for _, lan := range dc.lans {
			failover, err := c.readFailover(ctx, dc.id, lan)
			if err != nil {
				return roster.Listing{}, err
			}
			out.Failover = append(out.Failover, failover...)
		}
	}
	slices.SortFunc(out.Servers, func(a, b roster.Server) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(out.Failover, netip.Addr.Compare)
	out.Failover = slices.Compact(out.Failover)
	c.metrics.lastListing.SetToCurrentTime()
	return out, nil
}

// readFailover reads the failover addresses of a LAN, which several servers share. An invalid one is an
// error: without it, a shared address could be taken for the address of one server.
func (c *Client) readFailover(ctx context.Context, dc, number string) ([]netip.Addr, error) {
	lan, err := c.readLAN(ctx, dc, number)
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, f := range ionoscloud.ToValueDefault(lan.IpFailover) {
		addr, err := parseAddress(ionoscloud.ToValueDefault(f.Ip))
		if err != nil {
			return nil, fmt.Errorf("failover group of LAN %s of datacenter %s: %w", number, dc, err)
		}
		out = append(out, addr)
	}
	return out, nil
}

func (c *Client) readLAN(ctx context.Context, dc, number string) (*ionoscloud.LanProperties, error) {
	lan, err := callAPI(ctx, c, func(ctx context.Context) (ionoscloud.Lan, *ionoscloud.APIResponse, error) {
		return c.api.LANsApi.DatacentersLansFindById(ctx, dc, number).Depth(0).Pretty(false).Execute()
	})
	if err == nil {
		err = checkIdentity("lan", number, lan.Type, lan.Id)
	}
	if err == nil && lan.Properties == nil {
		err = errors.New("response without properties")
	}
	if err != nil {
		return nil, fmt.Errorf("read LAN %s of datacenter %s: %w", number, dc, err)
	}
	return lan.Properties, nil
}

// Limits of a server's data. A server that exceeds them is invalid.
const (
	maxTextLength = 1024 // bytes of an ID or a name
	maxNICs       = 32   // on the configured LANs
	maxAddresses  = 256  // of a NIC
)

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// convertServer converts a server of the SDK, any of whose fields may be nil.
func convertServer(s ionoscloud.Server, dc datacenter) (roster.Server, error) {
	out := roster.Server{ID: serverID(s), Datacenter: dc.id}
	switch {
	case !uuidPattern.MatchString(out.ID):
		return out, errors.New("id is not a UUID")
	case s.Type == nil || *s.Type != ionoscloud.SERVER:
		return out, errors.New("type is not server")
	case s.Properties == nil:
		return out, errors.New("no properties")
	case s.Entities == nil || s.Entities.Nics == nil || s.Entities.Nics.Items == nil:
		return out, errors.New("no list of NICs") // an empty list is valid
	}
	if out.Name = ionoscloud.ToValueDefault(s.Properties.Name); len(out.Name) > maxTextLength {
		return out, fmt.Errorf("name has %d bytes, want at most %d", len(out.Name), maxTextLength)
	}
	nics := s.Entities.Nics
	if hasNextPage(nics.Links) {
		return out, errors.New("list of NICs is incomplete")
	}
	if limit := ionoscloud.ToValueDefault(nics.Limit); limit > 0 && float32(len(*nics.Items)) >= limit {
		return out, fmt.Errorf("list of NICs is full at %g, there may be more", limit)
	}
	for i, n := range *nics.Items {
		nic, onLAN, err := convertNIC(n, dc.lans)
		if err != nil {
			return out, fmt.Errorf("NIC %d (%q): %w", i, truncate(nic.ID), err)
		}
		if onLAN {
			if len(out.NICs) == maxNICs {
				return out, fmt.Errorf("more than %d NICs on the LANs", maxNICs)
			}
			out.NICs = append(out.NICs, nic)
		}
	}
	return out, nil
}

// convertNIC converts a NIC and reports whether it is on one of the LANs. Addresses on other LANs are
// not read.
func convertNIC(n ionoscloud.Nic, lans []string) (roster.NIC, bool, error) {
	var out roster.NIC
	if n.Id == nil || *n.Id == "" || len(*n.Id) > maxTextLength {
		return out, false, errors.New("id is missing or too long")
	}
	out.ID = *n.Id
	switch {
	case n.Type == nil || *n.Type != ionoscloud.NIC:
		return out, false, errors.New("type is not nic")
	case n.Properties == nil || n.Properties.Lan == nil:
		return out, false, errors.New("no LAN")
	}
	out.LAN = strconv.Itoa(int(*n.Properties.Lan))
	if !slices.Contains(lans, out.LAN) {
		return out, false, nil
	}
	for _, list := range []*[]string{n.Properties.Ips, n.Properties.Ipv6Ips} {
		for _, text := range ionoscloud.ToValueDefault(list) { // nil: no address of this family yet
			addr, err := parseAddress(text)
			if err != nil {
				return out, false, err
			}
			if slices.Contains(out.Addresses, addr) {
				continue
			}
			if len(out.Addresses) == maxAddresses {
				return out, false, fmt.Errorf("more than %d addresses", maxAddresses)
			}
			out.Addresses = append(out.Addresses, addr)
		}
	}
	return out, true, nil
}

func parseAddress(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", truncate(text))
	}
	return addr.Unmap(), nil
}

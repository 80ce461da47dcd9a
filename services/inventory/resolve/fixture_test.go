package resolve

import (
	"net/netip"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/source"
)

const (
	dc = "0dc00000-0000-4000-8000-000000000000"
	s1 = "11111111-1111-4111-8111-111111111111"
	s2 = "22222222-2222-4222-8222-222222222222"
	s3 = "33333333-3333-4333-8333-333333333333"
)

var (
	addr = netip.MustParseAddr
	t0   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	cidr = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}
)

func server(id, name string) source.Server {
	return source.Server{ID: id, Datacenter: dc, Name: name, NICs: []source.NIC{{ID: "nic-" + id, LAN: "3"}}}
}

func listing(s ...source.Server) source.Listing { return source.Listing{Servers: s} }

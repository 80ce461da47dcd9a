package roster

import "net/netip"

// Server is a server of the cloud with its NICs.
type Server struct {
	ID         string // lower-case UUID
	Datacenter string // lower-case UUID
	Name       string // may be empty, need not be unique
	NICs       []NIC  // those on the datacenter's configured LANs only
}

// NIC is a network interface on one of the configured LANs.
type NIC struct {
	ID        string
	LAN       string
	Addresses []netip.Addr // canonical, in the order of the cloud, which means nothing
}

// Listing is one complete read of the cloud: every configured pair of datacenter and LAN. There is no
// partial listing: that is an error.
type Listing struct {
	Servers []Server
	// Failover are the addresses that the LANs declare as failover groups: shared by several NICs.
	Failover []netip.Addr
	// Invalid are the servers with unreadable data, by ID, and what is invalid: their nodes stay as
	// they are.
	Invalid map[string]string
}

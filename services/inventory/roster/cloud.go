package roster

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

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

// cloudIndex is a complete listing, indexed so that the cost of matching a node does not depend on the
// number of nodes.
type cloudIndex struct {
	startedAt   time.Time // zero: there was none
	byID        map[string]*Server
	byName      map[string][]*Server
	invalid     map[string]string
	serverCount map[netip.Addr]int // number of servers that have an address
	failover    map[netip.Addr]bool
}

// newCloudIndex indexes a listing. A server that is listed twice (pages are no snapshot) counts once, as
// first listed.
func newCloudIndex(l Listing, startedAt time.Time) cloudIndex {
	c := cloudIndex{
		startedAt:   startedAt,
		byID:        make(map[string]*Server, len(l.Servers)),
		byName:      make(map[string][]*Server, len(l.Servers)),
		invalid:     make(map[string]string, len(l.Invalid)),
		serverCount: map[netip.Addr]int{},
		failover:    map[netip.Addr]bool{},
	}
	for id, problem := range l.Invalid {
		c.invalid[strings.ToLower(id)] = problem
	}
	for _, s := range l.Servers {
		s.ID, s.Datacenter = strings.ToLower(s.ID), strings.ToLower(s.Datacenter)
		if c.byID[s.ID] != nil {
			continue
		}
		c.byID[s.ID] = &s
		if s.Name != "" {
			c.byName[s.Name] = append(c.byName[s.Name], &s)
		}
		for _, a := range serverAddresses(&s) {
			c.serverCount[a]++
		}
	}
	for _, a := range l.Failover {
		c.failover[a.Unmap()] = true
	}
	return c
}

func (c *cloudIndex) isShared(a netip.Addr) bool { return c.failover[a] || c.serverCount[a] > 1 }

func (c *cloudIndex) exists(id string) bool {
	_, invalid := c.invalid[id]
	return invalid || c.byID[id] != nil
}

// serversWithUUID returns the servers that a system UUID can mean: unchanged, and with the bytes of its
// first three fields swapped, as some firmware reports it.
func (c *cloudIndex) serversWithUUID(uuid string) []string {
	uuid = strings.ToLower(uuid)
	if !isUUID(uuid) {
		return nil
	}
	var ids []string
	if c.exists(uuid) {
		ids = append(ids, uuid)
	}
	if swapped := swapUUID(uuid); swapped != uuid && c.exists(swapped) {
		ids = append(ids, swapped)
	}
	return ids
}

// serverAddresses returns the addresses of the server's NICs, sorted, because the order of the cloud
// means nothing.
func serverAddresses(s *Server) []netip.Addr {
	var all []netip.Addr
	for _, n := range s.NICs {
		all = append(all, n.Addresses...)
	}
	return canonical(all)
}

// canonical returns the valid addresses in the form in which they are compared, sorted, each once.
func canonical(addrs []netip.Addr) []netip.Addr {
	all := inOrder(addrs)
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// inOrder returns the valid addresses in the form in which they are compared.
func inOrder(addrs []netip.Addr) []netip.Addr {
	all := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		if a.IsValid() {
			all = append(all, a.Unmap().WithZone(""))
		}
	}
	return all
}

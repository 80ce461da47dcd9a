package roster

import (
	"net/netip"
	"time"
)

// Candidate is a Node of Kubernetes, reduced to what the roster judges by.
type Candidate struct {
	Name, UID    string
	ProviderID   string       // spec.providerID, as it stands
	SystemUUID   string       // status.nodeInfo.systemUUID, as it stands
	InternalIPs  []netip.Addr // status.addresses of type InternalIP, canonical
	State        State
	Zone, Region string
	Labels       map[string]string

	// Excluded is why the node is not eligible, with Advice for people; zero: it is eligible.
	Excluded Reason
	Advice   string
}

// Server is a machine of the cloud with its NICs.
type Server struct {
	ID         string // lower-case UUID
	Datacenter string // lower-case UUID
	Name       string // may be empty, need not be unique
	NICs       []NIC  // those on the datacenter's configured LANs only
}

// NIC is an interface on one of the configured LANs.
type NIC struct {
	ID        string
	LAN       string
	Addresses []netip.Addr // canonical; in the order that the cloud gave, which means nothing
}

// Listing is one whole answer of the cloud about every configured (datacenter, LAN) pair.
// Only a listing that is whole may be made: a part of one is an error.
type Listing struct {
	Servers []Server
	// Failover are the addresses that the LANs declare as failover groups: shared by several NICs.
	Failover []netip.Addr
	// Bad are servers with data that cannot be read, by ID, with what is wrong with it:
	// their nodes stay as they are.
	Bad map[string]string
}

// Look is a way to ask the API server whether the informer can be believed.
type Look uint8

// The looks. Light: a quorum LIST with limit=1, whose resourceVersion the watch has to reach.
// Full: a paged quorum LIST of all Nodes, compared with the informer's set.
const (
	NoLook Look = iota
	Light
	Full
)

// Ask is what the roster wants of the outside now, and when it wants to be asked again.
type Ask struct {
	Look Look      // begin this look at the API server; its answer is given by Looked
	List bool      // begin a whole listing of the cloud; its answer is given by Listed
	Wake time.Time // call Ask again at this time at the latest
}

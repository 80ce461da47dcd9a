package roster

import (
	"net/netip"
	"time"
)

// Candidate is what a source says of one node, reduced to what the roster judges by.
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

	// Bad is what is wrong with the source's word about this node, if it cannot be used; then
	// nothing but the Name counts. A node that is known stays as it was, a new one is left out.
	Bad string

	// Trail is how the source came to its word, for people who ask. It is no part of a node.
	Trail []Step
}

// News is what a source has told since it was asked last.
type News struct {
	Changed []Candidate // new or changed, sorted by name; one that comes twice was first the former, then the latter
	Removed []string    // sorted; none of them is in Changed

	// HeardAt is when the source last spoke; if it follows several things at once, the one
	// that has been silent for longest counts. Zero: not since it was asked last.
	HeardAt time.Time
	// ChangedAt is when the first came of what changed or was removed; zero: nothing did, or
	// it is not known. It is for measuring alone.
	ChangedAt time.Time
	// Mark is the highest mark of a look (see Roster.Looked) that the source has caught up
	// with, by all that it has told.
	Mark uint64
	// Failure is what following the source failed with last, if it has not spoken since.
	Failure string

	// Flaw is what is wrong with a part of the source's word as of now: membership is
	// DEGRADED as long as it is there. Empty: nothing.
	Flaw string
	// Ports are those of the source's own endpoints as of now, if it knows any, sorted.
	Ports []Port
}

// Port is a port of the source's own endpoints.
type Port struct {
	Name     string // empty: it has none
	Protocol string // TCP, UDP or SCTP
	Number   uint16
}

// Step is one link of the chain that leads from what the source says of a node to the verdict.
type Step struct {
	Stage    string // one of the Stage constants
	Question string // what was decided
	Result   Result
	Saw      string // what was seen
}

// The stages of the chain, in their order.
const (
	StageSource      = "source"
	StageEligibility = "eligibility"
	StageState       = "state"
	StageMatch       = "match"
	StageAddress     = "address"
	StageClaim       = "claim"
)

// Result is how a step ended.
type Result uint8

// The results, as slicefeed.inventory.v1.StepResult has them. Note: a remark. Skipped: it was
// not reached, or did not matter.
const (
	Note Result = iota
	Passed
	Failed
	Skipped
)

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

// Look is a way to ask the outside whether what a source tells can be believed.
type Look uint8

// The looks. Light: a fresh question whose answer the source has to catch up with, such as a
// quorum LIST with limit=1, whose resourceVersion a watch has to reach. Full: a fresh reading
// of everything, compared with what the source has told.
const (
	NoLook Look = iota
	Light
	Full
)

// Ask is what the roster wants of the outside now, and when it wants to be asked again.
type Ask struct {
	Look Look      // begin this look at the source; its answer is given by Looked
	List bool      // begin a whole listing of the cloud; its answer is given by Listed
	Wake time.Time // call Ask again at this time at the latest
}

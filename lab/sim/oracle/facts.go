package oracle

import (
	"net/netip"
	"time"
)

// Fact is something that happened in the world. The world tells each at the moment at which it
// happens, in the order of time; whatever a fact points to is never altered afterwards.
type Fact interface{ fact() }

// State is what a control plane says of a machine.
type State uint8

// A state that the writer does not know is Unknown.
const (
	Unknown State = iota
	Ready
	Draining
	NotReady
)

// Member is a machine with its addresses, as it is or as it is told.
type Member struct {
	Name      string
	Addresses []netip.Addr // of both families
	State     State
	Labels    map[string]string
	Port      uint16 // at which it serves; 0: that is not told
}

// Backend says whether what stands behind an address truly answers at a port, from anywhere.
type Backend struct {
	Address netip.Addr
	Port    uint16
	Alive   bool
}

// Truth is all that an inventory without a fault would tell now of a source's machines.
type Truth struct {
	Source  string
	Members []Member
}

// Told is what a writer's subscriber holds of a source, whole. It is a fact whenever any of it
// changes in what the writer judges by, and when the writer starts with nothing.
type Told struct {
	Writer, Source string

	Ever       bool      // synced at least once since the writer started
	Synced     bool      // in the source's present epoch
	Alive      bool      // heartbeats come
	Membership bool      // the membership's status is SYNCED
	Word       time.Time // when a synced state with such a membership came last

	Epoch       string // of the observation
	Observation uint64
	Received    time.Time // when the observation came

	Members []Member
}

// Verdict is a prober's status of an address.
type Verdict uint8

// An address is Unjudged until it has been probed often enough.
const (
	Unjudged Verdict = iota
	Passing
	Failing
)

// Probed is a prober's status of an address at a port, whenever any of it changes at a writer, and when it begins.
type Probed struct {
	Writer  string
	Probe   string // as in Configured
	Address netip.Addr
	Port    uint16

	Verdict      Verdict
	FailingSince time.Time // when the run of failures began
	LastPassed   time.Time // zero: never since the writer started
}

// Leads says that a writer took itself for the leader from now on, or does so no more.
type Leads struct {
	Writer string
	Leads  bool
}

// Process says that a writer's process began, or ended: all that it remembered is gone.
type Process struct {
	Writer string
	Runs   bool
}

// Configured is what a writer knows of a target's settings.
type Configured struct {
	Writer, Target string

	Out    bool // opted out, or deleted: the rest says nothing
	Paused bool

	Sources  []string          // of all tiers
	Selector map[string]string // each label with its value
	Probe    string            // names the prober that is used; empty: probing is off
	NoOut    bool              // endpoints that are out are not listed
	IPv4     bool
	IPv6     bool
	Port     uint16            // of the Service
	Ports    map[string]uint16 // those of sources that have another one
	Follows  bool              // all other sources tell the ports of their machines

	ShrinkWindow   time.Duration
	EmptyThreshold int
	MaxStaleness   time.Duration

	Failover      []string // sources that stand by, each for those before it
	FailoverBelow int
	ExpireAfter   time.Duration // 0: never
}

// Fenced is what a writer lets a source say.
type Fenced struct {
	Writer, Source string
	Inside         []netip.Prefix
	Forbidden      []netip.Addr // ClusterIPs of watched Services
	Ports          []uint16     // that may be written and probed; none: all
}

// Planned says that a writer decided and found something to write. Everything that it knew then
// has been told before. A decision with nothing to write is no fact.
type Planned struct {
	Writer, Target string
	Plan           uint64 // unique in the world
	Writes         int    // how many requests it makes; 0: that is not known
}

// Conditions of an endpoint; in a slice all three are always set.
type Conditions struct{ Ready, Serving, Terminating bool }

// Endpoint is one address in a slice.
type Endpoint struct {
	Conditions

	Address netip.Addr
}

// Slice is an EndpointSlice of ours.
type Slice struct {
	Source    string // the label; empty: none
	Port      uint16
	Endpoints []Endpoint
	Rest      string // everything else that has a meaning: labels, owner; in any form that compares
}

// Wrote says that a request of a writer took effect at the API server, whether or not the
// writer will ever hear of it. Before is nil when it was created, After when it was deleted.
type Wrote struct {
	Writer, Target string
	Plan           uint64
	Sent           time.Time // when the writer looked last whether it leads
	Slice          string
	Before, After  *Slice
	Version        uint64 // of all slices then, as of Edited
}

// Edited says that someone else made, altered or deleted a slice of ours.
type Edited struct {
	Target, Slice string
	After         *Slice
	Version       uint64 // of all slices then: a number that grows
}

// Noticed says that a writer has been shown what a slice was at a version, by its watch or by an answer.
type Noticed struct {
	Writer, Target string
	Slice          string // empty: all of them
	Version        uint64
}

// Acts are the guards that a writer says are acting in its present decision on a target. The
// oracle uses it for two things alone: what a guard keeps in the end has to be told; and a budget may
// have been in use before anything left.
type Acts struct {
	Writer, Target string
	Guards         []string       // as the product names them, lower case: allowlist, initial-sync, panic, empty, trust, floor, shrink
	Withheld       map[string]int // by source, how many endpoints the last of them holds back
}

// Holds says how many nodes a peer makes the other side hold.
type Holds struct {
	Holder, Peer string
	Nodes        int
}

// Fault says that something goes wrong from now on, or no more.
type Fault struct {
	Kind   string
	Begins bool
}

// Lies says that a source's inventory begins to lie.
type Lies struct{ Source string }

// Over says that all faults are over, and that the truth stays as it is from now on.
type Over struct{}

// End says that the world ends. It comes no earlier than Due.
type End struct{}

func (Backend) fact()    {}
func (Truth) fact()      {}
func (Told) fact()       {}
func (Probed) fact()     {}
func (Leads) fact()      {}
func (Process) fact()    {}
func (Configured) fact() {}
func (Fenced) fact()     {}
func (Planned) fact()    {}
func (Wrote) fact()      {}
func (Edited) fact()     {}
func (Noticed) fact()    {}
func (Acts) fact()       {}
func (Holds) fact()      {}
func (Fault) fact()      {}
func (Lies) fact()       {}
func (Over) fact()       {}
func (End) fact()        {}

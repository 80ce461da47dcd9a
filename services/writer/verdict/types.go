package verdict

import (
	"net/netip"
	"time"
)

// State is what a source says of one of its members. The zero value is a state that
// we do not know: a newer inventory may have one.
type State uint8

// The states that a source may tell.
const (
	Unknown State = iota
	Ready
	Draining
	NotReady
)

// Health is what the probe says of an address. The zero value: not judged yet.
type Health uint8

// The probe's words.
const (
	Unjudged Health = iota
	Passing
	Failing
)

// Probe is the probe's word on one address and when it was first said.
type Probe struct {
	Health Health
	Since  time.Time
	Detail string // why it fails, or is not judged, in words that stay the same while it does

	// Passed is when a probe last passed; zero: never, or not known.
	Passed time.Time
	// Expired: it is not judged since no probe came to a conclusion of late. The prober cannot probe it.
	Expired bool
	// Failed is when the first of the failures ended that led to this word; zero: Since.
	Failed time.Time

	// RunStart and RunLast are the run of results that agree with Health: when its first pass began or its first
	// failure ended, and when its youngest probe began. Zero: not known.
	RunStart, RunLast time.Time
}

// Conditions are those of an EndpointSlice's endpoint; all three are always written.
type Conditions struct {
	Ready, Serving, Terminating bool
}

// Member is one address of one node of a source, of the target's families, selected by the target.
type Member struct {
	Address netip.Addr
	Name    string // of the node, for reasons
	State   State
	Since   time.Time // when it entered its state
	Zone    string    // as written, after mapping; usually empty
}

// Source is one source of the target at this moment.
type Source struct {
	Name string

	// Heard is whether it was synced once since this process started (the snapshot gate).
	// Until then its members mean nothing.
	Heard bool
	// Alive is whether the link is alive and was synced in its present epoch.
	Alive bool
	// MembershipSynced is what the source last said of its membership, at MembershipAt by our clock.
	MembershipSynced bool
	MembershipAt     time.Time

	// Epoch and Observation number its last complete observation, received at ObservationAt by our clock.
	Epoch         string
	Observation   uint64
	ObservationAt time.Time

	// Members sorted by address. One member an address.
	Members []Member
	// Trusted are the members as they were last reported while the source could be trusted, sorted by address. They
	// matter while it cannot be: a decision may come later than several reports and the loss of the link.
	Trusted []Member
	// Selector is what chose them from all that the source tells. What leaves because it
	// changed is our own doing.
	Selector string

	// Fence is what this source may point to.
	Fence Fence
}

// Fence bounds what may be written at all for a source.
type Fence struct {
	CIDRs []netip.Prefix
	// Forbidden are addresses never written, such as ClusterIPs of watched Services.
	Forbidden map[netip.Addr]struct{}
}

// DefaultSource is whose an endpoint is when its slice does not say.
const DefaultSource = "default"

// Held is an endpoint as the slices say it now, never older than our own last write.
type Held struct {
	Address    netip.Addr
	Conditions Conditions
	Source     string // the slice's label; empty stands for DefaultSource
	Zone       string
}

// Defaults of the limits that have no useful zero.
const (
	DefaultMaxStaleness   = 15 * time.Minute
	DefaultEmptyThreshold = 3
)

// Limits are the target's settings.
type Limits struct {
	MaxStaleness   time.Duration // how old a source's word that its membership is SYNCED may be; 0: the default
	EmptyThreshold int           // complete observations that believe in an empty set; 0: the default
	ShrinkWindow   time.Duration // in which half of a source's endpoints may leave on its word alone; 0: any number at any time
	ListOut        bool          // list endpoints that are out, all conditions false
	Probing        bool
	// Resync is the time at which a person asked for a resync: around it, and once per leader, what the sources do not list
	// leaves whatever shrink, floor and an unconfirmed emptiness say. Zero: never.
	Resync time.Time
}

// Input is all that a decision rests on.
type Input struct {
	Sources []Source // sorted by name
	Probes  map[netip.Addr]Probe
	Held    []Held // sorted by address
	Limits  Limits

	// Rejected: the Service cannot be served as it is now. No source is trusted, so what is held
	// stays and follows its probes, and nothing is added.
	Rejected bool
	// LeadingSince is when we took the Lease; zero: we do not lead, and nothing is written.
	LeadingSince time.Time
}

// Verdict is what is made of one endpoint.
type Verdict uint8

// The verdicts.
const (
	Serve Verdict = iota + 1
	Drain
	Out
	Gone
	Hold
)

func (v Verdict) String() string {
	switch v {
	case Serve:
		return "serve"
	case Drain:
		return "drain"
	case Out:
		return "unready"
	case Gone:
		return "remove"
	case Hold:
		return "hold"
	}
	return "none"
}

// Rule names what spoke last on an endpoint or held a change back.
type Rule string

// The rules, in the order in which they are asked.
const (
	RuleFence  Rule = "allowlist"
	RuleGate   Rule = "initial-sync"
	RulePanic  Rule = "panic"
	RuleEmpty  Rule = "empty"
	RuleTrust  Rule = "trust"
	RuleTable  Rule = "table"
	RuleFloor  Rule = "floor"
	RuleShrink Rule = "shrink"
)

// Endpoint is the judgement of one address.
type Endpoint struct {
	Address    netip.Addr
	Source     string
	Zone       string
	Verdict    Verdict
	Conditions Conditions
	Listed     bool   // whether it belongs into the slices
	Rule       Rule   // that spoke
	Reason     string // for people: both witnesses' words
}

// Guard is a guard that holds something back at present. One (Rule, Source) in consecutive
// decisions is one episode, however its numbers change.
type Guard struct {
	Rule    Rule
	Source  string // empty: the whole target
	Held    int    // how many endpoints it holds back, or refuses
	Message string // one sentence that says what was seen, what is done, and what to do
}

// Decision is what to write, why, and when to ask again.
type Decision struct {
	// Write is false when nothing may be written at all (a fence that would take every held
	// endpoint, for one): Endpoints then repeat what is held.
	Write     bool
	Endpoints []Endpoint // sorted by address; those not Listed are here for their reasons
	Guards    []Guard    // in the order of the rules, then by source
	// NeedObservations names the sources of which only newer observations would release something.
	NeedObservations []string
	// Panic is whether the failures of all probes of this target are void. Sees is whether
	// a probe of it passes, and BlindSince since when none does though something is probed
	// and held; zero: one does, or there is nothing to see.
	Panic, Sees bool
	// CannotProbe is whether an endpoint in use has no probe status since it cannot be probed.
	CannotProbe bool
	BlindSince  time.Time
	Resync      Resync
	Wake        time.Time // ask again then at the latest; zero: only on a change
}

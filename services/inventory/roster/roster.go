// Package roster joins what Kubernetes and the cloud say into one judged list of
// nodes. It promises that neither an error nor an odd answer ever shrinks the list,
// and that each address belongs to one node. It refuses to do anything: no client,
// no clock, no goroutine; events and time come in, changes and questions go out.
package roster

import (
	"net/netip"
	"time"
)

// Resolver is how a node's addresses are found.
type Resolver uint8

// The resolvers: by the cloud's NIC data, or by the Node's own InternalIP.
const (
	ByCloud Resolver = iota + 1
	ByNodeAddress
)

// Config is what a roster is judged by. All fields but Pace and Poll are mandatory.
type Config struct {
	Resolver Resolver
	CIDRs    []netip.Prefix // addresses outside of them do not count

	Poll time.Duration // between two listings of the cloud at rest; 0: 60s
	Pace time.Duration // between two observations in doubt; 0: 5s
}

// Roster is the list and what is known of its worth. It is not safe for concurrent
// use: one goroutine owns it.
type Roster struct{}

// New returns an empty roster.
func New(Config) *Roster { return &Roster{} }

// Upsert takes in a Node as the watch tells it, new or changed. A new UID under a
// known name is another node: nothing of the old one is kept.
func (r *Roster) Upsert(now time.Time, c Candidate) {}

// Remove takes out a Node that the watch tells as deleted.
func (r *Roster) Remove(now time.Time, name string) {}

// Heard takes in that the watch of the Nodes has spoken, by an event or a bookmark,
// and the resourceVersion it has reached. Call it after the Upserts and Removes that led there.
func (r *Roster) Heard(now time.Time, resourceVersion uint64) {}

// WatchFailed takes in what the watch said when it failed, for the status text.
func (r *Roster) WatchFailed(now time.Time, reason string) {}

// Looked answers Ask.Look, which began at that time; rv is the LIST's resourceVersion.
// For Full, a nil error means that the informer's set equalled the listed one.
// Call it after the Upserts and Removes that were told before the look ended.
func (r *Roster) Looked(now, began time.Time, look Look, rv uint64, err error) {}

// Listed answers Ask.List, which began at that time. With an error the listing is ignored;
// retryAfter is what the cloud asked for, 0: nothing.
func (r *Roster) Listed(now, began time.Time, l Listing, err error, retryAfter time.Duration) {}

// Doubt takes in that a subscriber or one of its views wants a series of complete
// observations (1 to 10). Series are shared: the larger of what remains and what is asked holds.
func (r *Roster) Doubt(now time.Time, observations int) {}

// SetDoubtDepth says how many observations a series has that the roster starts by
// itself (1 to 10): the largest number that a connected subscriber wants.
func (r *Roster) SetDoubtDepth(n int) {}

// Ask returns what to begin now, and when to ask again. What it asks for counts as under
// way until it is answered by Looked or Listed, so each question must be answered once.
func (r *Roster) Ask(now time.Time) Ask { return Ask{} }

// Take returns what changed since the last Take, sorted by name, each name once.
// Before the first word (Status.Told), and while it is withdrawn, there is nothing to
// take: what changed meanwhile comes with the Take after it.
func (r *Roster) Take() []Change { return nil }

// Status returns what the roster is worth at this time.
func (r *Roster) Status(now time.Time) Status { return Status{} }

// Nodes returns the whole roster, sorted by name. Its cost is that of the fleet.
func (r *Roster) Nodes() []*Node { return nil }

// Omitted returns the Nodes that are left out, sorted by name. Its cost is that of the fleet.
func (r *Roster) Omitted() []Omission { return nil }

// Counts returns how many nodes there are in each state, and how many are left out for
// each reason, in the order of the constants. Cheap.
func (r *Roster) Counts() Counts { return Counts{} }

// Counts are numbers of nodes: in the roster by state, left out by reason.
type Counts struct {
	States  map[State]int
	Omitted map[Reason]int
}

// Package endpoints is what the writer lets others see of its decisions: for readers of the
// stream the endpoints of each target, in ledgers that any of them can be led by, and for
// people why they are as they are. It promises that nothing is told before there has been a
// decision on all that was found at the start, and that a target which is paused or refused is
// told as its slices are. It refuses to decide, and to know who reads.
package endpoints

import (
	"cmp"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// State says whether the writer writes to a target.
type State uint8

// The states, numbered as on the wire.
const (
	Managed State = iota + 1
	Paused
	Rejected
)

// Target is all that is known of one target at a moment: what its loop has at hand when it
// has decided. It is kept as it is, so it is not to be altered afterwards.
type Target struct {
	Namespace, Service string

	State   State
	Reason  string // of a refusal: one word, as in the Event
	Message string // of a refusal: what was seen and what to do
	Leading bool   // we hold the Lease

	// FollowsProbes: the target is refused, but the endpoints that its slices list get the conditions
	// that follow from their probes. Nothing is added.
	FollowsProbes bool

	// Ports are those written, while Managed.
	Ports []discoveryv1.EndpointPort
	// Slices are those of the namespace and ManagedBy marks ours: what they list is told while the
	// target is not Managed. Others' slices among them do no harm.
	Slices    []*discoveryv1.EndpointSlice
	ManagedBy string

	// Input and Decision are the last ones; zero for a target that is refused, unless it FollowsProbes.
	Input    verdict.Input
	Decision verdict.Decision

	// Sources are the target's sources as its subscribers have them.
	Sources []subscriber.Snapshot
}

// Port is a port to connect to.
type Port struct {
	Name, Protocol string
	Number         uint16
	AppProtocol    string
}

// Backend is an address that a target lists.
type Backend struct {
	Address    netip.Addr
	Conditions verdict.Conditions
	Source     string
	Zone       string
}

// MaxBackends is how many backends a group tells at most: a message has to hold it.
const MaxBackends = 10_000

// EntryKind is what an Entry tells.
type EntryKind uint8

// The kinds.
const (
	KindTarget   EntryKind = iota + 1 // the Service itself
	KindEndpoint                      // one address of one port
	KindGroup                         // one port with all of its addresses
)

// Entry is what readers are told. Entries are immutable.
type Entry struct {
	Key                string
	Namespace, Service string
	Kind               EntryKind
	Fingerprint        deltaset.Digest

	// Of a target.
	State           State
	Reason, Message string
	Ports           []Port

	// Of an endpoint, which has one backend, or of a group.
	Port     Port
	Backends []Backend
	Omitted  int // backends that a group does not tell
}

// Identity is that of a ledger's entry.
func (e *Entry) Identity() (group, key string, fingerprint deltaset.Digest) {
	return e.Namespace + "/" + e.Service, e.Key, e.Fingerprint
}

func (e *Entry) withFingerprint() *Entry {
	c := make(deltaset.Hasher, 0, 256)
	port := func(p Port) {
		c.AddString(p.Name)
		c.AddString(p.Protocol)
		c.AddUint(uint64(p.Number))
		c.AddString(p.AppProtocol)
	}
	c.AddString("slicefeed.writer.v1.Entry")
	c.AddUint(uint64(e.Kind))
	c.AddString(e.Namespace)
	c.AddString(e.Service)
	if e.Kind == KindTarget {
		c.AddUint(uint64(e.State))
		c.AddString(e.Reason)
		c.AddString(e.Message)
		c.AddUint(uint64(len(e.Ports)))
		for _, p := range e.Ports {
			port(p)
		}
	} else {
		port(e.Port)
		c.AddUint(uint64(len(e.Backends)))
		for _, b := range e.Backends {
			c.AddString(b.Address.String())
			c.AddBools(b.Conditions.Ready, b.Conditions.Serving, b.Conditions.Terminating)
			c.AddString(b.Source)
			c.AddString(b.Zone)
		}
		c.AddUint(uint64(e.Omitted))
	}
	e.Fingerprint = c.Fingerprint()
	return e
}

// published is what is told of a target.
type published struct {
	state           State
	reason, message string
	ports           []Port    // by name, each name once
	backends        []Backend // by address, each address once
}

// published is all that is told, but for the backends of a target that is managed.
func (t *Target) published() published {
	is := published{state: t.State, reason: t.Reason, message: t.Message}
	switch t.State {
	case Paused:
		is.reason = "Paused"
		is.message = `The Service is annotated slicefeed.dev/paused: "true", so nothing at all is written to it: remove the annotation when what was done by hand is done.`
	case Managed:
		is.ports = convertPorts(t.Ports)
		return is
	}
	ours := planner.Desired{Namespace: t.Namespace, Service: t.Service, ManagedBy: t.ManagedBy}
	var listed []discoveryv1.EndpointPort
	for _, slice := range t.Slices {
		if slice.DeletionTimestamp == nil && ours.Owns(slice) {
			listed = append(listed, slice.Ports...)
		}
	}
	is.ports = convertPorts(listed)
	for _, e := range planner.CurrentEndpoints(ours, t.Slices) {
		// What was written by hand may be ready and not serving, which would make no sense to readers.
		c := verdict.Conditions{Ready: e.Ready, Serving: e.Serving || e.Ready, Terminating: e.Terminating}
		is.backends = append(is.backends, Backend{e.Address, c, e.Source, e.Zone})
	}
	return is
}

// desiredBackends are those of a target that is managed.
func (t *Target) desiredBackends() []Backend {
	all := make([]Backend, 0, len(t.Decision.Endpoints))
	for i := range t.Decision.Endpoints {
		if e := &t.Decision.Endpoints[i]; e.Listed {
			all = append(all, Backend{e.Address, e.Conditions, e.Source, e.Zone})
		}
	}
	return all
}

func convertPorts(listed []discoveryv1.EndpointPort) []Port {
	var all []Port
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	for _, p := range listed {
		if p.Port == nil || *p.Port < 1 || *p.Port > 65535 {
			continue
		}
		port := Port{Name: text(p.Name), Protocol: "TCP", Number: uint16(*p.Port), AppProtocol: text(p.AppProtocol)}
		if p.Protocol != nil {
			port.Protocol = string(*p.Protocol)
		}
		all = append(all, port)
	}
	slices.SortStableFunc(all, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b Port) bool { return a.Name == b.Name })
}

func (a published) equal(b published) bool {
	return a.equalTarget(b) && slices.Equal(a.backends, b.backends)
}

func (a published) equalTarget(b published) bool {
	return a.state == b.state && a.reason == b.reason && a.message == b.message && slices.Equal(a.ports, b.ports)
}

// Package endpoints publishes the writer's decisions: for clients of the stream the endpoints of each target, and for
// people why they are as they are. It guarantees what slicefeed.writer.v1 requires of a server, that nothing is published
// before every target found at the start has a decision, and that a paused or rejected target is published as its slices
// list it. It does not decide about endpoints, nor which clients may call which service: package link does.
package endpoints

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// State is whether the writer manages a target.
type State uint8

// The states, numbered as on the wire.
const (
	Managed State = iota + 1
	Paused
	Rejected
	ReadOnly
)

// Target is everything known of one target after a decision. It is stored as it is and must not be
// modified afterwards.
type Target struct {
	Health

	Namespace, Service string // of a ServiceImport: its name and .serviceimport

	// Owner has the kind and the name of the Service or ServiceImport; without a kind it is the Service.
	Owner metav1.OwnerReference

	State   State
	Reason  string // of a rejection or a pause, as in the Event
	Message string // of a rejection or a pause: what is wrong and what to do
	Leading bool   // this writer holds the Lease

	// Ports are those of the Service, while Managed. An endpoint of the Decision may have others.
	Ports []discoveryv1.EndpointPort
	// ServiceType and ServicePorts are the type of the Service, and the numbers of its own ports by name.
	ServiceType  string
	ServicePorts map[string]uint16
	// Slices are the slices of the namespace; ManagedBy marks the owned ones. Their endpoints are
	// published while the target is not Managed. Other slices are ignored, unless it is ReadOnly.
	Slices    []*discoveryv1.EndpointSlice
	ManagedBy string

	// Input and Decision are those of the last decision; zero for a rejected target, unless it
	// FollowsProbes.
	Input    verdict.Input
	Decision verdict.Decision

	Sources []subscriber.Snapshot // of the target's sources

	Admitted  []string // what mutating admission changes in the slices when they are written: "label team of shop-slicefeed"
	OutOfSync int      // see CountOutOfSync
}

// Health is what is wrong with a target.
type Health struct {
	Problems       []*report.Problem // the most severe first
	Since          []time.Time       // of each of them
	UnhealthySince time.Time         // zero: it is healthy
}

// With returns the health with other problems. One that stays keeps its time.
func (h Health) With(problems []*report.Problem, now time.Time) Health {
	next := Health{Problems: problems}
	for _, p := range problems {
		since := now
		if at := slices.IndexFunc(h.Problems, func(o *report.Problem) bool {
			return o.GetReason() == p.GetReason() && o.GetObject() == p.GetObject()
		}); at >= 0 {
			since = h.Since[at]
		}
		next.Since = append(next.Since, since)
	}
	if !report.IsHealthy(problems) {
		next.UnhealthySince = cmp.Or(h.UnhealthySince, now)
	}
	return next
}

// Port is a port to connect to.
type Port struct {
	Name, Protocol string
	Number         uint16
	AppProtocol    string
	ServicePort    uint16 // the number of the Service's port; 0: not known
}

// Backend is an address that a target lists.
type Backend struct {
	Address    netip.Addr
	Conditions verdict.Conditions
	Source     string
	Zone       string
	Hostname   string
	Port       uint16 // in a group: the number to connect to, if its source has another one; 0: the port's
}

// TargetStatus is what is published of a target itself.
type TargetStatus struct {
	State           State
	Reason, Message string // see Target
	Ports           []Port // by name, each name once
	ServiceType     string
}

func (a *TargetStatus) equal(b *TargetStatus) bool {
	return a.State == b.State && a.Reason == b.Reason && a.Message == b.Message && a.ServiceType == b.ServiceType &&
		slices.Equal(a.Ports, b.Ports)
}

// maxAddresses is the number of backends that all ports of a target publish together. Each is an entry of some 400 bytes,
// built under the lock of all targets.
const maxAddresses = 100_000

// publishedState is the published state of a target.
type publishedState struct {
	TargetStatus

	backends []Backend             // by address, each address once
	portsAt  map[netip.Addr][]Port // of endpoints with other ports than the target
}

// numberAt returns the number of a port at a backend; 0: the backend does not have it.
func (p *publishedState) numberAt(b *Backend, port Port) uint16 {
	ports, others := p.portsAt[b.Address]
	if !others {
		return port.Number
	}
	if at, has := slices.BinarySearchFunc(ports, port.Name, func(p Port, name string) int { return cmp.Compare(p.Name, name) }); has {
		return ports[at].Number
	}
	return 0
}

// backendsOf returns the backends of one port.
func (p *publishedState) backendsOf(port Port) []Backend {
	if len(p.portsAt) == 0 {
		return p.backends
	}
	var all []Backend
	for _, b := range p.backends {
		switch number := p.numberAt(&b, port); number {
		case 0:
			continue
		case port.Number:
		default:
			b.Port = number
		}
		all = append(all, b)
	}
	return all
}

// publishedState returns the published state; the backends of a managed target are left out.
func (t *Target) publishedState() publishedState {
	p := t.endpointsToPublish()
	for i := range p.Ports {
		p.Ports[i].ServicePort = t.ServicePorts[p.Ports[i].Name]
	}
	return p
}

// endpointsToPublish is publishedState without the numbers of the Service's own ports.
func (t *Target) endpointsToPublish() publishedState {
	p := publishedState{TargetStatus: TargetStatus{State: t.State, Reason: t.Reason, Message: t.Message, ServiceType: t.ServiceType}}
	switch t.State {
	case ReadOnly:
		p.addListed(slices.DeleteFunc(slices.Clone(t.Slices), func(s *discoveryv1.EndpointSlice) bool {
			owned := t.ownedSlices()
			owned.ManagedBy = s.Labels[discoveryv1.LabelManagedBy]
			return s.DeletionTimestamp != nil || !owned.Owns(s)
		}))
		for i := range p.backends {
			p.backends[i].Source = "" // that is a label of ours
		}
	case Managed:
		p.Ports = convertPorts(t.Ports)
		p.addDecided(t.Decision.Endpoints)
	default:
		p.addListed(t.ownedSlices().OwnedSlices(t.Slices))
	}
	return p
}

// ownedSlices names the owned slices of the target.
func (t *Target) ownedSlices() planner.Desired {
	return planner.Desired{
		Namespace: t.Namespace, Service: cmp.Or(t.Owner.Name, t.Service), NameLabel: targets.NameLabel(t.Owner.Kind),
		ManagedBy: t.ManagedBy, OwnerKinds: targets.OwnerKinds,
		Owner: metav1.OwnerReference{APIVersion: t.Owner.APIVersion, Kind: t.Owner.Kind},
	}
}

// addDecided adds the ports of listed endpoints.
func (p *publishedState) addDecided(decided []verdict.Endpoint) {
	p.portsAt = map[netip.Addr][]Port{}
	text, ports := "", p.Ports
	for i := range decided {
		e := &decided[i]
		if e.Ports.Text != text {
			text, ports = e.Ports.Text, convertPorts(targets.ParsePorts(e.Ports.Text))
		}
		if e.Listed && text != "" && !slices.Equal(ports, p.Ports) {
			p.portsAt[e.Address] = ports
		}
	}
}

// addListed adds what slices list: of an address that is listed twice, what the first one does.
func (p *publishedState) addListed(all []*discoveryv1.EndpointSlice) {
	p.portsAt = map[netip.Addr][]Port{}
	var listed []discoveryv1.EndpointPort
	for _, slice := range all {
		listed = append(listed, slice.Ports...)
		ports, source := convertPorts(slice.Ports), targets.SourceOf(slice)
		for _, e := range (planner.Desired{}).EndpointsOf(slice) {
			if _, again := p.portsAt[e.Address]; again {
				continue
			}
			p.portsAt[e.Address] = ports
			// A slice modified by hand may be ready and not serving, which makes no sense to readers.
			c := verdict.Conditions{Ready: e.Ready, Serving: e.Serving || e.Ready, Terminating: e.Terminating}
			p.backends = append(
				p.backends,
				Backend{Address: e.Address, Conditions: c, Source: source, Zone: e.Zone, Hostname: e.Hostname},
			)
		}
	}
	p.Ports = convertPorts(listed)
	slices.SortFunc(p.backends, func(a, b Backend) int { return a.Address.Compare(b.Address) })
}

// desiredBackends returns the backends of a managed target.
func (t *Target) desiredBackends() []Backend {
	all := make([]Backend, 0, len(t.Decision.Endpoints))
	for i := range t.Decision.Endpoints {
		if e := &t.Decision.Endpoints[i]; e.Listed {
			all = append(all, Backend{Address: e.Address, Conditions: e.Conditions, Source: e.Source, Zone: e.Zone, Hostname: e.Hostname})
		}
	}
	return all
}

func convertPorts(listed []discoveryv1.EndpointPort) []Port {
	var all []Port
	for _, p := range listed {
		if number := ptr.Deref(p.Port, 0); number >= 1 && number <= 65535 {
			all = append(
				all,
				Port{
					Name:        ptr.Deref(p.Name, ""),
					Protocol:    string(ptr.Deref(p.Protocol, corev1.ProtocolTCP)),
					Number:      uint16(number),
					AppProtocol: ptr.Deref(p.AppProtocol, ""),
				},
			)
		}
	}
	slices.SortStableFunc(all, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) })
	all = slices.CompactFunc(all, func(a, b Port) bool { return a.Name == b.Name })
	return all[:min(len(all), targets.MaxPorts)] // a slice of others may have more
}

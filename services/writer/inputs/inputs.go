// Package inputs converts what a source reports and what slices list to the input of verdict, and what verdict lists to
// that of planner. It keeps each input of a target and converts only what has changed since, because most changes
// concern one endpoint of many.
//
// It guarantees that a kept conversion equals a new one, and never alters a list that it has returned. It does not
// decide which sources or slices count.
package inputs

import (
	"fmt"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Choice selects the members of a snapshot that concern a target.
type Choice struct {
	Families []discoveryv1.AddressType
	Selector labels.Selector   // nil: all nodes
	Zones    map[string]string // from zones of the secured clusters to zones here; others are not written
	Limit    int               // of chosen members; 0: none
	Ports    Ports

	source string
}

// Ports gives the ports of endpoints; the zero value gives none.
type Ports struct {
	// Of returns the ports of an endpoint of a source that has these, and why they cannot be used; empty: they can.
	Of   func(source string, known []contract.Port) (targets.Ports, string)
	Rule string // equal only if Of returns the same
}

func (p Ports) of(source string, known []contract.Port) (ports verdict.Ports, unusable string) {
	if p.Of == nil {
		return verdict.Ports{}, ""
	}
	found, unusable := p.Of(source, known)
	return verdict.Ports(found), unusable
}

// exceeds reports whether there are more members than the limit.
func (c Choice) exceeds(list []verdict.Member) bool { return c.Limit > 0 && len(list) > c.Limit }

// selectorText returns the selector as text; empty: all nodes.
func (c Choice) selectorText() string {
	if c.Selector == nil {
		return ""
	}
	return c.Selector.String()
}

// key is equal for two choices only if they select the same nodes.
func (c Choice) key() string { return fmt.Sprint(c.Families, " ", c.selectorText()) }

// appendMembers appends a member for each chosen address.
func (c Choice) appendMembers(list []verdict.Member, member *subscriber.Member) []verdict.Member {
	if c.Selector != nil && !c.Selector.Matches(labels.Set(member.Labels)) {
		return list
	}
	ports, unusable := c.Ports.of(c.source, member.Ports)
	for _, a := range member.Addresses {
		if slices.Contains(c.Families, planner.FamilyOf(a)) {
			list = append(list, verdict.Member{
				Address: a, Name: member.Name, State: member.State, Since: member.Since,
				Zone: c.Zones[member.Zone], Hostname: member.Hostname, Ports: ports, Unusable: unusable,
			})
		}
	}
	return list
}

// Source has the members of a source's snapshots that concern a target.
type Source struct {
	current, trusted members
	chosenBy         *Choice // nil: nothing was chosen yet
}

// Convert returns what a snapshot reports, as input of a decision.
func (s *Source) Convert(snapshot subscriber.Snapshot, choice Choice, allowlist verdict.Allowlist) verdict.Source {
	choice.source = snapshot.Source
	deselected := s.deselected(snapshot, choice)
	current, trusted := s.members(snapshot, choice)
	unusable := ""
	if choice.exceeds(trusted) {
		trusted = nil
	}
	if choice.exceeds(current) { // nothing of it counts, and the work of a decision stays bounded
		current, trusted = nil, nil
		unusable = fmt.Sprintf("it reports more than %d endpoints (MAX_ENDPOINTS)", choice.Limit)
	}
	return verdict.Source{
		Unusable:           unusable,
		Name:               snapshot.Source,
		EverSynced:         snapshot.EverSynced,
		Connected:          snapshot.Connected && snapshot.SyncedInStream,
		MembershipSynced:   snapshot.Membership.State == subscriber.Synced,
		MembershipSyncedAt: snapshot.MembershipSyncedAt,
		Epoch:              snapshot.ObservationEpoch,
		Observation:        snapshot.Observation,
		ObservationAt:      snapshot.ObservationReceivedAt,
		Members:            current,
		Trusted:            trusted,
		Selector:           choice.key(),
		Deselected:         deselected,
		Allowlist:          allowlist,
	}
}

// deselected returns the addresses that the last choice would still choose of the trusted report, and the new one does
// not, sorted.
func (s *Source) deselected(snapshot subscriber.Snapshot, choice Choice) (all []netip.Addr) {
	last := s.chosenBy
	s.chosenBy = &choice
	if last == nil || last.key() == choice.key() {
		return nil
	}
	for _, member := range snapshot.TrustedMembers {
		chosen := choice.appendMembers(nil, member)
		for _, before := range last.appendMembers(nil, member) {
			if !slices.ContainsFunc(chosen, func(m verdict.Member) bool { return m.Address == before.Address }) {
				all = append(all, before.Address)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// members returns the chosen members of a snapshot, and those of its last trusted report.
func (s *Source) members(snapshot subscriber.Snapshot, choice Choice) (current, trusted []verdict.Member) {
	current = s.current.convert(snapshot.Members, choice)
	switch {
	case subscriber.SameSet(snapshot.TrustedMembers, snapshot.Members):
		s.trusted = s.current
	case snapshot.TrustedMembers == nil:
		s.trusted = members{}
	default:
		return current, s.trusted.convert(snapshot.TrustedMembers, choice)
	}
	return current, s.trusted.list
}

// CurrentEndpoints converts what the owned ones of these slices list, sorted by address. Of an address that is listed
// twice it returns the one that the planner would keep.
func CurrentEndpoints(desired planner.Desired, existing []*discoveryv1.EndpointSlice, ports Ports) (current []verdict.CurrentEndpoint) {
	seen := map[netip.Addr]struct{}{}
	for _, slice := range desired.OwnedSlices(existing) {
		source := targets.SourceOf(slice)
		of, unusable := ports.of(source, targets.ListedPorts(slice))
		for _, e := range desired.EndpointsOf(slice) {
			if _, again := seen[e.Address]; again {
				continue
			}
			seen[e.Address] = struct{}{}
			current = append(current, verdict.CurrentEndpoint{
				Address: e.Address, Source: source, Zone: e.Zone, Hostname: e.Hostname,
				Conditions: verdict.Conditions{Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating},
				Ports:      of, Portless: unusable != "" && of.Text == "",
			})
		}
	}
	slices.SortFunc(current, func(a, b verdict.CurrentEndpoint) int { return a.Address.Compare(b.Address) })
	return current
}

// ListedEndpoints converts what a decision lists to input of the planner, and returns the port groups. It is the last
// gate before a write: a port that is not allowed for its source is left out, and an endpoint without another one, too.
func ListedEndpoints(
	decided []verdict.Endpoint,
	allows func(source string, port uint16) bool,
) ([]planner.Endpoint, map[string][]discoveryv1.EndpointPort) {
	list, groups := make([]planner.Endpoint, 0, len(decided)), map[string][]discoveryv1.EndpointPort{}
	for i := range decided {
		e := &decided[i]
		if !e.Listed {
			continue
		}
		group := e.Source + " " + e.Ports.Text
		ports, known := groups[group]
		if !known {
			ports = slices.DeleteFunc(targets.ParsePorts(e.Ports.Text), func(p discoveryv1.EndpointPort) bool {
				return !allows(e.Source, uint16(*p.Port))
			})
			groups[group] = ports
		}
		if len(ports) == 0 && e.Ports.Text != "" {
			continue
		}
		list = append(list, planner.Endpoint{
			Address:     e.Address,
			Group:       e.Source,
			Zone:        e.Zone,
			Hostname:    e.Hostname,
			PortGroup:   group,
			Ready:       e.Conditions.Ready,
			Serving:     e.Conditions.Serving,
			Terminating: e.Conditions.Terminating,
		})
	}
	return list, groups
}

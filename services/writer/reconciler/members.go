package reconciler

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

// portRule gives the ports of a target's endpoints.
type portRule struct {
	text string // equal for two rules only if they give the same ports
	// portsOf returns the ports of an endpoint of a source that reports these, and why they cannot be used; empty: they can.
	portsOf func(source string, reported []contract.Port) (ports verdict.Ports, unusable string)
}

// portsOf returns the rule of a target. Most endpoints have the ports of the one before.
func portsOf(t *targets.Target) portRule {
	var lastSource, unusable string
	var lastReported []contract.Port
	var ports verdict.Ports
	known := false
	return portRule{t.PortRule(), func(source string, reported []contract.Port) (verdict.Ports, string) {
		if !known || source != lastSource || !slices.Equal(reported, lastReported) {
			var found targets.Ports
			found, unusable = t.PortsOf(source, reported)
			known, lastSource, lastReported, ports = true, source, reported, verdict.Ports(found)
		}
		return ports, unusable
	}}
}

// choice selects the members of a report that concern a target.
type choice struct {
	families []discoveryv1.AddressType
	selector labels.Selector   // nil: all nodes
	zones    map[string]string // from zones of the secured clusters to zones here; others are not written
	limit    int               // of chosen members; 0: none
	ports    portRule
}

// key is equal for two choices only if they select the same addresses.
func (c *choice) key() string {
	selector := ""
	if c.selector != nil {
		selector = c.selector.String()
	}
	return fmt.Sprint(c.families, " ", selector)
}

func (c *choice) includes(m *verdict.Member) bool {
	return slices.Contains(c.families, planner.FamilyOf(m.Address)) && (c.selector == nil || c.selector.Matches(labels.Set(m.Labels)))
}

// chosenMembers are the members of a report that concern a target.
type chosenMembers struct {
	by   string // the choice and its ports
	from []*verdict.Member
	list []verdict.Member // sorted by address; nil: above the limit
}

// choose chooses them, unless they are those of the last decision.
func (m *chosenMembers) choose(source string, from []*verdict.Member, c *choice) {
	by := c.key() + " " + c.ports.text
	if m.list != nil && m.by == by && subscriber.SameSet(m.from, from) {
		return
	}
	*m = chosenMembers{by: by, from: from}
	var members []*verdict.Member
	for _, member := range from {
		if !c.includes(member) {
			continue
		}
		if members = append(members, member); c.limit > 0 && len(members) > c.limit {
			return
		}
	}
	m.list = make([]verdict.Member, len(members))
	for i, member := range members {
		m.list[i] = *member
		m.list[i].Zone = c.zones[member.Zone]
		m.list[i].Ports, m.list[i].Unusable = c.ports.portsOf(source, member.Serves)
	}
}

// chosenReport is what the last decision about a target took of the report of a source.
type chosenReport struct {
	service          string // that the source exports
	by               *choice
	current, trusted chosenMembers
}

// choose returns a source as input of a decision.
func (r *chosenReport) choose(s *subscriber.Snapshot, c *choice) verdict.Source {
	source := verdict.Source{
		Name:               s.Source,
		EverSynced:         s.EverSynced,
		Connected:          s.Connected && s.SyncedInStream,
		MembershipSynced:   s.Membership.State == subscriber.Synced,
		MembershipSyncedAt: s.MembershipSyncedAt,
		Epoch:              s.ObservationEpoch,
		Observation:        s.Observation,
		ObservationAt:      s.ObservationReceivedAt,
		Selector:           c.key(),
		Deselected:         r.deselected(s, c),
	}
	r.by = c
	r.current.choose(s.Source, s.Members, c)
	if subscriber.SameSet(s.TrustedMembers, s.Members) {
		r.trusted = r.current
	} else {
		r.trusted.choose(s.Source, s.TrustedMembers, c)
	}
	if r.current.list == nil { // nothing of it counts, and the work of a decision stays bounded
		source.Unusable = fmt.Sprintf("it reports more than %d endpoints (MAX_ENDPOINTS)", c.limit)
		return source
	}
	source.Members, source.Trusted = r.current.list, r.trusted.list
	return source
}

// deselected returns the addresses that the last choice would still choose of the trusted report, and the new one does
// not, sorted.
func (r *chosenReport) deselected(s *subscriber.Snapshot, c *choice) (all []netip.Addr) {
	if r.by == nil || r.by.key() == c.key() {
		return nil
	}
	for _, m := range s.TrustedMembers {
		if r.by.includes(m) && !c.includes(m) {
			all = append(all, m.Address)
		}
	}
	return all
}

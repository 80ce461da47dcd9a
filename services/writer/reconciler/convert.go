package reconciler

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// The functions in this file convert what one stage returns to what the next one takes. The stages do not import each
// other, so that each can be read, tested and simulated alone.

// limits converts a target's settings.
func limits(s targets.Settings) verdict.Limits {
	return verdict.Limits{
		MaxStaleness: s.MaxStaleness, EmptyThreshold: s.EmptyThreshold, ShrinkWindow: s.ShrinkWindow,
		ListUnready: s.ListUnready, Probing: s.Probe.Mode != probe.Off, Resync: s.Resync,
	}
}

// snapshots records that the target's next decision depends on its sources, and returns what they report. It records
// first, so that a report in between queues another decision.
func (r *Reconciler) snapshots(s *state, view targets.Resolution) (all []subscriber.Snapshot) {
	names := view.Target.Settings.Sources
	if view.Active() {
		s.sourceNames.Store(&names)
	} else {
		s.sourceNames.Store(&[]string{})
	}
	for _, name := range names {
		if source, ok := r.sources[name]; ok {
			all = append(all, source.Snapshot())
		}
	}
	return all
}

// input returns what a decision depends on.
func (r *Reconciler) input(s *state, view targets.Resolution, snapshots []subscriber.Snapshot, current []verdict.CurrentEndpoint) verdict.Input {
	return verdict.Input{
		Sources: r.sourceInputs(s, view, snapshots),
		Probes:  r.probes(s.probed),
		Current: current,
		Limits:  limits(view.Target.Settings),

		Rejected:     view.Rejection != nil,
		Paused:       view.Paused,
		LeadingSince: s.term.since,
	}
}

// sourceInputs returns the target's sources as input of a decision.
func (r *Reconciler) sourceInputs(s *state, view targets.Resolution, snapshots []subscriber.Snapshot) []verdict.Source {
	all := make([]verdict.Source, 0, len(snapshots))
	for _, snapshot := range snapshots {
		kept := s.members[snapshot.Source]
		if kept == nil {
			kept = &reported{}
			s.members[snapshot.Source] = kept
		}
		all = append(all, sourceInput(snapshot, kept, choice{view.Target.Families, view.Target.Settings.NodeSelector, r.Zones},
			verdict.Allowlist{CIDRs: r.sources[snapshot.Source].CIDRs, Denied: view.ClusterIPs}))
	}
	return all
}

func sourceInput(s subscriber.Snapshot, ours *reported, of choice, allowlist verdict.Allowlist) verdict.Source {
	now, trusted := ours.of(s, of)
	return verdict.Source{
		Name:               s.Source,
		EverSynced:         s.EverSynced,
		Connected:          s.Connected && s.SyncedInStream,
		MembershipSynced:   s.Membership.State == subscriber.Synced,
		MembershipSyncedAt: s.MembershipSyncedAt,
		Epoch:              s.ObservationEpoch,
		Observation:        s.Observation,
		ObservationAt:      s.ObservationReceivedAt,
		Members:            now,
		Trusted:            trusted,
		Selector:           of.selects(),
		Allowlist:          allowlist,
	}
}

// choice selects the members of a snapshot that concern a target.
type choice struct {
	families []discoveryv1.AddressType
	selector labels.Selector // nil: all nodes
	zones    map[string]string
}

func (c choice) selects() string {
	if c.selector == nil {
		return ""
	}
	return c.selector.String()
}

// key is equal for two choices only if they select the same.
func (c choice) key() string { return fmt.Sprint(c.families, c.selects()) }

var states = [...]verdict.State{
	subscriber.Unknown: verdict.Unknown, subscriber.Ready: verdict.Ready, subscriber.Draining: verdict.Draining, subscriber.NotReady: verdict.NotReady,
}

// take appends a member for each chosen address.
func (c choice) take(list []verdict.Member, member *subscriber.Member) []verdict.Member {
	if c.selector != nil && !c.selector.Matches(labels.Set(member.Labels)) {
		return list
	}
	for _, a := range member.Addresses {
		if slices.Contains(c.families, planner.FamilyOf(a)) {
			list = append(list, verdict.Member{
				Address: a, Name: member.Name, State: states[member.State], Since: member.Since, Zone: c.zones[member.Zone],
			})
		}
	}
	return list
}

var probeStatuses = [...]verdict.ProbeStatus{prober.Pending: verdict.Pending, prober.Passing: verdict.Passing, prober.Failing: verdict.Failing}

// probes returns the status of each probed address, sorted by address as the requests are.
func (r *Reconciler) probes(probed []prober.Request) []verdict.Probe {
	all := make([]verdict.Probe, len(probed))
	for i, request := range probed {
		s := r.Prober.Status(request.Key)
		all[i] = verdict.Probe{
			Address: request.Key.Address, Status: probeStatuses[s.Health], Since: s.Since, Detail: s.Detail, Expired: s.Expired,
			LastPassed: s.LastPassedAt, RunStart: s.RunStart, RunLast: s.RunLast,
		}
	}
	return all
}

// current returns the current endpoints. What other clients changed in owned slices does not count, unless the Service
// is rejected: then it is not repaired.
func (r *Reconciler) current(s *state, view targets.Resolution, slices []*discoveryv1.EndpointSlice) []verdict.CurrentEndpoint {
	if view.Rejection == nil {
		slices = s.applier.LastApplied(view.ServiceRef, slices)
	}
	return s.holding.of(view.Target.Desired(), slices)
}

// toCurrent converts what the slices list to input of a decision.
func toCurrent(listed []planner.Endpoint) []verdict.CurrentEndpoint {
	held := make([]verdict.CurrentEndpoint, len(listed))
	for i, e := range listed {
		held[i] = verdict.CurrentEndpoint{
			Address: e.Address, Source: e.Source, Zone: e.Zone,
			Conditions: verdict.Conditions{Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating},
		}
	}
	return held
}

// listed converts what a decision lists to input of the planner.
func listed(judged []verdict.Endpoint) []planner.Endpoint {
	list := make([]planner.Endpoint, 0, len(judged))
	for i := range judged {
		if e := &judged[i]; e.Listed {
			list = append(list, planner.Endpoint{
				Address: e.Address, Source: e.Source, Zone: e.Zone,
				Ready: e.Conditions.Ready, Serving: e.Conditions.Serving, Terminating: e.Conditions.Terminating,
			})
		}
	}
	return list
}

// why returns the reason of the decision about an address.
func why(judged []verdict.Endpoint, address netip.Addr) string {
	at, found := slices.BinarySearchFunc(judged, address, func(e verdict.Endpoint, a netip.Addr) int { return e.Address.Compare(a) })
	switch {
	case !found:
		return ""
	case judged[at].Rule != verdict.RuleTable:
		return string(judged[at].Rule) + ": " + judged[at].Reason
	}
	return judged[at].Reason
}

// earliest returns the earlier of two times; zero is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

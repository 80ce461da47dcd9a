package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// What follows puts what one stage gives into the words of the next. The stages do not
// know each other, so that each can be read, tested and simulated alone.

// limits are a target's settings, as the verdict takes them.
func limits(s targets.Settings) verdict.Limits {
	return verdict.Limits{
		MaxStaleness: s.MaxStaleness, EmptyThreshold: s.EmptyThreshold, ShrinkWindow: s.ShrinkWindow,
		ListUnready: s.ListUnready, Probing: s.Probe.Mode != prober.Off, Resync: s.Resync,
	}
}

// sourceInputs returns the target's sources as input of a decision, sorted by name.
func (c *control) sourceInputs(view targets.Resolution, snapshots []subscriber.Snapshot) []verdict.Source {
	all := make([]verdict.Source, 0, len(snapshots))
	for _, snapshot := range snapshots {
		from, ours := c.sources[snapshot.Source], c.members[snapshot.Source]
		if ours == nil {
			ours = &reported{}
			c.members[snapshot.Source] = ours
		}
		all = append(all, sourceInput(snapshot, ours, choice{view.Target.Families, view.Target.Settings.NodeSelector, c.zones},
			verdict.Allowlist{CIDRs: from.CIDRs, Denied: view.ClusterIPs}))
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

// choice is what a target takes of a snapshot.
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

// key is the same for two choices only if they take the same.
func (c choice) key() string { return fmt.Sprint(c.families, c.selects()) }

var states = [...]verdict.State{
	subscriber.Unknown: verdict.Unknown, subscriber.Ready: verdict.Ready, subscriber.Draining: verdict.Draining, subscriber.NotReady: verdict.NotReady,
}

// take appends what is chosen of a member: one for each address.
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

// probeStatuses returns the status of each probed address.
func (c *control) probeStatuses() map[netip.Addr]verdict.Probe {
	healths := [...]verdict.ProbeStatus{prober.Pending: verdict.Pending, prober.Passing: verdict.Passing, prober.Failing: verdict.Failing}
	statuses := make(map[netip.Addr]verdict.Probe, len(c.probed))
	for _, request := range c.probed {
		w := c.prober.Status(request.Key)
		statuses[request.Key.Address] = verdict.Probe{
			Status: healths[w.Health], Since: w.Since, Detail: w.Detail, LastPassed: w.LastPassedAt, FirstFailed: w.FirstFailedAt, Expired: w.Expired,
			RunStart: w.RunStart, RunLast: w.RunLast,
		}
	}
	return statuses
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

// listed is what a decision lists, as the planner takes it.
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

// reasons are the guards' names as an Event has them.
var reasons = map[verdict.Rule]string{
	verdict.RuleAllowlist: "AddressNotAllowed", verdict.RuleInitialSync: "SourceNotSynced", verdict.RulePanic: "AllProbesFailing", verdict.RuleEmpty: "SourceEmpty",
	verdict.RuleTrust: "SourceNotTrusted", verdict.RuleFloor: "LastEndpointsKept", verdict.RuleShrink: "ShrinkLimited",
}

// why says the reason of the decision on an address.
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

// asWarnings are the guards that hold something back, as told on the Service.
func asWarnings(guards []verdict.Guard) []events.Warning {
	var all []events.Warning
	for _, g := range guards {
		all = append(all, events.Warning{
			Reason: reasons[g.Rule], Source: g.Source, Action: "Hold", Note: g.Message,
			Transient: g.Rule == verdict.RuleInitialSync || g.Rule == verdict.RuleTrust,
		})
	}
	return all
}

// asResync reports a resync on the Service: that it was made, or what it waits for.
func asResync(r verdict.Resync) []events.Warning {
	switch {
	case r.Message() == "":
		return nil
	case r.Done:
		return []events.Warning{{Reason: "Resync", Action: "Resync", Note: r.Message()}}
	}
	return []events.Warning{{Reason: "ResyncWaits", Action: "Hold", Note: r.Message()}}
}

// paused is told while someone acts by hand.
var paused = events.Warning{
	Reason: "Paused", Action: "Ignore",
	Note: "Service is paused by annotation slicefeed.dev/paused. Nothing is written, whatever happens to its endpoints. Remove the annotation to resume.",
}

// notices say why a Service is rejected, and that its label does not name this class any more.
func notices(view targets.Resolution) (all []events.Warning) {
	if view.Rejection != nil {
		all = append(all, events.Warning{Reason: view.Rejection.Reason, Action: "Reject", Note: view.Rejection.Message})
	}
	if view.PendingOptOut != nil && view.PendingOptOut != view.Rejection {
		all = append(all, events.Warning{Reason: view.PendingOptOut.Reason, Action: "KeepForAMinute", Note: view.PendingOptOut.Message})
	}
	return all
}

// targetWarnings returns what else a person should know about a target.
func (c *control) targetWarnings(view targets.Resolution) []events.Warning {
	all := foreignWarnings(view)
	if view.Target.PublishNotReadyAddresses && view.Target.Settings.ListUnready {
		all = append(all, publishesNotReady)
	}
	if view.Target.TrafficDistribution != "" {
		all = append(all, distributesTraffic(view.Target.TrafficDistribution))
	}
	for _, name := range view.Target.Settings.Sources {
		all = append(all, portWarnings(c.sources[name].Snapshot(), view.Target)...)
	}
	if view.AnnotationError != nil {
		all = append(all, events.Warning{Reason: view.AnnotationError.Reason, Action: "KeepSettings", Note: view.AnnotationError.Message})
	}
	if view.Paused {
		all = append(all, paused)
	}
	return all
}

// publishesNotReady is reported of a Service with publishNotReadyAddresses.
var publishesNotReady = events.Warning{
	Reason: "PublishNotReadyAddresses", Action: "WriteAnyway",
	Note: "Service sets publishNotReadyAddresses. kube-proxy and CoreDNS ignore it on slices, but other consumers may send traffic to endpoints that are not ready. " +
		"Set it to false, or annotate the Service slicefeed.dev/list-unready: \"false\".",
}

// distributesTraffic is reported of a Service with trafficDistribution, which kube-proxy follows by hints alone.
func distributesTraffic(preference string) events.Warning {
	return events.Warning{
		Reason: "TrafficDistribution", Action: "WriteAnyway",
		Note: fmt.Sprintf("Service sets trafficDistribution %.64s, which has no effect in kube-proxy: endpoints of this writer have no zone hints. "+
			"Traffic goes to all endpoints equally. Remove it, unless another consumer such as a mesh reads it.", preference),
	}
}

// foreignWarnings reports slices of the same Service that are not owned: consumers use them too.
func foreignWarnings(view targets.Resolution) (all []events.Warning) {
	t := view.Target
	if len(t.ForeignSlices) > 0 {
		all = append(all, events.Warning{
			Reason: "ForeignSlices", Action: "Ignore",
			Note: fmt.Sprintf("EndpointSlices managed by others also belong to this Service: %s. Consumers use their endpoints too. Delete them unless this is intended.",
				strings.Join(t.ForeignSlices, ", ")),
		})
	}
	if len(t.OtherClassSlices) > 0 && view.PendingOptOut == nil {
		all = append(all, events.Warning{
			Reason: "OtherClass", Action: "Ignore",
			Note: fmt.Sprintf("EndpointSlices of another class also belong to this Service: %s. Its writer deletes them within a minute after a change of class. Delete them if that writer no longer runs.",
				strings.Join(t.OtherClassSlices, ", ")),
		})
	}
	return all
}

// portWarnings reports a target whose port none of the source's own endpoints has. A source only publishes
// addresses, so the target's port is written nevertheless.
func portWarnings(s subscriber.Snapshot, t targets.Target) []events.Warning {
	if len(s.Ports) == 0 {
		return nil
	}
	var missing, have []string
	for _, p := range t.Ports {
		if p.Port == nil || p.Protocol == nil {
			continue
		}
		if !slices.ContainsFunc(s.Ports, func(o subscriber.SourcePort) bool {
			return int32(o.Number) == *p.Port && o.Protocol == string(*p.Protocol)
		}) {
			missing = append(missing, fmt.Sprintf("%d/%.8s", *p.Port, *p.Protocol))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	for _, p := range s.Ports {
		have = append(have, fmt.Sprintf("%d/%.8s", p.Number, p.Protocol))
	}
	return []events.Warning{{
		Reason: "SourcePortMismatch", Source: s.Source, Action: "WriteAnyway",
		Note: fmt.Sprintf("Endpoints of source %s use ports %s, but this Service targets %s. Set targetPort or TARGET_PORT unless this is intended.",
			s.Source, strings.Join(have, ", "), strings.Join(missing, ", ")),
	}}
}

// earliest returns the earlier of two times; zero is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

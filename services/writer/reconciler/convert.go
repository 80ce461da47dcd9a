package reconciler

import (
	"cmp"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// The functions in this file convert what one stage returns to what the next one takes. The stages do not import each
// other, so that each can be read, tested and simulated alone.

// snapshots returns what the sources of a target report about what it uses of them.
func (r *Reconciler) snapshots(key targets.Key, view *targets.Resolution) (all []subscriber.Snapshot) {
	var used []string
	if view.Active() {
		used = view.Settings.AllSources()
	}
	for name, source := range r.sources {
		if !slices.Contains(used, name) {
			source.Leave(key.String())
		}
	}
	for _, name := range used {
		if source, ok := r.sources[name]; ok {
			all = append(all, source.Use(key.String(), view.Settings.SourceService))
		}
	}
	return all
}

// desiredOf converts a decision to input of the planner.
func (r *Reconciler) desiredOf(view *targets.Resolution, decision verdict.Decision) planner.Desired {
	desired := view.Desired()
	desired.Endpoints, desired.PortGroups = ListedEndpoints(decision.Endpoints, view.Allows)
	return desired
}

// input returns what a decision depends on.
func (r *Reconciler) input(s *state, current []*discoveryv1.EndpointSlice) verdict.Input {
	view := &s.basis.view
	settings, limits, ports := &view.Settings, r.Limits, portsOf(&view.Target)
	limits.FailoverBelow, limits.ExpireAfter, limits.ListUnready = settings.FailoverBelow, settings.ExpireAfter, settings.ListUnready
	limits.Probing = settings.Probe.Mode != probe.Off
	if view.State == targets.Managed { // else what other clients changed in owned slices is not repaired
		current = s.applier.LastApplied(view.Reference(), current)
	}
	return verdict.Input{
		Sources: r.sourceInputs(s, ports),
		Probes:  r.Prober.Statuses(s.probed),
		Current: s.current.read(view.Desired(), current, ports),
		Limits:  limits,

		Rejected:     view.State == targets.ProbesOnly,
		Paused:       view.Settings.Paused,
		LeadingSince: s.leadingSince,
	}
}

// sourceInputs returns the target's sources as input of a decision.
func (r *Reconciler) sourceInputs(s *state, ports portRule) []verdict.Source {
	view := &s.basis.view
	of := &choice{
		families: view.Families, selector: view.Settings.NodeSelector, zones: r.Zones, limit: r.MaxEndpoints, ports: ports,
	}
	all := make([]verdict.Source, 0, len(s.basis.snapshots))
	for i := range s.basis.snapshots {
		snapshot := &s.basis.snapshots[i]
		report := s.reports[snapshot.Source]
		if report == nil || report.service != snapshot.Service {
			report = &chosenReport{service: snapshot.Service}
			s.reports[snapshot.Source] = report
		}
		source := report.choose(snapshot, of)
		source.Allowlist = verdict.Allowlist{CIDRs: r.sources[snapshot.Source].CIDRs, Denied: view.ClusterIPs}
		source.Unusable = cmp.Or(source.Unusable, snapshot.Denial, snapshot.WithheldReason())
		source.Tier = 1 + slices.Index(view.Settings.Failover, snapshot.Source)
		all = append(all, source)
	}
	return all
}

// why returns the reason of the decision about an address.
func why(judged []verdict.Endpoint, address netip.Addr) string {
	at, found := slices.BinarySearchFunc(judged, address, func(e verdict.Endpoint, a netip.Addr) int { return e.Address.Compare(a) })
	switch {
	case !found:
		return ""
	case judged[at].Rule != verdict.RuleTable:
		return string(judged[at].Rule) + ": " + judged[at].Reason.String()
	}
	return judged[at].Reason.String()
}

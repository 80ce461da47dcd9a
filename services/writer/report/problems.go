package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// GuardReasons are the reasons of the problems of guards that hold something.
var GuardReasons = map[verdict.Rule]string{
	verdict.RuleAllowlist:   "AddressNotAllowed",
	verdict.RuleInitialSync: "SourceNotSynced",
	verdict.RulePanic:       "AllProbesFailing",
	verdict.RuleEmpty:       "SourceEmpty",
	verdict.RuleTrust:       "SourceNotTrusted",
	verdict.RuleExpiry:      "SourceExpired",
	verdict.RuleFailover:    "FailoverActive",
	verdict.RuleFloor:       "LastEndpointsKept",
	verdict.RuleShrink:      "ShrinkLimited",
}

// service collects the problems of one Service.
type service struct {
	object   string
	problems []*report.Problem
}

func (s *service) addf(level report.Level, reason, format string, args ...any) {
	s.addOfSourcef("", level, reason, format, args...)
}

// addOfSourcef adds a problem that concerns one source of the Service, unless its name is empty.
func (s *service) addOfSourcef(source string, level report.Level, reason, format string, args ...any) {
	object := s.object
	if source != "" {
		object += ", source " + source
	}
	s.problems = append(s.problems, report.NewProblem(level, reason, object, format, args...))
}

// addRejection adds what is wrong with a Service, one problem for each invalid annotation.
func (s *service) addRejection(level report.Level, r *targets.Rejection) {
	for _, part := range r.Parts {
		s.addf(level, r.Reason, "%s", part)
	}
	if len(r.Parts) == 0 {
		s.addf(level, r.Reason, "%s", r.Message)
	}
}

// OfService returns what a person should know about a Service after a decision, the most severe first. A Service that
// has nothing but notes is healthy: nothing else decides that. writeFails: the last write of its slices failed.
func OfService(view targets.Resolution, t *endpoints.Target, writeFails bool) []*report.Problem {
	s := service{object: objectName(t.Namespace, t.Service)}
	if view.Rejection != nil {
		s.addRejection(report.Error, view.Rejection)
	}
	if view.Warning != nil {
		s.addRejection(report.Warning, view.Warning)
	}
	if view.Settings.Paused && view.State != targets.Gone && view.State != targets.ReadOnly {
		s.addf(report.Warning, "Paused", "Paused by annotation: nothing is written%s.", wouldChange(t.OutOfSync))
	}
	if view.Active() {
		s.addDecision(view, t, writeFails)
		s.addNotices(view, t)
	}
	report.Sort(s.problems)
	return s.problems
}

func wouldChange(differ int) string {
	if differ == 0 {
		return ""
	}
	return fmt.Sprintf("; %s would change", display.Count(differ, "address", "addresses"))
}

// addDecision adds what the decision about a Service says, and whether it is written.
func (s *service) addDecision(view targets.Resolution, t *endpoints.Target, writeFails bool) {
	d := &t.Decision
	switch {
	case view.Settings.Paused:
	case writeFails:
		s.addf(
			report.Error,
			"OutOfSync",
			"Its last write failed and is repeated; %s out of sync.",
			display.Count(t.OutOfSync, "address is", "addresses are"),
		)
	case t.OutOfSync > 0 && d.Write:
		s.addf(report.Error, "OutOfSync", "%s not listed as decided.", display.Count(t.OutOfSync, "address is", "addresses are"))
	}
	if view.Rejection == nil && !slices.ContainsFunc(d.Endpoints, func(e verdict.Endpoint) bool { return e.Listed && e.Conditions.Ready }) {
		s.addf(report.Error, "NoReadyEndpoints", "No endpoint is ready%s.", whyNoEndpoint(t))
	}
	held := map[string]string{}
	for i := range d.Guards {
		g, level := &d.Guards[i], report.Warning
		if g.Rule == verdict.RuleInitialSync && d.Write {
			held[g.Source] = strings.TrimSuffix(g.Message, ".")
			continue
		}
		if !d.Write {
			level = report.Error // nothing is written until a person corrects a setting
		}
		s.addOfSourcef(g.Source, level, GuardReasons[g.Rule], "%s", g.Message)
	}
	for i := range t.Sources { // also of a source for which nothing is held
		if source := &t.Sources[i]; !source.EverSynced {
			s.addOfSourcef(source.Source, report.Warning, "SourceNotSynced", "%s: %s",
				cmp.Or(held[source.Source], "Source "+source.Source+" has not synced"), source.NotSyncedReason())
		}
	}
}

// whyNoEndpoint says why there is no address that could be ready. Of each that there is, the report says it.
func whyNoEndpoint(t *endpoints.Target) string {
	for i := range t.Input.Sources {
		if s := &t.Input.Sources[i]; s.Unusable != "" && s.EverSynced {
			return fmt.Sprintf(": source %s: %s", s.Name, s.Unusable)
		} else if len(s.Members) > 0 || !s.EverSynced {
			return ""
		}
	}
	return ": no source reports an address for it"
}

// addNotices adds what else a person should know about a Service that is decided on.
func (s *service) addNotices(view targets.Resolution, decided *endpoints.Target) {
	t, snapshots, admitted, reported := &view.Target, decided.Sources, decided.Admitted, 0
	if len(t.ForeignSlices) > 0 { // consumers use them too
		s.addf(report.Warning, "ForeignSlices", "EndpointSlices managed by others belong to it, too: %s.", display.List(t.ForeignSlices))
	}
	if len(t.OtherClassSlices) > 0 {
		s.addf(report.Warning, "OtherClass", "EndpointSlices of another class belong to it, too: %s.", display.List(t.OtherClassSlices))
	}
	if len(admitted) > 0 {
		level := report.Note
		if slices.ContainsFunc(admitted, func(field string) bool {
			return !strings.HasPrefix(field, "label ") || strings.HasPrefix(field, "label "+targets.NameLabel(t.Owner.Kind))
		}) {
			level = report.Warning
		}
		s.addf(level, "ChangedByAdmission", "Admission changes what is written: %s.", display.List(admitted))
	}
	if t.PublishNotReadyAddresses && t.Settings.ListUnready {
		s.addf(report.Note, "PublishNotReadyAddresses", "publishNotReadyAddresses may send traffic to endpoints that are not ready.")
	}
	if t.TrafficDistribution != "" { // kube-proxy follows it by hints alone
		s.addf(report.Note, "TrafficDistribution", "trafficDistribution %.40s has no effect in kube-proxy: all endpoints are used equally.",
			t.TrafficDistribution)
	}
	for i := range snapshots {
		reported += snapshots[i].Nodes
		s.addPortMismatch(&snapshots[i], view.Target)
	}
	selected := func(source verdict.Source) bool { return len(source.Members) > 0 || source.Unusable != "" }
	if t.Settings.NodeSelector != nil && reported > 0 && !slices.ContainsFunc(decided.Input.Sources, selected) {
		s.addf(
			report.Warning,
			"NoNodeSelected",
			"slicefeed.dev/node-selector selects none of %s.",
			display.Count(reported, "node", "nodes"),
		)
	}
}

// addPortMismatch adds a port of the Service that none of the source's own endpoints has. A source only publishes
// addresses, so the port is written nevertheless.
func (s *service) addPortMismatch(source *subscriber.Snapshot, t targets.Target) {
	reported := source.Ports()
	var missing, have []string
	follows := t.FollowsPorts(source.Source)
	for _, p := range t.OwnPorts(source.Source) {
		number := fmt.Sprintf("%d/%.8s", *p.Port, *p.Protocol)
		if follows {
			number = fmt.Sprintf("%.16s/%.8s", *p.Name, *p.Protocol)
		}
		if !slices.ContainsFunc(reported, func(o contract.Port) bool {
			found := int32(o.Number) == *p.Port
			if follows {
				found = o.Name == *p.Name || len(t.Ports) == 1
			}
			return found && o.Protocol == string(*p.Protocol)
		}) {
			missing = append(missing, number)
		}
	}
	if len(missing) == 0 || len(reported) == 0 {
		return
	}
	for _, p := range reported {
		have = append(have, fmt.Sprintf("%d/%.8s", p.Number, p.Protocol))
	}
	s.addOfSourcef(source.Source, report.Note, "SourcePortMismatch", "Endpoints of source %s use %s, this Service %s.",
		source.Source, display.List(have), display.List(missing))
}

// objectName names a Service or a ServiceImport.
func objectName(namespace, name string) string {
	if imported, ok := strings.CutSuffix(name, targets.ImportSuffix); ok {
		return "ServiceImport " + namespace + "/" + imported
	}
	return "Service " + namespace + "/" + name
}

// ofSource returns the problem of a source that ignoring Services do not trust, or nil.
func ofSource(s *subscriber.Snapshot, ignoring int) *report.Problem {
	status, object := endpoints.NewSourceStatus(s), "source "+s.FeedName()
	switch {
	case !s.EverSynced:
		return report.NewProblem(report.Error, "SourceNotSynced", object, "Not synced: %s.", s.NotSyncedReason())
	case !status.Connected:
		return report.NewProblem(report.Error, "SourceDisconnected", object, "Disconnected: %s.", status.Reason)
	case ignoring > 0:
		return report.NewProblem(report.Error, "SourceNotTrusted", object, "Ignored by %s. %s",
			display.Count(ignoring, "Service", "Services"), status.Reason)
	case s.Membership.State != subscriber.Synced:
		return report.NewProblem(report.Warning, "SourceNotTrusted", object, "It reports: %s.", status.Reason)
	case status.Reason != "":
		return report.NewProblem(report.Warning, "SourceDegraded", object, "It reports: %s.", status.Reason)
	}
	return nil
}

// Package warnings decides what deserves a warning about a target, and how it is worded: what a guard holds,
// why a Service is rejected, what is set in vain. It guarantees that each active guard has a reason. It does not
// report anything; package events does.
package warnings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Of returns the warnings about a target: what a guard holds, why its Service is rejected, and what else a person
// should know.
func Of(view targets.Resolution, decision verdict.Decision, snapshots []subscriber.Snapshot) []events.Warning {
	if !view.Active() {
		return viewWarnings(view)
	}
	return slices.Concat(guardWarnings(decision.Guards), OfTarget(view, snapshots), viewWarnings(view))
}

// guardEvents are the reason and the action of the Event about each active guard, and the reason of the Event when it is
// over. That a guard holds nothing any more has several causes: a source that is not empty any more, or an empty one that
// is confirmed. The last reason names none.
var guardEvents = map[verdict.Rule]struct{ reason, action, over string }{
	verdict.RuleAllowlist:   {"AddressNotAllowed", "Hold", "AllowlistGuardOver"},
	verdict.RuleInitialSync: {"SourceNotSynced", "Hold", "InitialSyncGuardOver"},
	verdict.RulePanic:       {"AllProbesFailing", "Hold", "PanicGuardOver"},
	verdict.RuleEmpty:       {"SourceEmpty", "Hold", "EmptyGuardOver"},
	verdict.RuleTrust:       {"SourceNotTrusted", "Hold", "TrustGuardOver"},
	verdict.RuleExpiry:      {"SourceExpired", "Remove", "ExpiryOver"},
	verdict.RuleFailover:    {"FailoverActive", "FailOver", "FailoverOver"},
	verdict.RuleFloor:       {"LastEndpointsKept", "Hold", "FloorGuardOver"},
	verdict.RuleShrink:      {"ShrinkLimited", "Hold", "ShrinkGuardOver"},
}

// guardRecovery reports that a guard holds nothing any more.
func guardRecovery(g *verdict.Guard) events.Recovery {
	name := string(g.Rule)
	if g.Source != "" {
		name += " (source " + g.Source + ")"
	}
	note := fmt.Sprintf("Guard %s no longer holds endpoints of this Service.", name)
	switch g.Rule {
	case verdict.RuleExpiry:
		note = fmt.Sprintf("Endpoints of source %s are no longer removed by expire-after.", g.Source)
	case verdict.RuleFailover:
		note = fmt.Sprintf("Endpoints of source %s are no longer in use as a failover.", g.Source)
	}
	return events.Recovery{Reason: guardEvents[g.Rule].over, Note: note}
}

// managedAgain is reported when a Service was rejected and is not any more.
var managedAgain = events.Recovery{Reason: "ServiceManaged", Note: "Service is managed again: its endpoints are decided and written."}

// guardWarnings reports the guards that hold a change.
func guardWarnings(guards []verdict.Guard) []events.Warning {
	var all []events.Warning
	for _, g := range guards {
		all = append(all, events.Warning{
			Reason: guardEvents[g.Rule].reason, Source: g.Source, Action: guardEvents[g.Rule].action, Note: g.Message,
			Transient: g.Rule == verdict.RuleInitialSync || g.Rule == verdict.RuleTrust, Recovery: guardRecovery(&g),
		})
	}
	return all
}

// paused is reported while a person acts by hand.
var paused = events.Warning{Reason: "Paused", Action: "Ignore", Note: endpoints.PausedMessage, Recovery: resumed}

var resumed = events.Recovery{Reason: "Resumed", Note: "Service is no longer paused: decisions are written again."}

// viewWarnings reports why a Service is rejected, and that its label no longer names this class.
func viewWarnings(view targets.Resolution) (all []events.Warning) {
	if view.Rejection != nil {
		all = append(
			all,
			events.Warning{
				Reason:   view.Rejection.Reason,
				Action:   "Reject",
				Note:     view.Rejection.Message,
				ByNote:   true,
				Recovery: managedAgain,
			},
		)
	}
	if view.PendingOptOut != nil && view.PendingOptOut != view.Rejection {
		all = append(all, events.Warning{Reason: view.PendingOptOut.Reason, Action: "KeepForAMinute", Note: view.PendingOptOut.Message})
	}
	return all
}

// OfTarget reports what else a person should know about a target.
func OfTarget(view targets.Resolution, snapshots []subscriber.Snapshot) []events.Warning {
	all := foreignWarnings(view)
	if view.Target.PublishNotReadyAddresses && view.Target.Settings.ListUnready {
		all = append(all, publishesNotReady)
	}
	if view.Target.TrafficDistribution != "" {
		all = append(all, distributesTraffic(view.Target.TrafficDistribution))
	}
	for _, snapshot := range snapshots {
		all = append(all, portWarnings(snapshot, view.Target)...)
	}
	if view.AnnotationError != nil {
		all = append(
			all,
			events.Warning{
				Reason:   view.AnnotationError.Reason,
				Action:   "KeepSettings",
				Note:     view.AnnotationError.Message,
				ByNote:   true,
				Recovery: annotationsValid,
			},
		)
	}
	if view.Paused {
		all = append(all, paused)
	}
	return all
}

var annotationsValid = events.Recovery{Reason: "AnnotationsValid", Note: "Annotations are valid again and in effect."}

// publishesNotReady is reported of a Service with publishNotReadyAddresses.
var publishesNotReady = events.Warning{
	Reason: "PublishNotReadyAddresses",
	Action: "WriteAnyway",
	Note: "Service sets publishNotReadyAddresses. kube-proxy and CoreDNS ignore it on slices, but other consumers may send traffic to endpoints that are not ready. " +
		"Set it to false, or annotate the Service slicefeed.dev/list-unready: \"false\".",
}

// distributesTraffic is reported of a Service with trafficDistribution, which kube-proxy follows by hints alone.
func distributesTraffic(preference string) events.Warning {
	return events.Warning{
		Reason: "TrafficDistribution",
		Action: "WriteAnyway",
		Note: fmt.Sprintf(
			"Service sets trafficDistribution %.64s, which has no effect in kube-proxy: endpoints of this writer have no zone hints. "+
				"Traffic goes to all endpoints equally. Remove it, unless another consumer such as a mesh reads it.",
			preference,
		),
	}
}

// foreignWarnings reports slices of the same Service that are not owned: consumers use them too.
func foreignWarnings(view targets.Resolution) (all []events.Warning) {
	t := view.Target
	if len(t.ForeignSlices) > 0 {
		all = append(all, events.Warning{
			Reason: "ForeignSlices",
			Action: "Ignore",
			Note: fmt.Sprintf(
				"EndpointSlices managed by others also belong to this Service: %s. Consumers use their endpoints too. Delete them unless this is intended.",
				strings.Join(t.ForeignSlices, ", "),
			),
		})
	}
	if len(t.OtherClassSlices) > 0 && view.PendingOptOut == nil {
		all = append(all, events.Warning{
			Reason: "OtherClass",
			Action: "Ignore",
			Note: fmt.Sprintf(
				"EndpointSlices of another class also belong to this Service: %s. Its writer deletes them within a minute after a change of class. Delete them if that writer no longer runs.",
				strings.Join(t.OtherClassSlices, ", "),
			),
		})
	}
	return all
}

// portWarnings reports a target whose port none of the source's own endpoints has. A source only publishes
// addresses, so the target's port is written nevertheless.
func portWarnings(s subscriber.Snapshot, t targets.Target) []events.Warning {
	reported := s.Ports()
	if len(reported) == 0 {
		return nil
	}
	var missing, have []string
	follows := t.FollowsPorts(s.Source)
	for _, p := range t.OwnPorts(s.Source) {
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
	if len(missing) == 0 {
		return nil
	}
	for _, p := range reported {
		have = append(have, fmt.Sprintf("%d/%.8s", p.Number, p.Protocol))
	}
	return []events.Warning{
		{
			Reason: "SourcePortMismatch",
			Source: s.Source,
			Action: "WriteAnyway",
			Note: fmt.Sprintf(
				"Endpoints of source %s use ports %s, but this Service targets %s. Set targetPort or TARGET_PORT unless this is intended.",
				s.Source,
				strings.Join(have, ", "),
				strings.Join(missing, ", "),
			),
		},
	}
}

package overview

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
)

// serviceSection shows each Service, the most severe first, and counts those with problems.
func (m *pageModel) serviceSection() (s statuspage.Section, unhealthy, warnings int) {
	s = statuspage.Section{Name: "services", Title: "Services"}
	switch {
	case len(m.Services) > 0:
	case m.Filter != "":
		s.Lines = []statuspage.Line{
			statuspage.Linef("No such target. Check the class label of the Service, and that its namespace is watched."),
		}
	default:
		s.Lines = []statuspage.Line{statuspage.Linef("No Service has this writer's class, or caches are not synced.")}
	}
	views, items := map[string]*endpoints.TargetView{}, make([]statuspage.Item, 0, len(m.Services))
	for i := range m.Services {
		v := &m.Services[i]
		name := v.Namespace + "/" + v.Service
		item := statuspage.Item{
			Name:    name,
			Filter:  name,
			Summary: serviceStatus(v),
			Detail:  fmt.Sprintf("%d ready, %d draining, %d not ready", v.Ready, v.Draining, v.NotReady),
			Values:  serviceValues(v),
		}
		switch item.Summary.Severity {
		case statuspage.Error:
			unhealthy++
		case statuspage.Warning:
			warnings++
		}
		views[name], items = v, append(items, item)
	}
	statuspage.SortItems(items)
	s.AddItems(items, maxRows, "Services", func(nth int, i *statuspage.Item) { m.addDetails(nth, i, views[i.Name]) })
	return s, unhealthy, warnings
}

// countProblems counts the addresses that are not listed as decided, and those that guards hold.
func countProblems(v *endpoints.TargetView) (differ, held int) {
	for i := range v.Addresses {
		if !v.Addresses[i].InSync() {
			differ++
		}
	}
	for _, g := range v.Guards {
		held += g.Held
	}
	return differ, held
}

// serviceValues has the state of a Service for programs.
func serviceValues(v *endpoints.TargetView) statuspage.Values {
	differ, held := countProblems(v)
	values := statuspage.Values{
		"namespace": v.Namespace,
		"service":   v.Service,
		"state":     v.State.String(),
		"ready":     v.Ready,
		"draining":  v.Draining,
		"notReady":  v.NotReady,
		"outOfSync": differ,
		"held":      held,
	}
	if v.State == endpoints.ReadOnly || v.State == endpoints.Rejected && !v.FollowsProbes {
		values["outOfSync"] = 0 // nothing is decided
	}
	if v.Reason != "" {
		values["reason"], values["message"] = v.Reason, v.Message
	}
	values.SetTime("nextDecisionAt", v.NextDecisionAt)
	return values
}

// serviceStatus summarizes whether a Service is healthy.
func serviceStatus(v *endpoints.TargetView) statuspage.Line {
	differ, held := countProblems(v)
	switch {
	case v.State == endpoints.ReadOnly:
		return statuspage.OKf("published, not managed: %s", display.Count(v.Ready, "ready address", "ready addresses"))
	case v.State == endpoints.Rejected && v.FollowsProbes:
		return statuspage.Errorf("rejected: %s; no endpoints are added, failing ones become not ready", v.Reason)
	case v.State == endpoints.Rejected:
		return statuspage.Errorf("rejected: %s; nothing is written", v.Reason)
	case v.State == endpoints.Paused && differ > 0:
		return statuspage.Warnf("paused, nothing is written; %s would change", display.Count(differ, "address", "addresses"))
	case v.State == endpoints.Paused:
		return statuspage.Warnf("paused, nothing is written")
	case v.WritesBlocked:
		return statuspage.Errorf("writes blocked by a guard")
	case differ > 0:
		return statuspage.Errorf("%s out of sync", display.Count(differ, "address", "addresses"))
	case v.PortsDiffer:
		return statuspage.Errorf("slice ports out of sync")
	case v.Ready == 0:
		return statuspage.Errorf("no ready endpoints")
	case held > 0:
		return statuspage.Warnf("%d held by guards", held)
	case len(v.Guards) > 0:
		return statuspage.Warnf("guard active")
	default:
		return statuspage.OKf("healthy")
	}
}

// addDetails adds what is known of a Service: its guards, ports and addresses.
func (m *pageModel) addDetails(nth int, s *statuspage.Item, v *endpoints.TargetView) {
	only := len(m.Services) == 1
	if m.Filter == s.Name {
		s.Filter = "" // the page shows it alone already
	}
	s.Expanded = only || s.Summary.Severity != statuspage.OK && nth < maxExpanded
	if v.Message != "" {
		s.Lines = append(s.Lines, statuspage.Line{Text: v.Message})
	}
	for i := range v.Guards[:min(len(v.Guards), maxGuards)] {
		s.Lines = append(s.Lines, statuspage.Warnf("%s", endpoints.DescribeGuard(&v.Guards[i])))
	}
	if n := len(v.Guards) - maxGuards; n > 0 {
		s.Lines = append(s.Lines, statuspage.Linef("%d more guards omitted.", n))
	}
	if v.State == endpoints.Managed && len(v.Addresses) == 0 {
		s.Lines = append(s.Lines, statuspage.Linef("No source lists an address for this Service. Check its node selector."))
	}
	if len(v.Ports) > 0 {
		s.AddFact("ports", statuspage.Line{Text: endpoints.DescribePorts(v.Ports)})
	}
	if v.PortsDiffer {
		s.AddFact("current ports", statuspage.Errorf("slices list other ports"))
	}
	if in := v.NextDecisionAt.Sub(m.At); !v.NextDecisionAt.IsZero() {
		again := statuspage.Linef("now")
		if in > 0 {
			again = statuspage.Linef("in %s, at %s", duration.HumanDuration(in), v.NextDecisionAt.UTC().Format("15:04:05 UTC"))
		}
		s.AddFact("next decision", again)
	}
	addresses := slices.Clone(v.Addresses)
	slices.SortStableFunc(addresses, func(a, b endpoints.AddressView) int {
		return addressSeverity(v, &a).Rank() - addressSeverity(v, &b).Rank()
	})
	for i := range addresses[:min(len(addresses), maxAddresses)] {
		a := m.addressItem(v, &addresses[i])
		a.Expanded = s.Expanded && i < maxExpanded &&
			(a.Summary.Severity == statuspage.Error || only && a.Summary.Severity == statuspage.Warning)
		s.Items = append(s.Items, a)
	}
	statuspage.SortItems(s.Items)
	if n := len(addresses) - len(s.Items); n > 0 {
		s.Omitted = fmt.Sprintf("%d more addresses omitted, none more severe than these.", n)
	}
}

// addressSeverity rates an address: a difference is an error only if it should have been written.
func addressSeverity(v *endpoints.TargetView, e *endpoints.AddressView) statuspage.Severity {
	switch {
	case !e.InSync() && v.State == endpoints.Managed:
		return statuspage.Error
	case !e.InSync() || e.Current == nil || !e.Current.Conditions.Ready:
		return statuspage.Warning
	default:
		return statuspage.OK
	}
}

// addressItem shows one address, from the reports of the sources to the slices.
func (m *pageModel) addressItem(v *endpoints.TargetView, view *endpoints.AddressView) statuspage.Item {
	e := v.Explain(view.Address, m.At)
	a := statuspage.Item{
		Name: e.Address.String(), Summary: statuspage.Line{Severity: addressSeverity(v, view), Text: view.Current.String()},
		Detail: e.Causes(), Lines: []statuspage.Line{{Text: e.Conclusion}},
		Values: statuspage.Values{"current": view.Current.String(), "desired": view.Desired.String(), "inSync": view.InSync()},
	}
	switch {
	case a.Summary.Severity == statuspage.Error:
		a.Summary.Text += ", desired " + view.Desired.String()
	case v.State == endpoints.Paused && !view.InSync():
		a.Summary.Text += ", would be " + view.Desired.String()
	case e.Guard != nil:
		a.Summary = statuspage.Warnf("%s, held", view.Current)
	}
	if e.Advice != "" && e.Advice != v.Message && e.Guard == nil { // else the Service shows it
		a.Lines = append(a.Lines, statuspage.Warnf("%s", e.Advice))
	}
	for _, s := range e.Steps {
		a.AddFact(s.Stage, statuspage.Line{Text: s.Detail})
	}
	if reports := &a.Facts[0].Values; len(*reports) > maxReports {
		*reports = append((*reports)[:maxReports], statuspage.Linef("%d more sources omitted", len(*reports)-maxReports))
	}
	return a
}

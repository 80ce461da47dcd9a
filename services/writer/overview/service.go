package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// serviceRow is one line of the Services section.
type serviceRow struct {
	item statuspage.Item
	view *endpoints.TargetView
}

// serviceRows returns all Services, the most severe first.
func (m *pageModel) serviceRows() (all []serviceRow, unhealthy, warnings int) {
	for i := range m.Services {
		v := &m.Services[i]
		name := statuspage.SafeText(v.Namespace + "/" + v.Service)
		r := serviceRow{view: v, item: statuspage.Item{
			Name: name, Filter: name, Summary: serviceStatus(v), Detail: fmt.Sprintf("%d ready, %d draining, %d not ready", v.Ready, v.Draining, v.NotReady),
		}}
		switch r.item.Summary.Severity {
		case statuspage.Error:
			unhealthy++
		case statuspage.Warning:
			warnings++
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b serviceRow) int {
		return cmp.Compare(a.item.Summary.Severity.Rank(), b.item.Summary.Severity.Rank())
	})
	return all, unhealthy, warnings
}

// serviceStatus summarizes whether a Service is healthy.
func serviceStatus(v *endpoints.TargetView) statuspage.Line {
	differ, held := 0, 0
	for i := range v.Addresses {
		if !v.Addresses[i].InSync() {
			differ++
		}
	}
	for _, g := range v.Guards {
		held += g.Held
	}
	problem := func(format string, args ...any) statuspage.Line {
		return statuspage.Line{Severity: statuspage.Error, Text: fmt.Sprintf(format, args...)}
	}
	warn := func(format string, args ...any) statuspage.Line {
		return statuspage.Line{Severity: statuspage.Warning, Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case v.State == endpoints.Rejected && v.FollowsProbes:
		return problem("rejected: %s; no endpoints are added, failing ones become not ready", statuspage.SafeText(v.Reason))
	case v.State == endpoints.Rejected:
		return problem("rejected: %s; nothing is written", statuspage.SafeText(v.Reason))
	case v.State == endpoints.Paused && differ > 0:
		return warn("paused, nothing is written; %s would change", display.Count(differ, "address", "addresses"))
	case v.State == endpoints.Paused:
		return warn("paused, nothing is written")
	case v.WritesBlocked:
		return problem("writes blocked by a guard")
	case differ > 0:
		return problem("%s out of sync", display.Count(differ, "address", "addresses"))
	case v.PortsDiffer:
		return problem("slice ports out of sync")
	case v.Ready == 0:
		return problem("no ready endpoints")
	case held > 0:
		return warn("%d held by guards", held)
	case len(v.Guards) > 0:
		return warn("guard active")
	default:
		return statuspage.Line{Severity: statuspage.OK, Text: "healthy"}
	}
}

// serviceItem returns a Service with all of its details.
func (m *pageModel) serviceItem(r *serviceRow, nth int) statuspage.Item {
	v, s := r.view, r.item
	only := len(m.Services) == 1
	if m.Filter == v.Namespace+"/"+v.Service {
		s.Filter = "" // the page shows it alone already
	}
	s.Expanded = only || s.Summary.Severity != statuspage.OK && nth < maxExpanded
	if v.Message != "" {
		s.Lines = append(s.Lines, statuspage.Line{Text: statuspage.SafeText(v.Message)})
	}
	for i := range v.Guards[:min(len(v.Guards), maxGuards)] {
		s.Lines = append(s.Lines, guardLine(&v.Guards[i]))
	}
	if n := len(v.Guards) - maxGuards; n > 0 {
		s.Lines = append(s.Lines, statuspage.Linef("%d more guards omitted.", n))
	}
	if v.State == endpoints.Managed && len(v.Addresses) == 0 {
		s.Lines = append(s.Lines, statuspage.Linef("No source lists an address for this Service. Check its node selector."))
	}
	if len(v.Ports) > 0 {
		s.Facts = append(s.Facts, newFact("ports", describePorts(v)))
	}
	if v.PortsDiffer {
		s.Facts = append(s.Facts, statuspage.Fact{Name: "current ports", Values: []statuspage.Line{{Severity: statuspage.Error, Text: "slices list other ports"}}})
	}
	if !v.NextDecisionAt.IsZero() {
		again := "now"
		if in := v.NextDecisionAt.Sub(m.At); in > 0 {
			again = "in " + statuspage.FormatDuration(in) + ", at " + v.NextDecisionAt.UTC().Format("15:04:05 UTC")
		}
		s.Facts = append(s.Facts, newFact("next decision", again))
	}
	addresses := slices.Clone(v.Addresses)
	slices.SortStableFunc(addresses, func(a, b endpoints.AddressView) int {
		return cmp.Compare(addressSeverity(v, &a).Rank(), addressSeverity(v, &b).Rank())
	})
	for i := range addresses[:min(len(addresses), maxAddresses)] {
		a := m.addressItem(v, &addresses[i])
		a.Expanded = s.Expanded && i < maxExpanded && (a.Summary.Severity == statuspage.Error || only && a.Summary.Severity == statuspage.Warning)
		s.Items = append(s.Items, a)
	}
	slices.SortStableFunc(s.Items, func(a, b statuspage.Item) int {
		return cmp.Compare(a.Summary.Severity.Rank(), b.Summary.Severity.Rank())
	})
	if n := len(addresses) - len(s.Items); n > 0 {
		s.Omitted = fmt.Sprintf("%d more addresses omitted, none more severe than these.", n)
	}
	return s
}

func describePorts(v *endpoints.TargetView) string {
	var all []string
	for _, p := range v.Ports {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Number, p.Protocol)))
	}
	return statuspage.SafeText(strings.Join(all, ", "))
}

func newFact(name, text string) statuspage.Fact {
	return statuspage.Fact{Name: name, Values: []statuspage.Line{{Text: text}}}
}

func guardLine(g *verdict.Guard) statuspage.Line {
	name := "Guard " + string(g.Rule)
	if g.Source != "" {
		name += " (source " + statuspage.SafeText(g.Source) + ")"
	}
	return statuspage.Line{Severity: statuspage.Warning, Text: name + " holds " + display.Count(g.Held, "address", "addresses") + ": " + statuspage.SafeText(g.Message)}
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
	e := v.Explain(view.Address)
	desired := describeBackend(view.Desired)
	if v.State == endpoints.Rejected && !v.FollowsProbes {
		desired = "nothing"
	}
	a := statuspage.Item{Name: e.Address.String(), Summary: statuspage.Line{Severity: addressSeverity(v, view), Text: describeBackend(view.Current)}}
	switch {
	case a.Summary.Severity == statuspage.Error:
		a.Summary.Text += ", desired " + desired
	case v.State == endpoints.Paused && !view.InSync():
		a.Summary.Text += ", would be " + desired
	case e.Guard != nil:
		a.Summary = statuspage.Line{Severity: statuspage.Warning, Text: a.Summary.Text + ", held"}
	}
	a.Lines = append(a.Lines, statuspage.Linef("%s", statuspage.SafeText(e.Conclusion)))
	switch {
	case e.Guard != nil && e.Advice == e.Guard.Message: // the page shows it already
	case e.Guard != nil:
		a.Lines = append(a.Lines, guardLine(e.Guard))
	}
	if e.Advice != "" && e.Advice != v.Message && (e.Guard == nil || e.Advice != e.Guard.Message) {
		a.Lines = append(a.Lines, statuspage.Line{Severity: statuspage.Warning, Text: statuspage.SafeText(e.Advice)})
	}
	slices.SortStableFunc(e.Reports, func(x, y endpoints.SourceReport) int { return boolToInt(x.Member == nil) - boolToInt(y.Member == nil) })
	reports := statuspage.Fact{Name: "source"}
	for i := range e.Reports[:min(len(e.Reports), maxReports)] {
		reports.Values = append(reports.Values, statuspage.Line{Text: m.describeReport(&e.Reports[i])})
	}
	if n := len(e.Reports) - maxReports; n > 0 {
		reports.Values = append(reports.Values, statuspage.Linef("%d more sources omitted", n))
	}
	if len(e.Reports) == 0 {
		reports.Values = []statuspage.Line{statuspage.Linef("none")}
	}
	a.Facts = append(a.Facts, reports, newFact("probe", m.describeProbe(e.Probe)))
	if e.Endpoint.Rule != "" {
		a.Facts = append(a.Facts, newFact("rule", string(e.Endpoint.Rule)+": "+statuspage.SafeText(e.Endpoint.Reason)))
	}
	name := "desired"
	if v.State == endpoints.Paused {
		name = "would be"
	}
	a.Facts = append(a.Facts, newFact(name, desired), newFact("current", describeBackend(view.Current)))
	a.Detail = m.summarizeReports(&e)
	return a
}

// summarizeReports shortens report and probe status to a few words.
func (m *pageModel) summarizeReports(e *endpoints.Explanation) string {
	var parts []string
	for i := range e.Reports {
		if w := &e.Reports[i]; w.Member != nil {
			parts = append(parts, statuspage.SafeText(w.Member.Name)+" "+stateText[w.Member.State])
			break
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "no source lists it")
	}
	if e.Probe != nil {
		probe := map[verdict.ProbeStatus]string{verdict.Passing: "probe passing", verdict.Failing: "probe failing"}[e.Probe.Status]
		parts = append(parts, cmp.Or(probe, "probe pending"))
	}
	return strings.Join(parts, ", ")
}

var stateText = [...]string{
	verdict.Unknown: "in unknown state", verdict.Ready: "ready", verdict.Draining: "draining", verdict.NotReady: "not ready",
}

// describeReport formats the report of one source.
func (m *pageModel) describeReport(w *endpoints.SourceReport) string {
	text := w.Name + ": "
	switch {
	case !w.EverSynced:
		return statuspage.SafeText(text + "not synced since start")
	case w.Member == nil:
		text += "does not list it"
	default:
		text += stateText[w.Member.State] + " for " + statuspage.FormatAge(m.At, w.Member.Since) + ", as " + w.Member.Name
	}
	if !w.ObservedAt.IsZero() {
		text += fmt.Sprintf(" (observation %d, received %s ago)", w.Observation, statuspage.FormatAge(m.At, w.ObservedAt))
	}
	if w.Reason != "" {
		text += "; " + w.Reason
	}
	return statuspage.SafeText(text)
}

// describeProbe formats the probe status.
func (m *pageModel) describeProbe(p *verdict.Probe) string {
	if p == nil {
		return "not probed"
	}
	switch p.Status {
	case verdict.Passing:
		return "passing for " + statuspage.FormatAge(m.At, p.Since)
	case verdict.Failing:
		text := "failing for " + statuspage.FormatAge(m.At, p.Since)
		if p.Detail != "" {
			text += ": " + p.Detail
		}
		if !p.LastPassed.IsZero() { // what passes now has passed since the last decision, too
			text += "; last passed " + statuspage.FormatAge(m.At, p.LastPassed) + " ago"
		}
		return statuspage.SafeText(text)
	default:
		return "pending"
	}
}

func describeBackend(b *endpoints.Backend) string {
	if b == nil {
		return "not listed"
	}
	return b.Conditions.String()
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// serviceRow is a Service in a line.
type serviceRow struct {
	item statuspage.Item
	view *endpoints.TargetView
}

// serviceRows are all Services, the worst first.
func (m *pageModel) serviceRows() (all []serviceRow, wrong, looks int) {
	for i := range m.Services {
		v := &m.Services[i]
		name := statuspage.SafeText(v.Namespace + "/" + v.Service)
		r := serviceRow{view: v, item: statuspage.Item{
			Name: name, Filter: name, Summary: serviceStatus(v), Detail: fmt.Sprintf("%d ready, %d draining, %d out", v.Ready, v.Draining, v.NotReady),
		}}
		switch r.item.Summary.Severity {
		case statuspage.Error:
			wrong++
		case statuspage.Warning:
			looks++
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b serviceRow) int {
		return cmp.Compare(a.item.Summary.Severity.Rank(), b.item.Summary.Severity.Rank())
	})
	return all, wrong, looks
}

// serviceStatus says whether a Service is right.
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
	wrong := func(format string, args ...any) statuspage.Line {
		return statuspage.Line{Severity: statuspage.Error, Text: fmt.Sprintf(format, args...)}
	}
	look := func(format string, args ...any) statuspage.Line {
		return statuspage.Line{Severity: statuspage.Warning, Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case v.State == endpoints.Rejected && v.FollowsProbes:
		return wrong("refused: %s; nothing is added, its probes go on taking out dead endpoints", statuspage.SafeText(v.Reason))
	case v.State == endpoints.Rejected:
		return wrong("refused: %s; nothing is written", statuspage.SafeText(v.Reason))
	case v.State == endpoints.Paused && differ > 0:
		return look("paused, nothing is written; %s would change", statuspage.FormatCount(differ, "address", "addresses"))
	case v.State == endpoints.Paused:
		return look("paused, nothing is written")
	case v.WritesBlocked:
		return wrong("nothing may be written, see its guards")
	case differ > 0:
		return wrong("%s not written as decided", statuspage.FormatCount(differ, "address is", "addresses are"))
	case v.PortsDiffer:
		return wrong("its slices list other ports than are decided")
	case v.Ready == 0:
		return wrong("nothing is ready; written as decided")
	case held > 0:
		return look("%d held back; written as decided", held)
	case len(v.Guards) > 0:
		return look("a guard acts; written as decided")
	default:
		return statuspage.Line{Severity: statuspage.OK, Text: "right"}
	}
}

// serviceItem is a Service with all that is known of it.
func (m *pageModel) serviceItem(r *serviceRow, nth int) statuspage.Item {
	v, s := r.view, r.item
	alone := len(m.Services) == 1
	if m.Filter == v.Namespace+"/"+v.Service {
		s.Filter = "" // it is asked for already
	}
	s.Expanded = alone || s.Summary.Severity != statuspage.OK && nth < maxExpanded
	if v.Message != "" {
		s.Lines = append(s.Lines, statuspage.Line{Text: statuspage.SafeText(v.Message)})
	}
	for i := range v.Guards[:min(len(v.Guards), maxGuards)] {
		s.Lines = append(s.Lines, guardLine(&v.Guards[i]))
	}
	if n := len(v.Guards) - maxGuards; n > 0 {
		s.Lines = append(s.Lines, statuspage.Linef("%d more guards are left out.", n))
	}
	if v.State == endpoints.Managed && len(v.Addresses) == 0 {
		s.Lines = append(s.Lines, statuspage.Linef("No source lists an address for it: is its node selector, if it has one, as it should be?"))
	}
	if len(v.Ports) > 0 {
		s.Facts = append(s.Facts, newFact("ports", describePorts(v)))
	}
	if v.PortsDiffer {
		s.Facts = append(s.Facts, statuspage.Fact{Name: "ports now", Values: []statuspage.Line{{Severity: statuspage.Error, Text: "its slices list others"}}})
	}
	if !v.NextDecisionAt.IsZero() {
		again := "by itself at once"
		if in := v.NextDecisionAt.Sub(m.At); in > 0 {
			again = "by itself in " + statuspage.FormatDuration(in) + ", at " + v.NextDecisionAt.UTC().Format("15:04:05 UTC")
		}
		s.Facts = append(s.Facts, newFact("decided again", again))
	}
	addresses := slices.Clone(v.Addresses)
	slices.SortStableFunc(addresses, func(a, b endpoints.AddressView) int {
		return cmp.Compare(addressSeverity(v, &a).Rank(), addressSeverity(v, &b).Rank())
	})
	for i := range addresses[:min(len(addresses), maxAddresses)] {
		a := m.addressItem(v, &addresses[i])
		a.Expanded = s.Expanded && i < maxExpanded && (a.Summary.Severity == statuspage.Error || alone && a.Summary.Severity == statuspage.Warning)
		s.Items = append(s.Items, a)
	}
	slices.SortStableFunc(s.Items, func(a, b statuspage.Item) int {
		return cmp.Compare(a.Summary.Severity.Rank(), b.Summary.Severity.Rank())
	})
	if n := len(addresses) - len(s.Items); n > 0 {
		s.Omitted = fmt.Sprintf("%d more addresses are left out, none of them more urgent than these.", n)
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
	by := "Held back by the guard " + string(g.Rule)
	if g.Source != "" {
		by += ", source " + statuspage.SafeText(g.Source)
	}
	return statuspage.Line{Severity: statuspage.Warning, Text: by + ", " + statuspage.FormatCount(g.Held, "address", "addresses") + ": " + statuspage.SafeText(g.Message)}
}

// addressSeverity grades an address: a difference is wrong only where it should be written.
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

// addressItem is the chain of one address, from the witnesses' words to the slices.
func (m *pageModel) addressItem(v *endpoints.TargetView, addresses *endpoints.AddressView) statuspage.Item {
	e := v.Explain(addresses.Address)
	decided := describeBackend(addresses.Desired)
	if v.State == endpoints.Rejected && !v.FollowsProbes {
		decided = "nothing"
	}
	a := statuspage.Item{Name: e.Address.String(), Summary: statuspage.Line{Severity: addressSeverity(v, addresses), Text: describeBackend(addresses.Current)}}
	switch {
	case a.Summary.Severity == statuspage.Error:
		a.Summary.Text += ", to be " + decided
	case v.State == endpoints.Paused && !addresses.InSync():
		a.Summary.Text += ", would be " + decided
	case e.Guard != nil:
		a.Summary = statuspage.Line{Severity: statuspage.Warning, Text: a.Summary.Text + ", held back"}
	}
	a.Lines = append(a.Lines, statuspage.Linef("%s", statuspage.SafeText(e.Conclusion)))
	switch {
	case e.Guard != nil && e.Advice == e.Guard.Message: // it is on the page already
	case e.Guard != nil:
		a.Lines = append(a.Lines, guardLine(e.Guard))
	}
	if e.Advice != "" && e.Advice != v.Message && (e.Guard == nil || e.Advice != e.Guard.Message) {
		a.Lines = append(a.Lines, statuspage.Line{Severity: statuspage.Warning, Text: statuspage.SafeText(e.Advice)})
	}
	slices.SortStableFunc(e.Reports, func(x, y endpoints.SourceReport) int { return boolToInt(x.Member == nil) - boolToInt(y.Member == nil) })
	reports := statuspage.Fact{Name: "first witness"}
	for i := range e.Reports[:min(len(e.Reports), maxReports)] {
		reports.Values = append(reports.Values, statuspage.Line{Text: m.describeReport(&e.Reports[i])})
	}
	if n := len(e.Reports) - maxReports; n > 0 {
		reports.Values = append(reports.Values, statuspage.Linef("%d more sources are left out", n))
	}
	if len(e.Reports) == 0 {
		reports.Values = []statuspage.Line{statuspage.Linef("no source has a say")}
	}
	a.Facts = append(a.Facts, reports, newFact("second witness", "probe: "+m.describeProbe(e.Probe)))
	if e.Endpoint.Rule != "" {
		a.Facts = append(a.Facts, newFact("rule", string(e.Endpoint.Rule)+": "+statuspage.SafeText(e.Endpoint.Reason)))
	}
	name := "decided"
	if v.State == endpoints.Paused {
		name = "would be"
	}
	a.Facts = append(a.Facts, newFact(name, decided), newFact("in the slices", describeBackend(addresses.Current)))
	a.Detail = m.summarizeReports(&e)
	return a
}

// summarizeReports is both witnesses' words in a few.
func (m *pageModel) summarizeReports(e *endpoints.Explanation) string {
	var said []string
	for i := range e.Reports {
		if w := &e.Reports[i]; w.Member != nil {
			said = append(said, statuspage.SafeText(w.Member.Name)+" "+stateText[w.Member.State])
			break
		}
	}
	if len(said) == 0 {
		said = append(said, "no source lists it")
	}
	if e.Probe != nil {
		probe := map[verdict.Health]string{verdict.Passing: "probe passing", verdict.Failing: "probe failing"}[e.Probe.Health]
		said = append(said, cmp.Or(probe, "not judged by a probe yet"))
	}
	return strings.Join(said, ", ")
}

var stateText = [...]string{
	verdict.Unknown: "in a state unknown to this version", verdict.Ready: "ready", verdict.Draining: "draining", verdict.NotReady: "not ready",
}

// describeReport is the first witness's word.
func (m *pageModel) describeReport(w *endpoints.SourceReport) string {
	said := "source " + w.Name + ": "
	switch {
	case !w.EverSynced:
		return statuspage.SafeText(said + "not heard since this writer started")
	case w.Member == nil:
		said += "does not list it"
	default:
		said += stateText[w.Member.State] + " for " + statuspage.FormatAge(m.At, w.Member.Since) + ", as " + w.Member.Name
	}
	if !w.ObservedAt.IsZero() {
		said += fmt.Sprintf(" (observation %d, heard of %s ago)", w.Observation, statuspage.FormatAge(m.At, w.ObservedAt))
	}
	if w.Reason != "" {
		said += "; " + w.Reason
	}
	return statuspage.SafeText(said)
}

// describeProbe is the second witness's word.
func (m *pageModel) describeProbe(p *verdict.Probe) string {
	if p == nil {
		return "none: it is not probed"
	}
	switch p.Health {
	case verdict.Passing:
		return "passing for " + statuspage.FormatAge(m.At, p.Since)
	case verdict.Failing:
		said := "failing for " + statuspage.FormatAge(m.At, p.Since)
		if p.Detail != "" {
			said += ": " + p.Detail
		}
		if !p.Passed.IsZero() { // what passes now has passed since the last decision, too
			said += "; last passed " + statuspage.FormatAge(m.At, p.Passed) + " ago"
		}
		return statuspage.SafeText(said)
	default:
		return "pending"
	}
}

func describeBackend(b *endpoints.Backend) string {
	if b == nil {
		return "not listed"
	}
	return endpoints.DescribeConditions(b.Conditions)
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

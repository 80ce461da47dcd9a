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

// row is a Service in a line.
type row struct {
	item statuspage.Item
	view *endpoints.View
}

// rows are all Services, the worst first.
func (m *model) rows() (all []row, wrong, looks int) {
	for i := range m.Services {
		v := &m.Services[i]
		name := statuspage.SafeText(v.Namespace + "/" + v.Service)
		r := row{view: v, item: statuspage.Item{
			Name: name, Filter: name, Summary: is(v), Detail: fmt.Sprintf("%d ready, %d draining, %d out", v.Ready, v.Draining, v.Out),
		}}
		switch r.item.Summary.Severity {
		case statuspage.Error:
			wrong++
		case statuspage.Warning:
			looks++
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b row) int { return cmp.Compare(a.item.Summary.Severity.Rank(), b.item.Summary.Severity.Rank()) })
	return all, wrong, looks
}

// is says whether a Service is right.
func is(v *endpoints.View) statuspage.Line {
	differ, held := 0, 0
	for i := range v.Addresses {
		if !v.Addresses[i].AsDecided() {
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
	case v.State == endpoints.Refused && v.FollowsProbes:
		return wrong("refused: %s; nothing is added, its probes go on taking out dead endpoints", statuspage.SafeText(v.Reason))
	case v.State == endpoints.Refused:
		return wrong("refused: %s; nothing is written", statuspage.SafeText(v.Reason))
	case v.State == endpoints.Paused && differ > 0:
		return look("paused, nothing is written; %s would change", statuspage.FormatCount(differ, "address", "addresses"))
	case v.State == endpoints.Paused:
		return look("paused, nothing is written")
	case v.Forbidden:
		return wrong("nothing may be written, see its guards")
	case differ > 0:
		return wrong("%s not written as decided", statuspage.FormatCount(differ, "address is", "addresses are"))
	case v.OtherPorts:
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

// service is a Service with all that is known of it.
func (m *model) service(r *row, nth int) statuspage.Item {
	v, s := r.view, r.item
	alone := len(m.Services) == 1
	if m.Asked == v.Namespace+"/"+v.Service {
		s.Filter = "" // it is asked for already
	}
	s.Expanded = alone || s.Summary.Severity != statuspage.OK && nth < maxOpen
	if v.Message != "" {
		s.Lines = append(s.Lines, statuspage.Line{Text: statuspage.SafeText(v.Message)})
	}
	for i := range v.Guards[:min(len(v.Guards), maxGuards)] {
		s.Lines = append(s.Lines, held(&v.Guards[i]))
	}
	if n := len(v.Guards) - maxGuards; n > 0 {
		s.Lines = append(s.Lines, statuspage.Linef("%d more guards are left out.", n))
	}
	if v.State == endpoints.Managed && len(v.Addresses) == 0 {
		s.Lines = append(s.Lines, statuspage.Linef("No source lists an address for it: is its node selector, if it has one, as it should be?"))
	}
	if len(v.Ports) > 0 {
		s.Facts = append(s.Facts, fact("ports", ports(v)))
	}
	if v.OtherPorts {
		s.Facts = append(s.Facts, statuspage.Fact{Name: "ports now", Values: []statuspage.Line{{Severity: statuspage.Error, Text: "its slices list others"}}})
	}
	if !v.DecidesAt.IsZero() {
		again := "by itself at once"
		if in := v.DecidesAt.Sub(m.At); in > 0 {
			again = "by itself in " + statuspage.FormatDuration(in) + ", at " + v.DecidesAt.UTC().Format("15:04:05 UTC")
		}
		s.Facts = append(s.Facts, fact("decided again", again))
	}
	entered := slices.Clone(v.Addresses)
	slices.SortStableFunc(entered, func(a, b endpoints.Entered) int {
		return cmp.Compare(gradeOf(v, &a).Rank(), gradeOf(v, &b).Rank())
	})
	for i := range entered[:min(len(entered), maxAddresses)] {
		a := m.address(v, &entered[i])
		a.Expanded = s.Expanded && i < maxOpen && (a.Summary.Severity == statuspage.Error || alone && a.Summary.Severity == statuspage.Warning)
		s.Items = append(s.Items, a)
	}
	slices.SortStableFunc(s.Items, func(a, b statuspage.Item) int {
		return cmp.Compare(a.Summary.Severity.Rank(), b.Summary.Severity.Rank())
	})
	if n := len(entered) - len(s.Items); n > 0 {
		s.Omitted = fmt.Sprintf("%d more addresses are left out, none of them more urgent than these.", n)
	}
	return s
}

func ports(v *endpoints.View) string {
	var all []string
	for _, p := range v.Ports {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Number, p.Protocol)))
	}
	return statuspage.SafeText(strings.Join(all, ", "))
}

func fact(name, text string) statuspage.Fact {
	return statuspage.Fact{Name: name, Values: []statuspage.Line{{Text: text}}}
}

func held(g *verdict.Guard) statuspage.Line {
	by := "Held back by the guard " + string(g.Rule)
	if g.Source != "" {
		by += ", source " + statuspage.SafeText(g.Source)
	}
	return statuspage.Line{Severity: statuspage.Warning, Text: by + ", " + statuspage.FormatCount(g.Held, "address", "addresses") + ": " + statuspage.SafeText(g.Message)}
}

// gradeOf grades an address: a difference is wrong only where it should be written.
func gradeOf(v *endpoints.View, e *endpoints.Entered) statuspage.Severity {
	switch {
	case !e.AsDecided() && v.State == endpoints.Managed:
		return statuspage.Error
	case !e.AsDecided() || e.Listed == nil || !e.Listed.Conditions.Ready:
		return statuspage.Warning
	default:
		return statuspage.OK
	}
}

// address is the chain of one address, from the witnesses' words to the slices.
func (m *model) address(v *endpoints.View, entered *endpoints.Entered) statuspage.Item {
	e := v.Explain(entered.Address)
	decided := listed(entered.Decided)
	if v.State == endpoints.Refused && !v.FollowsProbes {
		decided = "nothing"
	}
	a := statuspage.Item{Name: e.Address.String(), Summary: statuspage.Line{Severity: gradeOf(v, entered), Text: listed(entered.Listed)}}
	switch {
	case a.Summary.Severity == statuspage.Error:
		a.Summary.Text += ", to be " + decided
	case v.State == endpoints.Paused && !entered.AsDecided():
		a.Summary.Text += ", would be " + decided
	case e.Guard != nil:
		a.Summary = statuspage.Line{Severity: statuspage.Warning, Text: a.Summary.Text + ", held back"}
	}
	a.Lines = append(a.Lines, statuspage.Linef("%s", statuspage.SafeText(e.Conclusion)))
	switch {
	case e.Guard != nil && e.Advice == e.Guard.Message: // it is on the page already
	case e.Guard != nil:
		a.Lines = append(a.Lines, held(e.Guard))
	}
	if e.Advice != "" && e.Advice != v.Message && (e.Guard == nil || e.Advice != e.Guard.Message) {
		a.Lines = append(a.Lines, statuspage.Line{Severity: statuspage.Warning, Text: statuspage.SafeText(e.Advice)})
	}
	slices.SortStableFunc(e.Witnesses, func(x, y endpoints.Witness) int { return b2i(x.Member == nil) - b2i(y.Member == nil) })
	says := statuspage.Fact{Name: "first witness"}
	for i := range e.Witnesses[:min(len(e.Witnesses), maxWitnesses)] {
		says.Values = append(says.Values, statuspage.Line{Text: m.witness(&e.Witnesses[i])})
	}
	if n := len(e.Witnesses) - maxWitnesses; n > 0 {
		says.Values = append(says.Values, statuspage.Linef("%d more sources are left out", n))
	}
	if len(e.Witnesses) == 0 {
		says.Values = []statuspage.Line{statuspage.Linef("no source has a say")}
	}
	a.Facts = append(a.Facts, says, fact("second witness", "probe: "+m.probe(e.Probe)))
	if e.Judged.Rule != "" {
		a.Facts = append(a.Facts, fact("rule", string(e.Judged.Rule)+": "+statuspage.SafeText(e.Judged.Reason)))
	}
	name := "decided"
	if v.State == endpoints.Paused {
		name = "would be"
	}
	a.Facts = append(a.Facts, fact(name, decided), fact("in the slices", listed(entered.Listed)))
	a.Detail = m.inShort(&e)
	return a
}

// inShort is both witnesses' words in a few.
func (m *model) inShort(e *endpoints.Explanation) string {
	var said []string
	for i := range e.Witnesses {
		if w := &e.Witnesses[i]; w.Member != nil {
			said = append(said, statuspage.SafeText(w.Member.Name)+" "+states[w.Member.State])
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

var states = [...]string{
	verdict.Unknown: "in a state unknown to this version", verdict.Ready: "ready", verdict.Draining: "draining", verdict.NotReady: "not ready",
}

// witness is the first witness's word.
func (m *model) witness(w *endpoints.Witness) string {
	said := "source " + w.Name + ": "
	switch {
	case !w.Heard:
		return statuspage.SafeText(said + "not heard since this writer started")
	case w.Member == nil:
		said += "does not list it"
	default:
		said += states[w.Member.State] + " for " + statuspage.FormatAge(m.At, w.Member.Since) + ", as " + w.Member.Name
	}
	if !w.ObservedAt.IsZero() {
		said += fmt.Sprintf(" (observation %d, heard of %s ago)", w.Observation, statuspage.FormatAge(m.At, w.ObservedAt))
	}
	if w.Reason != "" {
		said += "; " + w.Reason
	}
	return statuspage.SafeText(said)
}

// probe is the second witness's word.
func (m *model) probe(p *verdict.Probe) string {
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

func listed(b *endpoints.Backend) string {
	if b == nil {
		return "not listed"
	}
	return endpoints.InWords(b.Conditions)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

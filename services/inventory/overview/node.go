package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// nodes is each node with the chain from what is said of it to what is told. Those that are left out
// though they count come first, those that are left out on purpose last.
func (m *model) nodes() statuspage.Section {
	s := statuspage.Section{Title: "Nodes"}
	all, left, unready := m.omitted(), 0, 0
	for i := range all {
		if all[i].Summary.Severity != statuspage.None {
			left++
		}
	}
	for _, n := range m.Nodes {
		if n.State == roster.NotReady {
			unready++
		}
		all = append(all, m.node(n))
	}
	worst := statuspage.Warning
	for i := range all {
		worst = statuspage.MoreSevere(worst, all[i].Summary.Severity)
	}
	if left > 0 {
		m.blamef(worst, "%s", statuspage.FormatCount(left, "node is left out though it counts", "nodes are left out though they count"))
	}
	if unready > 0 {
		m.blamef(statuspage.Warning, "%s not ready", areNodes(unready))
	}
	if m.asked == "" && m.Status.Observation > 0 && !slices.ContainsFunc(m.Nodes, func(n *roster.Node) bool { return n.State == roster.Ready }) {
		m.blamef(statuspage.Error, "no node is ready")
	}
	slices.SortStableFunc(all, func(a, b statuspage.Item) int {
		return cmp.Or(cmp.Compare(a.Summary.Severity.Rank(), b.Summary.Severity.Rank()), cmp.Compare(b2i(aside(&a)), b2i(aside(&b))))
	})
	if len(all) == 0 {
		text := "The source has told no node yet."
		if m.asked != "" {
			m.blamef(statuspage.Warning, "there is no node of this name here")
			e, _ := m.Explain(m.asked)
			text = statuspage.SafeText(e.Verdict)
		}
		s.Lines = []statuspage.Line{statuspage.Linef("%s", text)}
	}
	s.Items, s.Omitted = m.detailed(all)
	return s
}

// detailed gives the first of the nodes their chains, as long as there is room.
func (m *model) detailed(all []statuspage.Item) (shown []statuspage.Item, left string) {
	room := statuspage.Budget{Bytes: maxDetails}
	folded := 0
	shown = all[:min(len(all), maxNodes)]
	for n := range shown {
		if room.Bytes > 0 {
			whole := shown[n]
			m.chain(&whole)
			if m.asked != "" {
				whole.Filter = "" // it is asked for already
			}
			whole.Expanded = m.asked != "" || n < maxOpen && (whole.Summary.Severity == statuspage.Error || whole.Summary.Severity == statuspage.Warning)
			if room.Reserve(&whole) {
				shown[n] = whole
			}
		}
		if shown[n].Items == nil {
			folded++
		}
	}
	return shown, statuspage.DescribeOmitted(folded, len(all)-len(shown), "nodes")
}

func (m *model) node(n *roster.Node) statuspage.Item {
	var addresses []string
	for _, a := range n.Addresses {
		addresses = append(addresses, a.String())
	}
	is := statuspage.Line{Severity: statuspage.OK, Text: "ready"}
	switch n.State {
	case roster.Draining:
		is = statuspage.Line{Text: "draining"} // as nodes do that are about to be replaced
	case roster.NotReady:
		is = statuspage.Line{Severity: statuspage.Warning, Text: "not ready"}
	}
	is.Text += " at " + strings.Join(addresses, ", ")
	also := "for " + statuspage.FormatAge(m.at, n.Since)
	if n.Zone != "" {
		also += ", zone " + n.Zone
	}
	i := statuspage.Item{Name: statuspage.SafeText(n.Name), Filter: statuspage.SafeText(n.Name), Summary: is, Detail: statuspage.SafeText(also)}
	if n.ServerID != "" {
		i.Facts = []statuspage.Fact{{Name: "chain", Values: []statuspage.Line{{
			Text: statuspage.SafeText("Node " + n.Name + " → server " + n.ServerID + " → " + strings.Join(addresses, ", ")),
		}}}}
	}
	return i
}

const onPurpose = "left out on purpose: "

// omitted are the nodes that are left out.
func (m *model) omitted() []statuspage.Item {
	all := make([]statuspage.Item, 0, len(m.Omitted)+len(m.Nodes))
	for _, o := range m.Omitted {
		why := strings.ToUpper(o.Reason.String())
		i := statuspage.Item{Name: statuspage.SafeText(o.Name), Filter: statuspage.SafeText(o.Name)}
		switch o.Reason {
		case roster.ControlPlane, roster.ExcludedByLabel, roster.NotSelected:
			i.Summary = statuspage.Line{Text: onPurpose + why}
		case roster.NotResolvedYet:
			i.Summary = statuspage.Line{Severity: statuspage.Warning, Text: "left out: " + why}
		default:
			i.Summary = statuspage.Line{Severity: statuspage.Error, Text: "left out: " + why}
		}
		if o.Advice != "" {
			i.Lines = []statuspage.Line{{Text: statuspage.SafeText(o.Advice)}}
		}
		all = append(all, i)
	}
	return all
}

// aside reports whether a node is none of those that are to be told.
func aside(i *statuspage.Item) bool { return strings.HasPrefix(i.Summary.Text, onPurpose) }

// chain adds how it came about that a node is told as it is, or left out.
func (m *model) chain(i *statuspage.Item) {
	e, known := m.Explain(i.Filter)
	if !known {
		return // it has gone meanwhile
	}
	if i.Lines == nil {
		i.Lines = []statuspage.Line{{Text: statuspage.SafeText(e.Verdict)}}
	}
	whole := statuspage.Item{Name: "the whole chain", Expanded: m.asked != ""}
	no := 0
	for n := range e.Steps {
		s := &e.Steps[n]
		if s.Result == roster.Failed {
			no++
		}
		if n == 0 || s.Stage != e.Steps[n-1].Stage {
			whole.Facts = append(whole.Facts, statuspage.Fact{Name: s.Stage})
		}
		of := &whole.Facts[len(whole.Facts)-1]
		of.Values = append(of.Values, step(s))
	}
	whole.Summary.Text = fmt.Sprintf("%s, %d of them no", statuspage.FormatCount(len(e.Steps), "step", "steps"), no)
	i.Items = append(i.Items, whole)
}

func step(s *roster.Step) statuspage.Line {
	line := statuspage.Line{Text: s.Question + ": " + s.Saw}
	if strings.HasSuffix(s.Question, "?") {
		line.Text = s.Question + " (" + s.Saw + ")"
	}
	switch s.Result {
	case roster.Passed:
		line.Text = "ok: " + line.Text
	case roster.Failed:
		line = statuspage.Line{Severity: statuspage.Error, Text: "no: " + line.Text}
	case roster.Skipped:
		line.Text = "skipped: " + line.Text
	}
	line.Text = statuspage.SafeText(line.Text)
	return line
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

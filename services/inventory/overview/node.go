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
		if all[i].Is.Grade != statuspage.None {
			left++
		}
	}
	for _, n := range m.Nodes {
		if n.State == roster.NotReady {
			unready++
		}
		all = append(all, m.node(n))
	}
	worst := statuspage.Look
	for i := range all {
		worst = statuspage.Worst(worst, all[i].Is.Grade)
	}
	if left > 0 {
		m.blamef(worst, "%s", statuspage.Count(left, "node is left out though it counts", "nodes are left out though they count"))
	}
	if unready > 0 {
		m.blamef(statuspage.Look, "%s not ready", areNodes(unready))
	}
	if m.asked == "" && m.Status.Observation > 0 && !slices.ContainsFunc(m.Nodes, func(n *roster.Node) bool { return n.State == roster.Ready }) {
		m.blamef(statuspage.Wrong, "no node is ready")
	}
	slices.SortStableFunc(all, func(a, b statuspage.Item) int {
		return cmp.Or(cmp.Compare(a.Is.Grade.Urgency(), b.Is.Grade.Urgency()), cmp.Compare(b2i(aside(&a)), b2i(aside(&b))))
	})
	if len(all) == 0 {
		text := "The source has told no node yet."
		if m.asked != "" {
			m.blamef(statuspage.Look, "there is no node of this name here")
			e, _ := m.Explain(m.asked)
			text = statuspage.Text(e.Verdict)
		}
		s.Lines = []statuspage.Line{statuspage.Say("%s", text)}
	}
	s.Items, s.LeftOut = m.detailed(all)
	return s
}

// detailed gives the first of the nodes their chains, as long as there is room.
func (m *model) detailed(all []statuspage.Item) (shown []statuspage.Item, left string) {
	room := statuspage.Room{Bytes: maxDetails}
	folded := 0
	shown = all[:min(len(all), maxNodes)]
	for n := range shown {
		if room.Bytes > 0 {
			whole := shown[n]
			m.chain(&whole)
			if m.asked != "" {
				whole.Ask = "" // it is asked for already
			}
			whole.Open = m.asked != "" || n < maxOpen && (whole.Is.Grade == statuspage.Wrong || whole.Is.Grade == statuspage.Look)
			if room.For(&whole) {
				shown[n] = whole
			}
		}
		if shown[n].Items == nil {
			folded++
		}
	}
	return shown, statuspage.LeftOut(folded, len(all)-len(shown), "nodes")
}

func (m *model) node(n *roster.Node) statuspage.Item {
	var addresses []string
	for _, a := range n.Addresses {
		addresses = append(addresses, a.String())
	}
	is := statuspage.Line{Grade: statuspage.Fine, Text: "ready"}
	switch n.State {
	case roster.Draining:
		is = statuspage.Line{Text: "draining"} // as nodes do that are about to be replaced
	case roster.NotReady:
		is = statuspage.Line{Grade: statuspage.Look, Text: "not ready"}
	}
	is.Text += " at " + strings.Join(addresses, ", ")
	also := "for " + statuspage.Age(m.at, n.Since)
	if n.Zone != "" {
		also += ", zone " + n.Zone
	}
	i := statuspage.Item{Name: statuspage.Text(n.Name), Ask: statuspage.Text(n.Name), Is: is, Also: statuspage.Text(also)}
	if n.ServerID != "" {
		i.Facts = []statuspage.Fact{{Name: "chain", Values: []statuspage.Line{{
			Text: statuspage.Text("Node " + n.Name + " → server " + n.ServerID + " → " + strings.Join(addresses, ", ")),
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
		i := statuspage.Item{Name: statuspage.Text(o.Name), Ask: statuspage.Text(o.Name)}
		switch o.Reason {
		case roster.ControlPlane, roster.ExcludedByLabel, roster.NotSelected:
			i.Is = statuspage.Line{Text: onPurpose + why}
		case roster.NotResolvedYet:
			i.Is = statuspage.Line{Grade: statuspage.Look, Text: "left out: " + why}
		default:
			i.Is = statuspage.Line{Grade: statuspage.Wrong, Text: "left out: " + why}
		}
		if o.Advice != "" {
			i.Lines = []statuspage.Line{{Text: statuspage.Text(o.Advice)}}
		}
		all = append(all, i)
	}
	return all
}

// aside reports whether a node is none of those that are to be told.
func aside(i *statuspage.Item) bool { return strings.HasPrefix(i.Is.Text, onPurpose) }

// chain adds how it came about that a node is told as it is, or left out.
func (m *model) chain(i *statuspage.Item) {
	e, known := m.Explain(i.Ask)
	if !known {
		return // it has gone meanwhile
	}
	if i.Lines == nil {
		i.Lines = []statuspage.Line{{Text: statuspage.Text(e.Verdict)}}
	}
	whole := statuspage.Item{Name: "the whole chain", Open: m.asked != ""}
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
	whole.Is.Text = fmt.Sprintf("%s, %d of them no", statuspage.Count(len(e.Steps), "step", "steps"), no)
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
		line = statuspage.Line{Grade: statuspage.Wrong, Text: "no: " + line.Text}
	case roster.Skipped:
		line.Text = "skipped: " + line.Text
	}
	line.Text = statuspage.Text(line.Text)
	return line
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

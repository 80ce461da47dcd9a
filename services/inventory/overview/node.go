package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// nodesSection is each node with the chain from what is said of it to what is told. Those that are left out
// though they count come first, those that are left out on purpose last.
func (m *pageBuilder) nodesSection() statuspage.Section {
	s := statuspage.Section{Title: "Nodes"}
	all, omitted, notReady := m.omittedItems(), 0, 0
	for i := range all {
		if all[i].Summary.Severity != statuspage.None {
			omitted++
		}
	}
	for _, n := range m.Nodes {
		if n.State == roster.NotReady {
			notReady++
		}
		all = append(all, m.nodeItem(n))
	}
	worst := statuspage.Warning
	for i := range all {
		worst = statuspage.MoreSevere(worst, all[i].Summary.Severity)
	}
	if omitted > 0 {
		m.addProblemf(worst, "%s", statuspage.FormatCount(omitted, "node is left out though it counts", "nodes are left out though they count"))
	}
	if notReady > 0 {
		m.addProblemf(statuspage.Warning, "%s not ready", countNodes(notReady))
	}
	if m.filter == "" && m.Status.Observation > 0 && !slices.ContainsFunc(m.Nodes, func(n *roster.Node) bool { return n.State == roster.Ready }) {
		m.addProblemf(statuspage.Error, "no node is ready")
	}
	slices.SortStableFunc(all, func(a, b statuspage.Item) int {
		return cmp.Or(cmp.Compare(a.Summary.Severity.Rank(), b.Summary.Severity.Rank()), cmp.Compare(boolToInt(isExcluded(&a)), boolToInt(isExcluded(&b))))
	})
	if len(all) == 0 {
		text := "The source has told no node yet."
		if m.filter != "" {
			m.addProblemf(statuspage.Warning, "there is no node of this name here")
			e, _ := m.Explain(m.filter)
			text = statuspage.SafeText(e.Verdict)
		}
		s.Lines = []statuspage.Line{statuspage.Linef("%s", text)}
	}
	s.Items, s.Omitted = m.addDetails(all)
	return s
}

// addDetails gives the first of the nodes their chains, as long as there is room.
func (m *pageBuilder) addDetails(all []statuspage.Item) (shown []statuspage.Item, left string) {
	budget := statuspage.Budget{Bytes: maxDetails}
	folded := 0
	shown = all[:min(len(all), maxNodes)]
	for n := range shown {
		if budget.Bytes > 0 {
			item := shown[n]
			m.addExplanation(&item)
			if m.filter != "" {
				item.Filter = "" // it is asked for already
			}
			item.Expanded = m.filter != "" || n < maxOpen && (item.Summary.Severity == statuspage.Error || item.Summary.Severity == statuspage.Warning)
			if budget.Reserve(&item) {
				shown[n] = item
			}
		}
		if shown[n].Items == nil {
			folded++
		}
	}
	return shown, statuspage.DescribeOmitted(folded, len(all)-len(shown), "nodes")
}

func (m *pageBuilder) nodeItem(n *roster.Node) statuspage.Item {
	var addresses []string
	for _, a := range n.Addresses {
		addresses = append(addresses, a.String())
	}
	summary := statuspage.Line{Severity: statuspage.OK, Text: "ready"}
	switch n.State {
	case roster.Draining:
		summary = statuspage.Line{Text: "draining"} // as nodes do that are about to be replaced
	case roster.NotReady:
		summary = statuspage.Line{Severity: statuspage.Warning, Text: "not ready"}
	}
	summary.Text += " at " + strings.Join(addresses, ", ")
	detail := "for " + statuspage.FormatAge(m.at, n.Since)
	if n.Zone != "" {
		detail += ", zone " + n.Zone
	}
	i := statuspage.Item{Name: statuspage.SafeText(n.Name), Filter: statuspage.SafeText(n.Name), Summary: summary, Detail: statuspage.SafeText(detail)}
	if n.ServerID != "" {
		i.Facts = []statuspage.Fact{{Name: "chain", Values: []statuspage.Line{{
			Text: statuspage.SafeText("Node " + n.Name + " → server " + n.ServerID + " → " + strings.Join(addresses, ", ")),
		}}}}
	}
	return i
}

const excludedPrefix = "left out on purpose: "

// omittedItems are the nodes that are left out.
func (m *pageBuilder) omittedItems() []statuspage.Item {
	all := make([]statuspage.Item, 0, len(m.Omitted)+len(m.Nodes))
	for _, o := range m.Omitted {
		why := strings.ToUpper(o.Reason.String())
		i := statuspage.Item{Name: statuspage.SafeText(o.Name), Filter: statuspage.SafeText(o.Name)}
		switch o.Reason {
		case roster.ControlPlane, roster.ExcludedByLabel, roster.NotSelected:
			i.Summary = statuspage.Line{Text: excludedPrefix + why}
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

// isExcluded reports whether a node is none of those that are to be told.
func isExcluded(i *statuspage.Item) bool { return strings.HasPrefix(i.Summary.Text, excludedPrefix) }

// addExplanation adds how it came about that a node is told as it is, or left out.
func (m *pageBuilder) addExplanation(i *statuspage.Item) {
	e, known := m.Explain(i.Filter)
	if !known {
		return // it has gone meanwhile
	}
	if i.Lines == nil {
		i.Lines = []statuspage.Line{{Text: statuspage.SafeText(e.Verdict)}}
	}
	steps := statuspage.Item{Name: "the whole chain", Expanded: m.filter != ""}
	failed := 0
	for n := range e.Steps {
		s := &e.Steps[n]
		if s.Result == roster.Failed {
			failed++
		}
		if n == 0 || s.Stage != e.Steps[n-1].Stage {
			steps.Facts = append(steps.Facts, statuspage.Fact{Name: s.Stage})
		}
		fact := &steps.Facts[len(steps.Facts)-1]
		fact.Values = append(fact.Values, stepLine(s))
	}
	steps.Summary.Text = fmt.Sprintf("%s, %d of them no", statuspage.FormatCount(len(e.Steps), "step", "steps"), failed)
	i.Items = append(i.Items, steps)
}

func stepLine(s *roster.Step) statuspage.Line {
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

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

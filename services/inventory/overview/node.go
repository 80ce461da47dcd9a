package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// nodesSection shows each node with its explanation: the eligible nodes that are omitted first, and
// the excluded ones last.
func (b *pageBuilder) nodesSection() statuspage.Section {
	s := statuspage.Section{Title: "Nodes"}
	all, omitted, notReady := b.omittedItems(), 0, 0
	for i := range all {
		if all[i].Summary.Severity != statuspage.None {
			omitted++
		}
	}
	for _, n := range b.Nodes {
		if n.State == source.NotReady {
			notReady++
		}
		all = append(all, b.nodeItem(n))
	}
	worst := statuspage.Warning
	for i := range all {
		worst = statuspage.MoreSevere(worst, all[i].Summary.Severity)
	}
	if omitted > 0 {
		b.addProblemf(worst, "%s", display.Count(omitted, "eligible node omitted", "eligible nodes omitted"))
	}
	if notReady > 0 {
		b.addProblemf(statuspage.Warning, "%s not ready", countNodes(notReady))
	}
	if b.filter == "" && b.Status.Observation > 0 && !slices.ContainsFunc(b.Nodes, func(n *roster.Node) bool { return n.State == source.Ready }) {
		b.addProblemf(statuspage.Error, "no node is ready")
	}
	slices.SortStableFunc(all, func(a, b statuspage.Item) int {
		return cmp.Or(cmp.Compare(a.Summary.Severity.Rank(), b.Summary.Severity.Rank()), cmp.Compare(boolToInt(isExcluded(&a)), boolToInt(isExcluded(&b))))
	})
	if len(all) == 0 {
		text := "The source has reported no nodes yet."
		if b.filter != "" {
			b.addProblemf(statuspage.Warning, "no node has this name")
			e, _ := b.Explain(b.filter)
			text = statuspage.SafeText(e.Conclusion)
		}
		s.Lines = []statuspage.Line{statuspage.Linef("%s", text)}
	}
	s.Items, s.Omitted = b.addDetails(all)
	return s
}

// addDetails adds explanations to the first nodes, as many as fit into the budget.
func (b *pageBuilder) addDetails(all []statuspage.Item) (shown []statuspage.Item, omitted string) {
	budget := statuspage.Budget{Bytes: maxDetails}
	withoutDetails := 0
	shown = all[:min(len(all), maxNodes)]
	for n := range shown {
		if budget.Bytes > 0 {
			item := shown[n]
			b.addExplanation(&item)
			if b.filter != "" {
				item.Filter = "" // the page shows only this node
			}
			item.Expanded = b.filter != "" || n < maxExpanded && (item.Summary.Severity == statuspage.Error || item.Summary.Severity == statuspage.Warning)
			if budget.Reserve(&item) {
				shown[n] = item
			}
		}
		if shown[n].Items == nil {
			withoutDetails++
		}
	}
	return shown, statuspage.DescribeOmitted(withoutDetails, len(all)-len(shown), "nodes")
}

func (b *pageBuilder) nodeItem(n *roster.Node) statuspage.Item {
	var addresses []string
	for _, a := range n.Addresses {
		addresses = append(addresses, a.String())
	}
	summary := statuspage.Line{Severity: statuspage.OK, Text: "ready"}
	switch n.State {
	case source.Draining:
		summary = statuspage.Line{Text: "draining"} // not a problem: upgrades replace nodes
	case source.NotReady:
		summary = statuspage.Line{Severity: statuspage.Warning, Text: "not ready"}
	}
	summary.Text += " at " + strings.Join(addresses, ", ")
	detail := "for " + statuspage.FormatAge(b.at, n.Since)
	if n.Zone != "" {
		detail += ", zone " + n.Zone
	}
	i := statuspage.Item{Name: statuspage.SafeText(n.Name), Filter: statuspage.SafeText(n.Name), Summary: summary, Detail: statuspage.SafeText(detail)}
	if n.ServerID != "" {
		i.Facts = []statuspage.Fact{{Name: "resolved", Values: []statuspage.Line{{
			Text: statuspage.SafeText("Node " + n.Name + " → server " + n.ServerID + " → " + strings.Join(addresses, ", ")),
		}}}}
	}
	return i
}

const excludedPrefix = "excluded: "

// omittedItems returns an item for each omitted node.
func (b *pageBuilder) omittedItems() []statuspage.Item {
	all := make([]statuspage.Item, 0, len(b.Omitted)+len(b.Nodes))
	for _, o := range b.Omitted {
		reason := strings.ToUpper(o.Reason.String())
		i := statuspage.Item{Name: statuspage.SafeText(o.Name), Filter: statuspage.SafeText(o.Name)}
		switch o.Reason {
		case source.ControlPlane, source.ExcludedByLabel, source.NotSelected:
			i.Summary = statuspage.Line{Text: excludedPrefix + reason}
		case source.NotResolvedYet:
			i.Summary = statuspage.Line{Severity: statuspage.Warning, Text: "omitted: " + reason}
		default:
			i.Summary = statuspage.Line{Severity: statuspage.Error, Text: "omitted: " + reason}
		}
		if o.Advice != "" {
			i.Lines = []statuspage.Line{{Text: statuspage.SafeText(o.Advice)}}
		}
		all = append(all, i)
	}
	return all
}

// isExcluded reports whether a node is not eligible: its omission is intended.
func isExcluded(i *statuspage.Item) bool { return strings.HasPrefix(i.Summary.Text, excludedPrefix) }

// addExplanation adds the steps that led to the publication or omission of a node.
func (b *pageBuilder) addExplanation(i *statuspage.Item) {
	e, known := b.Explain(i.Filter)
	if !known {
		return // removed since the page was started
	}
	if i.Lines == nil {
		i.Lines = []statuspage.Line{{Text: statuspage.SafeText(e.Conclusion)}}
	}
	steps := statuspage.Item{Name: "explanation", Expanded: b.filter != ""}
	failed := 0
	for n := range e.Steps {
		s := &e.Steps[n]
		if s.Result == source.Failed {
			failed++
		}
		if n == 0 || s.Stage != e.Steps[n-1].Stage {
			steps.Facts = append(steps.Facts, statuspage.Fact{Name: s.Stage})
		}
		fact := &steps.Facts[len(steps.Facts)-1]
		fact.Values = append(fact.Values, stepLine(s))
	}
	steps.Summary.Text = fmt.Sprintf("%s, %d failed", display.Count(len(e.Steps), "step", "steps"), failed)
	i.Items = append(i.Items, steps)
}

func stepLine(s *source.Step) statuspage.Line {
	line := statuspage.Line{Text: s.Question + ": " + s.Detail}
	if strings.HasSuffix(s.Question, "?") {
		line.Text = s.Question + " (" + s.Detail + ")"
	}
	switch s.Result {
	case source.Passed:
		line.Text = "ok: " + line.Text
	case source.Failed:
		line = statuspage.Line{Severity: statuspage.Error, Text: "failed: " + line.Text}
	case source.Skipped:
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

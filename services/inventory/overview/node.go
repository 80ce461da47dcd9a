package overview

import (
	"fmt"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// nodesSection shows each node with its explanation: the eligible nodes that are omitted first, and
// the excluded ones last.
func (b *pageBuilder) nodesSection() statuspage.Section {
	var excluded, all []statuspage.Item
	omitted, worst := 0, statuspage.Warning
	for _, o := range b.Omitted {
		i := omittedItem(o)
		if i.Summary.Severity == statuspage.None {
			excluded = append(excluded, i)
			continue
		}
		omitted, worst, all = omitted+1, statuspage.MoreSevere(worst, i.Summary.Severity), append(all, i)
	}
	notReady, anyReady := 0, false
	for _, n := range b.Nodes {
		if n.State == source.NotReady {
			notReady++
		}
		anyReady = anyReady || n.State == source.Ready
		all = append(all, b.nodeItem(n))
	}
	if omitted > 0 {
		b.addProblem(statuspage.Line{Severity: worst, Text: display.Count(omitted, "eligible node omitted", "eligible nodes omitted")})
	}
	if notReady > 0 {
		b.addProblem(statuspage.Warnf("%s not ready", display.Count(notReady, "node is", "nodes are")))
	}
	if b.filter == "" && b.Status.Observation > 0 && !anyReady {
		b.addProblem(statuspage.Errorf("no node is ready"))
	}
	statuspage.SortItems(all)
	all = append(all, excluded...)
	s := statuspage.Section{Name: "nodes", Title: "Nodes"}
	switch {
	case len(all) > 0:
		s.AddItems(all, maxNodes, "nodes", b.addExplanation)
	case b.filter != "":
		b.addProblem(statuspage.Warnf("no node has this name"))
		e, _ := b.Explain(b.filter)
		s.Lines = []statuspage.Line{{Text: e.Conclusion}}
	default:
		s.Lines = []statuspage.Line{statuspage.Linef("The source has reported no nodes yet.")}
	}
	return s
}

func (b *pageBuilder) nodeItem(n *roster.Node) statuspage.Item {
	var addresses []string
	for _, a := range n.Addresses {
		addresses = append(addresses, a.String())
	}
	at := strings.Join(addresses, ", ")
	i := statuspage.Item{Name: n.Name, Filter: n.Name, Detail: "for " + statuspage.FormatAge(b.at, n.Since)}
	i.Values = statuspage.Values{
		"published": true,
		"state":     strings.ToUpper(n.State.String()),
		"addresses": addresses,
		"zone":      n.Zone,
		"serverId":  n.ServerID,
	}
	i.Values.SetTime("since", n.Since)
	switch n.State {
	case source.Draining:
		i.Summary = statuspage.Linef("draining at %s", at) // not a problem: upgrades replace nodes
	case source.NotReady:
		i.Summary = statuspage.Warnf("not ready at %s", at)
	default:
		i.Summary = statuspage.OKf("ready at %s", at)
	}
	if n.Zone != "" {
		i.Detail += ", zone " + n.Zone
	}
	if n.Hostname != "" {
		i.Detail += ", hostname " + n.Hostname
		i.Values["hostname"] = n.Hostname
	}
	if len(n.Ports) > 0 {
		var ports []string
		for _, p := range n.Ports {
			ports = append(ports, p.String())
		}
		i.Detail += ", ports " + strings.Join(ports, ", ")
	}
	if n.ServerID != "" {
		i.AddFact("resolved", statuspage.Linef("Node %s → server %s → %s", n.Name, n.ServerID, at))
	}
	return i
}

// omittedItem returns the item of an omitted node. It has no severity if the omission is intended.
func omittedItem(o roster.Omission) statuspage.Item {
	i := statuspage.Item{Name: o.Name, Filter: o.Name}
	reason := strings.ToUpper(o.Reason.String())
	i.Values = statuspage.Values{"published": false, "reason": reason, "advice": o.Advice}
	switch o.Reason {
	case source.ControlPlane, source.ExcludedByLabel, source.NotSelected:
		i.Summary = statuspage.Linef("excluded: %s", reason)
	case source.NotResolvedYet:
		i.Summary = statuspage.Warnf("omitted: %s", reason)
	default:
		i.Summary = statuspage.Errorf("omitted: %s", reason)
	}
	if o.Advice != "" {
		i.Lines = []statuspage.Line{{Text: o.Advice}}
	}
	return i
}

// addExplanation adds the steps that led to the publication or omission of a node.
func (b *pageBuilder) addExplanation(nth int, i *statuspage.Item) {
	severity := i.Summary.Severity
	i.Expanded = b.filter != "" || nth < maxExpanded && (severity == statuspage.Error || severity == statuspage.Warning)
	e, known := b.Explain(i.Name)
	if b.filter != "" {
		i.Filter = "" // the page shows only this node
	}
	if !known {
		return // removed since the page was started
	}
	if i.Lines == nil {
		i.Lines = []statuspage.Line{{Text: e.Conclusion}}
	}
	steps, failed := statuspage.Item{Name: "explanation", Expanded: b.filter != ""}, 0
	for _, s := range e.Steps {
		steps.AddFact(s.Stage, stepLine(s))
		if s.Result == source.Failed {
			failed++
		}
	}
	steps.Summary = statuspage.Linef("%s, %d failed", display.Count(len(e.Steps), "step", "steps"), failed)
	i.Items = []statuspage.Item{steps}
}

func stepLine(s source.Step) statuspage.Line {
	text := s.Question + ": " + s.Detail
	if strings.HasSuffix(s.Question, "?") {
		text = fmt.Sprintf("%s (%s)", s.Question, s.Detail)
	}
	switch s.Result {
	case source.Passed:
		return statuspage.Linef("ok: %s", text)
	case source.Failed:
		return statuspage.Errorf("failed: %s", text)
	case source.Skipped:
		return statuspage.Linef("skipped: %s", text)
	default:
		return statuspage.Linef("%s", text)
	}
}

// Package overview builds the inventory's status page: the state of its source, each node with the
// steps that led to its publication or omission, the subscribers, and the use of the IONOS API. It
// guarantees that the page is bounded whatever the state, and that the most severe problems come
// first. It does not decide anything about a node, nor does it render the page.
package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// Config holds the inputs of the page.
type Config struct {
	Version, Instance string // of this replica
	Kind              string // SOURCE_KIND

	ReadData    func() collector.Snapshot
	Explain     func(name string) (e roster.Explanation, known bool)
	Subscribers func() []nodeserver.Subscriber
	Cloud       Cloud // nil if addresses come from elsewhere
}

// Cloud reports the request budget and the token of the IONOS API.
type Cloud interface {
	Budget() ionos.Budget
	TokenExpiry() (at time.Time, known bool, err error)
}

// Limits of a page. The page states how much it omits.
const (
	maxNodes       = 1000
	maxExpanded    = 5 // nodes with a problem whose details are visible at first
	maxSubscribers = 200
	maxDetails     = 4 << 20 // bytes of the nodes' details
)

// Page returns the page at this time. Filter is the name of the only node to show, or empty.
func (c *Config) Page(at time.Time, filter string) statuspage.Page {
	b := pageBuilder{Config: c, Snapshot: c.ReadData(), at: at, filter: filter}
	if filter != "" {
		b.Nodes = slices.DeleteFunc(b.Nodes, func(n *roster.Node) bool { return n.Name != filter })
		b.Omitted = slices.DeleteFunc(b.Omitted, func(o roster.Omission) bool { return o.Name != filter })
	}
	p := statuspage.Page{
		Component: "slicefeed-inventory", Version: statuspage.SafeText(c.Version), Instance: statuspage.SafeText(c.Instance), At: at, Filter: statuspage.SafeText(filter),
	}
	source, nodes, subscribers := b.sourceSection(), b.nodesSection(), b.subscribersSection()
	p.Sections = []statuspage.Section{source, nodes, subscribers}
	if c.Cloud != nil {
		p.Sections = append(p.Sections, b.cloudSection())
	}
	p.Summary = b.headline()
	return p
}

// pageBuilder builds one page, and collects the problems for its headline.
type pageBuilder struct {
	*Config
	collector.Snapshot

	at     time.Time
	filter string

	problems, warnings []string // for the headline
}

func (b *pageBuilder) addProblemf(severity statuspage.Severity, format string, args ...any) {
	switch text := fmt.Sprintf(format, args...); severity {
	case statuspage.Error:
		b.problems = append(b.problems, text)
	case statuspage.Warning:
		b.warnings = append(b.warnings, text)
	}
}

// headline summarizes the page in one sentence.
func (b *pageBuilder) headline() statuspage.Line {
	line := statuspage.Line{Severity: statuspage.OK, Text: display.Count(len(b.Nodes), "node", "nodes") + " published."}
	texts := slices.Concat(b.problems, b.warnings)
	if len(texts) > 0 {
		line.Severity = statuspage.Warning
		line.Text = strings.ToUpper(texts[0][:1]) + strings.Join(texts, ", ")[1:] + "."
	}
	if len(b.problems) > 0 {
		line.Severity = statuspage.Error
	}
	return line
}

func countNodes(n int) string { return display.Count(n, "node is", "nodes are") }

// sourceSection shows the sync state of the source's parts.
func (b *pageBuilder) sourceSection() statuspage.Section {
	s := statuspage.Section{Title: "Source"}
	t := &statuspage.Table{Columns: []string{"part", "state", "for", "reason"}}
	parts := []struct {
		name, verb string
		part       source.PartStatus
	}{{"membership", "is", b.Status.Membership}, {"addresses", "are", b.Status.Addresses}}
	reasons := false
	for _, p := range parts {
		severity := map[source.SyncState]statuspage.Severity{source.Synced: statuspage.OK, source.Degraded: statuspage.Warning}[p.part.Sync]
		if severity == statuspage.None {
			severity = statuspage.Error
		}
		if severity != statuspage.OK {
			b.addProblemf(severity, "%s %s %s", p.name, p.verb, p.part.Sync)
		}
		age := ""
		if !p.part.Since.IsZero() {
			age = statuspage.FormatAge(b.at, p.part.Since)
		}
		reasons = reasons || p.part.Reason != ""
		t.Rows = append(t.Rows, []statuspage.Line{{Text: p.name}, {Severity: severity, Text: p.part.Sync.String()}, {Text: age}, {Text: statuspage.SafeText(p.part.Reason)}})
	}
	if !reasons {
		t.Columns = t.Columns[:3]
		for i := range t.Rows {
			t.Rows[i] = t.Rows[i][:3]
		}
	}
	s.Table = t
	if b.Status.Observation == 0 {
		s.Lines = append(s.Lines, statuspage.Line{Severity: statuspage.Error, Text: "No complete observation yet: nothing is published."})
	} else {
		s.Lines = append(s.Lines, statuspage.Linef("SOURCE_KIND is %s. Observation %d was complete %s ago.",
			b.Kind, b.Status.Observation, statuspage.FormatAge(b.at, b.Status.ObservedAt)))
	}
	if b.Status.Observation > 0 && !b.Status.Publishable {
		s.Lines = append(s.Lines, statuspage.Line{Severity: statuspage.Warning, Text: "Not published yet: subscribers keep their current set."})
	}
	var ports []string
	for _, p := range b.Status.Ports {
		ports = append(ports, strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Number, p.Protocol)))
	}
	if ports != nil {
		s.Lines = append(s.Lines, statuspage.Linef("The source's endpoints use the ports %s.", statuspage.SafeText(strings.Join(ports, ", "))))
	}
	return s
}

// subscribersSection shows the subscribers and their lag.
func (b *pageBuilder) subscribersSection() statuspage.Section {
	s := statuspage.Section{Title: "Subscribers"}
	all := b.Subscribers()
	if len(all) == 0 {
		// Not a problem of the page: a writer subscribes to one replica of the inventory.
		s.Lines = []statuspage.Line{{Severity: statuspage.Warning, Text: "No subscribers. Unless another replica has them, check INVENTORY_ADDRESS at the writer and its SAN in ALLOWED_CLIENTS_FILE."}}
		return s
	}
	t := &statuspage.Table{Columns: []string{"client", "view", "for", "lag"}}
	slow := 0
	for i := range all {
		row, isSlow := b.subscriberRow(&all[i])
		if isSlow {
			slow++
		}
		if len(t.Rows) < maxSubscribers {
			t.Rows = append(t.Rows, row)
		}
	}
	if slow > 0 {
		b.addProblemf(statuspage.Warning, "%s slow", display.Count(slow, "subscriber is", "subscribers are"))
	}
	s.Table = t
	if n := len(all) - len(t.Rows); n > 0 {
		s.Omitted = fmt.Sprintf("%d more not shown.", n)
	}
	return s
}

// lagThreshold is how long a subscriber may read nothing: three heartbeat intervals of 5 s.
const lagThreshold = 15 * time.Second

func (b *pageBuilder) subscriberRow(sub *nodeserver.Subscriber) (row []statuspage.Line, slow bool) {
	view := "all nodes"
	if sel := sub.View.Selector; sel != nil && !sel.Empty() {
		view = statuspage.SafeText(sel.String())
	}
	if sub.Operator {
		view += ", operator"
	}
	lag := statuspage.Line{Severity: statuspage.OK, Text: "none"}
	read := cmp.Or(sub.LastSentAt, sub.Since)
	idle := "has read nothing for " + statuspage.FormatAge(b.at, read)
	switch {
	case b.at.Sub(read) > lagThreshold:
		slow = true
		lag = statuspage.Line{Severity: statuspage.Warning, Text: idle}
	case !sub.Synced:
		lag = statuspage.Line{Text: "waiting for first publication"}
	}
	if sub.Lag > 0 {
		lag = statuspage.Line{Severity: lag.Severity, Text: display.Count(int(min(sub.Lag, 1<<30)), "change", "changes")}
	}
	if slow && sub.Lag > 0 {
		lag.Text += ", " + idle
	}
	return []statuspage.Line{{Text: statuspage.SafeText(sub.Name)}, {Text: view}, {Text: statuspage.FormatAge(b.at, sub.Since)}, lag}, slow
}

// Package overview is what the inventory shows people of itself: what its sources are worth, each
// node with the chain from what is said of it to what is told, who is told, and what the cloud's API
// costs. It promises to be bounded whatever there is, and to put the worst on top. It refuses to
// judge a node, and to know how it is shown.
package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Config is what the overview is made from.
type Config struct {
	Version, Instance string // which replica this is
	Kind              string // SOURCE_KIND

	ReadState   func() State
	Explain     func(name string) (e roster.Explanation, known bool)
	Subscribers func() []nodeserver.Subscriber
	Cloud       Cloud // nil: none is needed
}

// Cloud says what the cloud's API costs.
type Cloud interface {
	Budget() ionos.Budget
	TokenExpiry() (at time.Time, known bool, err error)
}

// State is what the roster says at a moment.
type State struct {
	Status  roster.Status
	Nodes   []*roster.Node // by name
	Omitted []roster.Omission
	Listing Listing
}

// Listing is the last listing of the cloud.
type Listing struct {
	StartedAt time.Time // when it began; zero: there was none
	Duration  time.Duration
	Servers   int
	Err       error // why it gave nothing
}

// What a page shows at most. Beyond that it says how much is left out.
const (
	maxNodes       = 1000
	maxOpen        = 5
	maxSubscribers = 200
	maxDetails     = 4 << 20 // bytes of the nodes' details
)

// Page looks around. Asked is a node's name, to see that one alone, or empty.
func (c *Config) Page(at time.Time, filter string) statuspage.Page {
	b := pageBuilder{Config: c, State: c.ReadState(), at: at, filter: filter}
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

// pageBuilder is a page in the making.
type pageBuilder struct {
	*Config
	State

	at     time.Time
	filter string

	problems, warnings []string // what is to be said on top
}

func (m *pageBuilder) addProblemf(g statuspage.Severity, format string, args ...any) {
	switch text := fmt.Sprintf(format, args...); g {
	case statuspage.Error:
		m.problems = append(m.problems, text)
	case statuspage.Warning:
		m.warnings = append(m.warnings, text)
	}
}

// headline says in a sentence whether all is well.
func (m *pageBuilder) headline() statuspage.Line {
	line := statuspage.Line{Severity: statuspage.OK, Text: fmt.Sprintf("All is well: %s told.", countNodes(len(m.Nodes)))}
	texts := slices.Concat(m.problems, m.warnings)
	if len(texts) > 0 {
		line.Severity = statuspage.Warning
		line.Text = strings.ToUpper(texts[0][:1]) + strings.Join(texts, ", ")[1:] + "."
	}
	if len(m.problems) > 0 {
		line.Severity = statuspage.Error
	}
	return line
}

func countNodes(n int) string { return statuspage.FormatCount(n, "node is", "nodes are") }

// sourceSection says what the roster is worth.
func (m *pageBuilder) sourceSection() statuspage.Section {
	s := statuspage.Section{Title: "Source"}
	t := &statuspage.Table{Columns: []string{"part", "state", "for", "why"}}
	parts := []struct {
		name, is string
		part     roster.Part
	}{{"membership", "is", m.Status.Membership}, {"addresses", "are", m.Status.Addresses}}
	reasons := false
	for _, p := range parts {
		grade := map[roster.Sync]statuspage.Severity{roster.Synced: statuspage.OK, roster.Degraded: statuspage.Warning}[p.part.Sync]
		if grade == statuspage.None {
			grade = statuspage.Error
		}
		if grade != statuspage.OK {
			m.addProblemf(grade, "%s %s %s", p.name, p.is, p.part.Sync)
		}
		age := ""
		if !p.part.Since.IsZero() {
			age = statuspage.FormatAge(m.at, p.part.Since)
		}
		reasons = reasons || p.part.Reason != ""
		t.Rows = append(t.Rows, []statuspage.Line{{Text: p.name}, {Severity: grade, Text: p.part.Sync.String()}, {Text: age}, {Text: statuspage.SafeText(p.part.Reason)}})
	}
	if !reasons {
		t.Columns = t.Columns[:3]
		for i := range t.Rows {
			t.Rows[i] = t.Rows[i][:3]
		}
	}
	s.Table = t
	if m.Status.Observation == 0 {
		s.Lines = append(s.Lines, statuspage.Line{Severity: statuspage.Error, Text: "There was no complete observation yet, so nobody is told anything."})
	} else {
		s.Lines = append(s.Lines, statuspage.Linef("The nodes are those of SOURCE_KIND=%s. Observation %d, of everything, was complete %s ago.",
			m.Kind, m.Status.Observation, statuspage.FormatAge(m.at, m.Status.ObservedAt)))
	}
	if m.Status.Observation > 0 && !m.Status.Told {
		s.Lines = append(s.Lines, statuspage.Line{Severity: statuspage.Warning, Text: "The first word is not given yet: subscribers keep what they have."})
	}
	var ports []string
	for _, p := range m.Status.Ports {
		ports = append(ports, strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Number, p.Protocol)))
	}
	if ports != nil {
		s.Lines = append(s.Lines, statuspage.Linef("The source's own endpoints have the ports %s.", statuspage.SafeText(strings.Join(ports, ", "))))
	}
	return s
}

// subscribersSection says who is told, and how far.
func (m *pageBuilder) subscribersSection() statuspage.Section {
	s := statuspage.Section{Title: "Subscribers"}
	all := m.Subscribers()
	if len(all) == 0 {
		m.addProblemf(statuspage.Warning, "nobody subscribes")
		s.Lines = []statuspage.Line{statuspage.Linef("Nobody subscribes at present. Is this inventory's address that of the writer's INVENTORY_ADDRESS, and its SAN in ALLOWED_CLIENTS_FILE?")}
		return s
	}
	t := &statuspage.Table{Columns: []string{"client", "view", "for", "lag"}}
	slow := 0
	for i := range all {
		row, isSlow := m.subscriberRow(&all[i])
		if isSlow {
			slow++
		}
		if len(t.Rows) < maxSubscribers {
			t.Rows = append(t.Rows, row)
		}
	}
	if slow > 0 {
		m.addProblemf(statuspage.Warning, "%s slow", statuspage.FormatCount(slow, "subscriber is", "subscribers are"))
	}
	s.Table = t
	if n := len(all) - len(t.Rows); n > 0 {
		s.Omitted = fmt.Sprintf("%d more are left out.", n)
	}
	return s
}

// lagThreshold is how long a subscriber may not have read anything: heartbeats come every 5 s.
const lagThreshold = 15 * time.Second

func (m *pageBuilder) subscriberRow(sub *nodeserver.Subscriber) (row []statuspage.Line, slow bool) {
	view := "all nodes"
	if sel := sub.View.Selector; sel != nil && !sel.Empty() {
		view = statuspage.SafeText(sel.String())
	}
	if sub.Operator {
		view += ", operator"
	}
	lag := statuspage.Line{Severity: statuspage.OK, Text: "none"}
	read := cmp.Or(sub.LastSentAt, sub.Since)
	idle := "has read nothing for " + statuspage.FormatAge(m.at, read)
	switch {
	case m.at.Sub(read) > lagThreshold:
		slow = true
		lag = statuspage.Line{Severity: statuspage.Warning, Text: idle}
	case !sub.Synced:
		lag = statuspage.Line{Text: "waits for the first word"}
	}
	if sub.Lag > 0 {
		lag = statuspage.Line{Severity: lag.Severity, Text: statuspage.FormatCount(int(min(sub.Lag, 1<<30)), "change", "changes")}
	}
	if slow && sub.Lag > 0 {
		lag.Text += ", " + idle
	}
	return []statuspage.Line{{Text: statuspage.SafeText(sub.Name)}, {Text: view}, {Text: statuspage.FormatAge(m.at, sub.Since)}, lag}, slow
}

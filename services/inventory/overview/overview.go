// Package overview builds the inventory's status page: the state of its source, each node with the
// steps that led to its publication or omission, the subscribers, and the use of the IONOS API. It
// guarantees that the page is bounded whatever the state, and that the most severe problems come
// first. It does not decide anything about a node, nor does it render the page.
package overview

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/clientlist"
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

// Limits of a page, which states how much it omits.
const (
	maxNodes       = 1000
	maxExpanded    = 5 // nodes with a problem whose details are visible at first
	maxSubscribers = 200
)

// Page returns the page at this time. Filter is the name of the only node to show, or empty.
func (c *Config) Page(at time.Time, filter string) statuspage.Page {
	b := pageBuilder{Config: c, Snapshot: c.ReadData(), at: at, filter: filter}
	if filter != "" {
		b.Nodes = slices.DeleteFunc(b.Nodes, func(n *roster.Node) bool { return n.Name != filter })
		b.Omitted = slices.DeleteFunc(b.Omitted, func(o roster.Omission) bool { return o.Name != filter })
	}
	sections := []statuspage.Section{b.sourceSection(), b.nodesSection(), b.subscribersSection()}
	if c.Cloud != nil {
		sections = append(sections, b.cloudSection())
	}
	return statuspage.Page{
		Component: "slicefeed-inventory", Version: c.Version, Instance: c.Instance, At: at, Filter: filter,
		Sections: sections,
		Summary:  statuspage.Headline(b.problems, statuspage.OKf("%s published.", display.Count(len(b.Nodes), "node", "nodes"))),
	}
}

// pageBuilder builds one page, and collects the problems for its headline.
type pageBuilder struct {
	*Config
	collector.Snapshot

	at     time.Time
	filter string

	problems []statuspage.Line // for the headline
}

// addProblem adds a line to the headline if it is a problem.
func (b *pageBuilder) addProblem(line statuspage.Line) {
	if line.Severity == statuspage.Error || line.Severity == statuspage.Warning {
		b.problems = append(b.problems, line)
	}
}

// sourceSection shows the sync state of the source's parts.
func (b *pageBuilder) sourceSection() statuspage.Section {
	t := &statuspage.Table{Columns: []string{"part", "state", "for", "reason"}}
	addPart := func(name, verb string, part source.PartStatus) {
		state := statuspage.Errorf("%s", part.Sync)
		switch part.Sync {
		case source.Synced:
			state.Severity = statuspage.OK
		case source.Degraded:
			state.Severity = statuspage.Warning
		}
		b.addProblem(statuspage.Line{Severity: state.Severity, Text: name + " " + verb + " " + state.Text})
		age := ""
		if !part.Since.IsZero() {
			age = statuspage.FormatAge(b.at, part.Since)
		}
		values := statuspage.Values{"part": name, "state": part.Sync.String(), "reason": part.Reason}
		values.SetTime("since", part.Since)
		t.Rows, t.Values = append(
			t.Rows,
			[]statuspage.Line{{Text: name}, state, {Text: age}, {Text: part.Reason}},
		), append(
			t.Values,
			values,
		)
	}
	addPart("membership", "is", b.Status.Membership)
	addPart("addresses", "are", b.Status.Addresses)
	t.DropEmptyColumn()
	s := statuspage.Section{Name: "source", Title: "Source", Table: t}
	if b.Status.Observation == 0 {
		s.Lines = append(s.Lines, statuspage.Errorf("No complete observation yet: nothing is published."))
	} else {
		s.Lines = append(s.Lines, statuspage.Linef("SOURCE_KIND is %s. Observation %d was complete %s ago.",
			b.Kind, b.Status.Observation, statuspage.FormatAge(b.at, b.Status.ObservedAt)))
		if !b.Status.Publishable {
			s.Lines = append(s.Lines, statuspage.Warnf("Not published yet: subscribers keep their current set."))
		}
	}
	return s
}

// lagThreshold is how long a subscriber may read nothing: three heartbeat intervals of 5 s.
const lagThreshold = 15 * time.Second

// subscribersSection shows the subscribers and their lag.
func (b *pageBuilder) subscribersSection() statuspage.Section {
	all := b.Subscribers()
	if len(all) == 0 {
		// Not a problem of the page: a writer subscribes to one replica of the inventory.
		return statuspage.Section{Name: "subscribers", Title: "Subscribers", Lines: []statuspage.Line{statuspage.Warnf(
			"No subscribers. Unless another replica has them, check INVENTORY_ADDRESS at the writer and its SAN in ALLOWED_CLIENTS_FILE.")}}
	}
	t := &statuspage.Table{Columns: []string{"client", "role", "for", "lag"}}
	slow := 0
	for i := range all {
		sub := &all[i]
		lag := b.describeLag(sub)
		if lag.Severity == statuspage.Warning {
			slow++
		}
		role := clientlist.RoleSubscriber
		if sub.Operator {
			role = clientlist.RoleOperator
		}
		values := statuspage.Values{"client": sub.Name, "role": role, "synced": sub.Synced, "lag": int(min(sub.Lag, 1<<30))}
		values.SetTime("since", sub.Since)
		values.SetTime("lastSentAt", sub.LastSentAt)
		t.Rows = append(
			t.Rows,
			[]statuspage.Line{{Text: sub.Name}, {Text: string(role)}, {Text: statuspage.FormatAge(b.at, sub.Since)}, lag},
		)
		t.Values = append(t.Values, values)
	}
	if slow > 0 {
		b.addProblem(statuspage.Warnf("%s slow", display.Count(slow, "subscriber is", "subscribers are")))
	}
	s := statuspage.Section{Name: "subscribers", Title: "Subscribers", Table: t}
	if n := len(all) - maxSubscribers; n > 0 {
		t.Rows, t.Values = t.Rows[:maxSubscribers], t.Values[:maxSubscribers]
		s.Omitted = fmt.Sprintf("%d more not shown.", n)
	}
	return s
}

// describeLag returns what was not sent to a subscriber yet; a warning if it reads nothing.
func (b *pageBuilder) describeLag(sub *nodeserver.Subscriber) statuspage.Line {
	lag := statuspage.OKf("none")
	if sub.Lag > 0 {
		lag = statuspage.OKf("%s", display.Count(int(min(sub.Lag, 1<<30)), "change", "changes"))
	}
	lastRead := cmp.Or(sub.LastSentAt, sub.Since)
	switch idle := "has read nothing for " + statuspage.FormatAge(b.at, lastRead); {
	case b.at.Sub(lastRead) > lagThreshold && sub.Lag > 0:
		return statuspage.Warnf("%s, %s", lag.Text, idle)
	case b.at.Sub(lastRead) > lagThreshold:
		return statuspage.Warnf("%s", idle)
	case !sub.Synced && sub.Lag == 0:
		return statuspage.Linef("waiting for first publication")
	default:
		return lag
	}
}

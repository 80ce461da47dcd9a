// Package overview builds the writer's status page: each Service, whether it is healthy and why each of
// its endpoints is as it is, the status of the sources, and the last writes and Events. It guarantees a
// bounded size and lists problems first. It does not decide anything, and does not know how the page is
// rendered.
package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/history"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// Config is what the page is built from.
type Config struct {
	Store    *endpoints.Store
	History  *history.Log
	Sources  func() []subscriber.Snapshot
	Leading  func() bool
	Holder   func() string // the known holder of the Lease; nil: dry run, without a Lease
	Version  string
	Instance string // name of this replica
}

// Page builds the status page. The filter is NAMESPACE/SERVICE for one Service, NAMESPACE/ for a
// namespace, or empty.
func (c Config) Page(at time.Time, filter string) statuspage.Page {
	m := pageModel{
		At: at, Version: c.Version, Instance: c.Instance, Leading: c.Leading(), DryRun: c.Holder == nil, Filter: filter, Sources: c.Sources(),
	}
	slices.SortFunc(m.Sources, func(a, b subscriber.Snapshot) int { return cmp.Compare(a.Source, b.Source) })
	var name endpoints.ServiceName
	var names []endpoints.ServiceName
	if filter != "" {
		name.Namespace, name.Service, _ = strings.Cut(filter, "/")
		names = []endpoints.ServiceName{name}
	}
	m.Services, m.Status = c.Store.Views(endpoints.SelectServices(names))
	m.Writes, m.Events = c.History.Recent(func(namespace, service string) bool {
		return filter == "" || namespace == name.Namespace && (name.Service == "" || service == name.Service)
	})
	if !m.DryRun {
		m.Holder = c.Holder()
	}
	return m.Page()
}

// pageModel is the content of a page.
type pageModel struct {
	At       time.Time
	Version  string
	Instance string // name of this replica
	Leading  bool
	Holder   string // holder of the Lease; empty: unknown
	DryRun   bool   // decisions are never sent
	Filter   string // NAMESPACE/SERVICE or NAMESPACE/; empty: all

	Services []endpoints.TargetView
	Status   endpoints.Status
	Sources  []subscriber.Snapshot // by name
	Writes   []history.Write       // newest first
	Events   []history.Event       // newest first
}

// Limits of a page. It states how much is omitted.
const (
	maxRows      = 1000    // Services
	maxAddresses = 100     // of a Service
	maxReports   = 4       // of an address
	maxGuards    = 20      // of a Service
	maxExpanded  = 5       // expanded Services, and expanded addresses of each
	maxHistory   = 20      // writes, and Events
	maxDetails   = 4 << 20 // bytes of the Services' details
)

// Page renders the model; equal models give equal pages.
func (m *pageModel) Page() statuspage.Page {
	rows, unhealthy, warnings := m.serviceRows()
	sources, untrusted := m.sourceSection()
	p := statuspage.Page{
		Component: "slicefeed-writer", Version: statuspage.SafeText(m.Version), Instance: statuspage.SafeText(m.Instance), At: m.At, Filter: statuspage.SafeText(m.Filter),
		Summary: m.headline(len(rows), unhealthy, warnings, untrusted), Lines: m.roleLines(),
		Sections: []statuspage.Section{m.serviceSection(rows), sources, m.writeSection(), m.eventSection()},
	}
	return p
}

// headline summarizes the page in one line.
func (m *pageModel) headline(total, unhealthy, warnings int, untrusted []string) statuspage.Line {
	line := statuspage.Line{Severity: statuspage.OK}
	var parts []string
	if unhealthy > 0 {
		line.Severity = statuspage.Error
		parts = append(parts, fmt.Sprintf("%d of %s unhealthy", unhealthy, display.Count(total, "Service", "Services")))
	}
	if warnings > 0 {
		line.Severity = statuspage.MoreSevere(line.Severity, statuspage.Warning)
		parts = append(parts, fmt.Sprintf("%d with warnings", warnings))
	}
	if n := m.Status.Held; n > 0 {
		parts = append(parts, display.Count(n, "change", "changes")+" held by guards")
	}
	for _, name := range untrusted {
		line.Severity = statuspage.Error
		parts = append(parts, "source "+name+" is not trusted")
	}
	switch {
	case len(parts) > 0:
		line.Text = strings.ToUpper(parts[0][:1]) + strings.Join(parts, ", ")[1:] + "."
	case total == 0 && m.Filter != "":
		line = statuspage.Line{Severity: statuspage.Warning, Text: "No such target."}
	case total == 0:
		line = statuspage.Line{Severity: statuspage.Warning, Text: "No targets."}
	case total == 1:
		line.Text = "Service healthy."
	default:
		line.Text = fmt.Sprintf("All %d Services healthy.", total)
	}
	return line
}

// roleLines states whether this writer leads, and whether its initial sync is complete.
func (m *pageModel) roleLines() []statuspage.Line {
	var all []statuspage.Line
	switch {
	case m.DryRun:
		all = append(all, statuspage.Linef("Dry run: nothing is written."))
	case m.Leading:
		all = append(all, statuspage.Linef("Leader: decisions are written."))
	default:
		all = append(all, statuspage.Linef("Standby: %s writes; see its status page.",
			statuspage.SafeText(cmp.Or(m.Holder, "the leader"))))
	}
	if !m.Status.Synced {
		all = append(all, statuspage.Line{
			Severity: statuspage.Warning,
			Text:     "Initial sync incomplete: Services may be missing.",
		})
	}
	return all
}

// serviceSection lists each Service, with its details as long as the size limit allows.
func (m *pageModel) serviceSection(rows []serviceRow) statuspage.Section {
	s := statuspage.Section{Title: "Services"}
	if len(rows) == 0 {
		text := "No Service has this writer's class, or caches are not synced."
		if m.Filter != "" {
			text = "No such target. Check the class label of the Service, and that its namespace is watched."
		}
		s.Lines = []statuspage.Line{statuspage.Linef("%s", text)}
	}
	budget := statuspage.Budget{Bytes: maxDetails}
	withoutDetails := 0
	for nth := range rows[:min(len(rows), maxRows)] {
		item := rows[nth].item
		if budget.Bytes > 0 {
			if detailed := m.serviceItem(&rows[nth], nth); budget.Reserve(&detailed) {
				item = detailed
			}
		}
		if !item.HasDetails() {
			withoutDetails++
		}
		s.Items = append(s.Items, item)
	}
	s.Omitted = statuspage.DescribeOmitted(withoutDetails, len(rows)-len(s.Items), "Services")
	return s
}

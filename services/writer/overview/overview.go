// Package overview builds the writer's status page: each Service, whether it is healthy and why each of
// its endpoints is as it is, the status of the sources, and the last writes and Events. It guarantees a
// bounded size and lists problems first. It does not decide anything, and does not know how the page is
// rendered.
package overview

import (
	"cmp"
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
		At:       at,
		Version:  c.Version,
		Instance: c.Instance,
		Leading:  c.Leading(),
		DryRun:   c.Holder == nil,
		Filter:   filter,
		Sources:  c.Sources(),
	}
	slices.SortFunc(m.Sources, func(a, b subscriber.Snapshot) int { return cmp.Compare(a.FeedName(), b.FeedName()) })
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

// Limits of a page, which states how much it omits.
const (
	maxRows      = 1000 // Services
	maxAddresses = 100  // of a Service
	maxReports   = 4    // of an address
	maxGuards    = 20   // of a Service
	maxExpanded  = 5    // expanded Services, and expanded addresses of each
	maxHistory   = 20   // writes, and Events
)

// Page renders the model; equal models give equal pages.
func (m *pageModel) Page() statuspage.Page {
	services, unhealthy, warnings := m.serviceSection()
	sources, untrusted := m.sourceSection()
	return statuspage.Page{
		Component: "slicefeed-writer", Version: m.Version, Instance: m.Instance, At: m.At, Filter: m.Filter,
		Summary: m.headline(unhealthy, warnings, untrusted), Lines: m.roleLines(),
		Sections: []statuspage.Section{services, sources, m.writeSection(), m.eventSection()},
	}
}

// headline summarizes the page in one line.
func (m *pageModel) headline(unhealthy, warnings int, untrusted []string) statuspage.Line {
	total := len(m.Services)
	var problems []statuspage.Line
	if unhealthy > 0 {
		problems = append(problems, statuspage.Errorf("%d of %s unhealthy", unhealthy, display.Count(total, "Service", "Services")))
	}
	if warnings > 0 {
		problems = append(problems, statuspage.Warnf("%d with warnings", warnings))
	}
	if n := m.Status.Held; n > 0 {
		problems = append(problems, statuspage.OKf("%s held by guards", display.Count(n, "change", "changes")))
	}
	for _, name := range untrusted {
		problems = append(problems, statuspage.Errorf("source %s is not trusted", name))
	}
	healthy := statuspage.OKf("All %d Services healthy.", total)
	switch {
	case total == 0 && m.Filter != "":
		healthy = statuspage.Warnf("No such target.")
	case total == 0:
		healthy = statuspage.Warnf("No targets.")
	case total == 1:
		healthy = statuspage.OKf("Service healthy.")
	}
	return statuspage.Headline(problems, healthy)
}

// roleLines states whether this writer leads, and whether its initial sync is complete.
func (m *pageModel) roleLines() []statuspage.Line {
	line := statuspage.Linef("Standby: %s writes; see its status page.", cmp.Or(m.Holder, "the leader"))
	switch {
	case m.DryRun:
		line = statuspage.Linef("Dry run: nothing is written.")
	case m.Leading:
		line = statuspage.Linef("Leader: decisions are written.")
	}
	if m.Status.Synced {
		return []statuspage.Line{line}
	}
	return []statuspage.Line{line, statuspage.Warnf("Initial sync incomplete: Services may be missing.")}
}

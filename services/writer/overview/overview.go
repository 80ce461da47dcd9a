// Package overview is what the writer shows people of itself: each Service, whether it is right and
// why each of its endpoints is as it is, what its sources are worth, and what was written and told
// of late. It promises to be bounded whatever there is, and to put the worst on top. It refuses to
// say what nobody knows, and to know how it is shown.
package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/history"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// Config is what the overview is made from.
type Config struct {
	Store    *endpoints.Store
	History  *history.Log
	Sources  func() []subscriber.Snapshot
	Leading  func() bool
	Holder   func() string // who holds the Lease, as far as is known; nil: there is no Lease, and nothing is sent
	Version  string
	Instance string // which replica this is
}

// Page looks around. Asked is NAMESPACE/SERVICE, to see that one alone, NAMESPACE/, or empty.
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

// pageModel is what there is to show at a moment.
type pageModel struct {
	At       time.Time
	Version  string
	Instance string // which replica this is
	Leading  bool
	Holder   string // who holds the Lease; empty: not known
	DryRun   bool   // what is decided is never sent
	Filter   string // NAMESPACE/SERVICE, the only one that is shown; empty: all

	Services []endpoints.TargetView
	Status   endpoints.Status
	Sources  []subscriber.Snapshot // by name
	Writes   []history.Write       // newest first
	Events   []history.Event       // newest first
}

// What a page shows at most. Beyond that it says how much is left out.
const (
	maxRows      = 1000    // Services
	maxAddresses = 100     // of a Service
	maxReports   = 4       // of an address
	maxGuards    = 20      // of a Service
	maxExpanded  = 5       // Services that are unfolded, and addresses of each
	maxHistory   = 20      // writes, and Events
	maxDetails   = 4 << 20 // bytes of the Services' details
)

// Page is the model as it is shown: the same each time.
func (m *pageModel) Page() statuspage.Page {
	rows, wrong, looks := m.serviceRows()
	sources, untrusted := m.sourceSection()
	p := statuspage.Page{
		Component: "slicefeed-writer", Version: statuspage.SafeText(m.Version), Instance: statuspage.SafeText(m.Instance), At: m.At, Filter: statuspage.SafeText(m.Filter),
		Summary: m.headline(len(rows), wrong, looks, untrusted), Lines: m.roleLines(),
		Sections: []statuspage.Section{m.serviceSection(rows), sources, m.writeSection(), m.eventSection()},
	}
	return p
}

// headline says in a sentence whether all is well.
func (m *pageModel) headline(total, wrong, looks int, untrusted []string) statuspage.Line {
	is := statuspage.Line{Severity: statuspage.OK}
	var said []string
	if wrong > 0 {
		is.Severity = statuspage.Error
		said = append(said, fmt.Sprintf("%d of %s wrong", wrong, areServices(wrong, total)))
	}
	if looks > 0 {
		is.Severity = statuspage.MoreSevere(is.Severity, statuspage.Warning)
		said = append(said, fmt.Sprintf("%d to look at", looks))
	}
	if n := m.Status.Held; n > 0 {
		said = append(said, statuspage.FormatCount(n, "change", "changes")+" held back")
	}
	for _, name := range untrusted {
		is.Severity = statuspage.Error
		said = append(said, "source "+name+" is not believed")
	}
	switch {
	case len(said) > 0:
		is.Text = strings.ToUpper(said[0][:1]) + strings.Join(said, ", ")[1:] + "."
	case total == 0 && m.Filter != "":
		is = statuspage.Line{Severity: statuspage.Warning, Text: "There is no such Service here."}
	case total == 0:
		is = statuspage.Line{Severity: statuspage.Warning, Text: "There is no Service to keep."}
	case total == 1:
		is.Text = "The one Service is right."
	default:
		is.Text = fmt.Sprintf("All %d Services are right.", total)
	}
	return is
}

func areServices(n, total int) string {
	of := statuspage.FormatCount(total, "Service", "Services")
	if n == 1 {
		return of + " is"
	}
	return of + " are"
}

// roleLines says what this writer's word is worth.
func (m *pageModel) roleLines() []statuspage.Line {
	var all []statuspage.Line
	switch {
	case m.DryRun:
		all = append(all, statuspage.Linef("This writer only rehearses: what it decides is sent to nobody."))
	case m.Leading:
		all = append(all, statuspage.Linef("This writer leads: what it decides it writes."))
	default:
		all = append(all, statuspage.Linef("This writer stands by: it decides, and %s writes. Its own page says more.",
			statuspage.SafeText(cmp.Or(m.Holder, "whoever holds the Lease"))))
	}
	if !m.Status.Synced {
		all = append(all, statuspage.Line{
			Severity: statuspage.Warning,
			Text:     "It has not decided yet on all Services that there were when it started: that one is absent here means nothing.",
		})
	}
	return all
}

// serviceSection is each Service with its details as long as there is room for them.
func (m *pageModel) serviceSection(rows []serviceRow) statuspage.Section {
	s := statuspage.Section{Title: "Services"}
	if len(rows) == 0 {
		text := "None bears this writer's class, or no cache has been filled yet."
		if m.Filter != "" {
			text = "This writer has no such Service: does it bear its class, and is its namespace watched?"
		}
		s.Lines = []statuspage.Line{statuspage.Linef("%s", text)}
	}
	room := statuspage.Budget{Bytes: maxDetails}
	folded := 0
	for nth := range rows[:min(len(rows), maxRows)] {
		item := rows[nth].item
		if room.Bytes > 0 {
			if whole := m.serviceItem(&rows[nth], nth); room.Reserve(&whole) {
				item = whole
			}
		}
		if !item.HasDetails() {
			folded++
		}
		s.Items = append(s.Items, item)
	}
	s.Omitted = statuspage.DescribeOmitted(folded, len(rows)-len(s.Items), "Services")
	return s
}

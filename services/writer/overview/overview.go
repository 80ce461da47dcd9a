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
	Board   *endpoints.Board
	History *history.Log
	Sources func() []subscriber.Snapshot
	Leading func() bool
	Holder  func() string // who holds the Lease, as far as is known; nil: there is no Lease, and nothing is sent
	Version string
	Writer  string // which replica this is
}

// Page looks around. Asked is NAMESPACE/SERVICE, to see that one alone, NAMESPACE/, or empty.
func (c Config) Page(at time.Time, asked string) statuspage.Page {
	m := model{
		At: at, Version: c.Version, Writer: c.Writer, Leading: c.Leading(), Dry: c.Holder == nil, Asked: asked, Sources: c.Sources(),
	}
	slices.SortFunc(m.Sources, func(a, b subscriber.Snapshot) int { return cmp.Compare(a.Source, b.Source) })
	var name endpoints.Name
	var names []endpoints.Name
	if asked != "" {
		name.Namespace, name.Service, _ = strings.Cut(asked, "/")
		names = []endpoints.Name{name}
	}
	m.Services, m.Status = c.Board.Look(endpoints.Select(names))
	m.Writes, m.Events = c.History.Recent(func(namespace, service string) bool {
		return asked == "" || namespace == name.Namespace && (name.Service == "" || service == name.Service)
	})
	if !m.Dry {
		m.Holder = c.Holder()
	}
	return m.Page()
}

// model is what there is to show at a moment.
type model struct {
	At      time.Time
	Version string
	Writer  string // which replica this is
	Leading bool
	Holder  string // who holds the Lease; empty: not known
	Dry     bool   // what is decided is never sent
	Asked   string // NAMESPACE/SERVICE, the only one that is shown; empty: all

	Services []endpoints.View
	Status   endpoints.Status
	Sources  []subscriber.Snapshot // by name
	Writes   []history.Write       // newest first
	Events   []history.Event       // newest first
}

// What a page shows at most. Beyond that it says how much is left out.
const (
	maxRows      = 1000    // Services
	maxAddresses = 100     // of a Service
	maxWitnesses = 4       // of an address
	maxGuards    = 20      // of a Service
	maxOpen      = 5       // Services that are unfolded, and addresses of each
	maxHistory   = 20      // writes, and Events
	maxDetails   = 4 << 20 // bytes of the Services' details
)

// Page is the model as it is shown: the same each time.
func (m *model) Page() statuspage.Page {
	rows, wrong, looks := m.rows()
	sources, unheard := m.sources()
	p := statuspage.Page{
		Component: "slicefeed-writer", Version: statuspage.SafeText(m.Version), Instance: statuspage.SafeText(m.Writer), At: m.At, Filter: statuspage.SafeText(m.Asked),
		Summary: m.verdict(len(rows), wrong, looks, unheard), Lines: m.leads(),
		Sections: []statuspage.Section{m.services(rows), sources, m.writes(), m.events()},
	}
	return p
}

// verdict says in a sentence whether all is well.
func (m *model) verdict(total, wrong, looks int, unheard []string) statuspage.Line {
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
	if n := m.Status.HeldBack; n > 0 {
		said = append(said, statuspage.FormatCount(n, "change", "changes")+" held back")
	}
	for _, name := range unheard {
		is.Severity = statuspage.Error
		said = append(said, "source "+name+" is not believed")
	}
	switch {
	case len(said) > 0:
		is.Text = strings.ToUpper(said[0][:1]) + strings.Join(said, ", ")[1:] + "."
	case total == 0 && m.Asked != "":
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

// leads says what this writer's word is worth.
func (m *model) leads() []statuspage.Line {
	var all []statuspage.Line
	switch {
	case m.Dry:
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

// services is each Service with its details as long as there is room for them.
func (m *model) services(rows []row) statuspage.Section {
	s := statuspage.Section{Title: "Services"}
	if len(rows) == 0 {
		text := "None bears this writer's class, or no cache has been filled yet."
		if m.Asked != "" {
			text = "This writer has no such Service: does it bear its class, and is its namespace watched?"
		}
		s.Lines = []statuspage.Line{statuspage.Linef("%s", text)}
	}
	room := statuspage.Budget{Bytes: maxDetails}
	folded := 0
	for nth := range rows[:min(len(rows), maxRows)] {
		item := rows[nth].item
		if room.Bytes > 0 {
			if whole := m.service(&rows[nth], nth); room.Reserve(&whole) {
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

package overview

import (
	"slices"
	"strconv"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// ExportsConfig holds the inputs of the page of an inventory that exports Services.
type ExportsConfig struct {
	Version, Instance string // of this replica
	Selector          string // SOURCE_SERVICE_SELECTOR

	Services    func() []string                      // in use, sorted
	Find        func(service string) (*Config, bool) // the page of a Service in use
	Subscribers func() []nodeserver.Subscriber
}

const maxServices = 1000 // of a page

// Page returns the page at this time. Filter is the only Service to show, as namespace/name, or empty.
func (c *ExportsConfig) Page(at time.Time, filter string) statuspage.Page {
	if one, found := c.Find(filter); filter != "" && found {
		all := one.Subscribers
		one.Subscribers = func() []nodeserver.Subscriber {
			return slices.DeleteFunc(all(), func(s nodeserver.Subscriber) bool { return s.Service != filter })
		}
		page := one.Page(at, "")
		page.Filter = filter
		return page
	}
	page := statuspage.Page{Component: "slicefeed-inventory", Version: c.Version, Instance: c.Instance, At: at, Filter: filter}
	if filter != "" {
		page.Summary = statuspage.Warnf("No client has requested Service %s in the last minutes.", display.Sanitize(filter))
		return page
	}
	services, problems := c.servicesSection(at)
	page.Sections = []statuspage.Section{services}
	page.Summary = statuspage.Headline(
		problems,
		statuspage.OKf("%s in use.", display.Count(len(c.Services()), "exported Service", "exported Services")),
	)
	return page
}

// servicesSection shows each Service in use, and those with a problem first.
func (c *ExportsConfig) servicesSection(at time.Time) (s statuspage.Section, problems []statuspage.Line) {
	subscribers := map[string]int{}
	for _, sub := range c.Subscribers() {
		subscribers[sub.Service]++
	}
	var items []statuspage.Item
	notSynced := 0
	for _, name := range c.Services() {
		one, found := c.Find(name)
		if !found {
			continue // freed since
		}
		data := one.ReadData()
		ready := 0
		for _, n := range data.Nodes {
			if n.State == source.Ready {
				ready++
			}
		}
		item := statuspage.Item{Name: name, Filter: name, Detail: strconv.Itoa(subscribers[name]) + " subscribed"}
		item.Values = statuspage.Values{
			"membership": data.Status.Membership.Sync.String(), "reason": data.Status.Membership.Reason,
			"endpoints": len(data.Nodes), "ready": ready, "subscribers": subscribers[name],
		}
		if data.Status.Membership.Sync == source.Synced {
			item.Summary = statuspage.OKf("%s, %d ready", display.Count(len(data.Nodes), "endpoint", "endpoints"), ready)
		} else {
			notSynced++
			item.Summary = statuspage.Warnf(
				"%s for %s",
				data.Status.Membership.Sync,
				statuspage.FormatAge(at, data.Status.Membership.Since),
			)
			item.Lines = []statuspage.Line{{Text: data.Status.Membership.Reason}}
		}
		items = append(items, item)
	}
	statuspage.SortItems(items)
	s = statuspage.Section{Name: "services", Title: "Exported Services in use", Lines: []statuspage.Line{
		statuspage.Linef("Services with the labels %s are exported. The inventory watches them while clients use them.", c.Selector),
	}}
	s.AddItems(items, maxServices, "Services", func(nth int, i *statuspage.Item) { i.Expanded = nth < maxExpanded && i.Lines != nil })
	if notSynced > 0 {
		problems = append(problems, statuspage.Warnf("%s not synced", display.Count(notSynced, "Service is", "Services are")))
	}
	return s, problems
}

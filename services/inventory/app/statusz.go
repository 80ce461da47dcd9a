package app

import (
	"net/http"
	"os"

	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/overview"
)

// statusHandler serves /statusz on the debug listener.
func (i *inventory) statusHandler() http.Handler {
	name, err := os.Hostname()
	if err != nil {
		name = "" // only shown
	}
	page := &overview.Config{
		Version: i.version, Instance: name, Kind: i.cfg.SourceKind,
		ReadData: i.collector.PageData, Explain: i.collector.Explain, Subscribers: i.server.Subscribers,
	}
	if client, ok := i.cloud.(overview.Cloud); ok {
		page.Cloud = client
	}
	return statuspage.Handler(page.Page, i.log)
}

// PageData returns what /statusz shows of the roster and of the last listing.
func (c *collector) PageData() overview.PageData {
	status, _ := c.intake.Stores.Status()
	c.mu.Lock()
	defer c.mu.Unlock()
	return overview.PageData{Status: status, Nodes: c.intake.Roster.Nodes(), Omitted: c.intake.Roster.Omitted(), Listing: c.lastListing}
}

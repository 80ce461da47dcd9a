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
		ReadState: i.collector.State, Explain: i.collector.Explain, Subscribers: i.server.Subscribers,
	}
	if client, ok := i.cloud.(overview.Cloud); ok {
		page.Cloud = client
	}
	return statuspage.Handler(page.Page, i.log)
}

// State returns what /statusz shows of the roster.
func (c *collector) State() overview.State {
	status, _ := c.intake.Stores.Status()
	c.mu.Lock()
	defer c.mu.Unlock()
	return overview.State{Status: status, Nodes: c.intake.Roster.Nodes(), Omitted: c.intake.Roster.Omitted(), Listing: c.lastListing}
}

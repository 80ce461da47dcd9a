package app

import (
	"net/http"
	"os"

	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/overview"
)

// statusz is the page for people, on the debug listener.
func (i *inventory) statusz() http.Handler {
	name, err := os.Hostname()
	if err != nil {
		name = "" // it is only for people
	}
	seen := &overview.Config{
		Version: i.version, Instance: name, Kind: i.cfg.SourceKind,
		Look: i.collector.Look, Explain: i.collector.Explain, Subscribers: i.server.Subscribers,
	}
	if client, ok := i.cloud.(overview.Cloud); ok {
		seen.Cloud = client
	}
	return statuspage.Handler(seen.Page, i.log)
}

// Look is what the roster says at this moment.
func (c *collector) Look() overview.Seen {
	status, _ := c.intake.Stores.Status()
	c.mu.Lock()
	defer c.mu.Unlock()
	return overview.Seen{Status: status, Nodes: c.intake.Roster.Nodes(), Omitted: c.intake.Roster.Omitted(), Listing: c.listed}
}

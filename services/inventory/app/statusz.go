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
		ReadData: i.Snapshot, Explain: i.Explain, Subscribers: i.server.Subscribers,
	}
	if client, ok := i.Cloud().(overview.Cloud); ok {
		page.Cloud = client
	}
	return statuspage.Handler(page.Page, i.log)
}

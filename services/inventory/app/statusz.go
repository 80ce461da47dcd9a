package app

import (
	"net/http"
	"os"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/config"
	"github.com/slicefeed/slicefeed/services/inventory/exports"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
	"github.com/slicefeed/slicefeed/services/inventory/overview"
)

// overviewPage returns the status page at a time, of everything or of one name.
type overviewPage func(at time.Time, filter string) statuspage.Page

// statusHandler serves /statusz on the debug listener.
func (i *inventory) statusHandler() http.Handler {
	return statuspage.Handler(i.newOverview(i.server.Subscribers), i.log)
}

func newOverview(
	cfg *config.Config,
	version string,
	pipeline *collector.Pipeline,
	subscribers func() []nodeserver.Subscriber,
) *overview.Config {
	page := &overview.Config{
		Version: version, Instance: hostname(), Kind: cfg.SourceKind,
		ReadData: pipeline.Snapshot, Explain: pipeline.Explain, Subscribers: subscribers,
	}
	if client, ok := pipeline.Cloud().(overview.Cloud); ok {
		page.Cloud = client
	}
	return page
}

func newExportsOverview(
	cfg *config.Config,
	version string,
	exported *exports.Exports,
	subscribers func() []nodeserver.Subscriber,
) *overview.ExportsConfig {
	return &overview.ExportsConfig{
		Version: version, Instance: hostname(), Selector: cfg.ExportSelector, Services: exported.InUse, Subscribers: subscribers,
		Find: func(service string) (*overview.Config, bool) {
			pipeline, found := exported.Find(service)
			if !found {
				return nil, false
			}
			return newOverview(cfg, version, pipeline, subscribers), true
		},
	}
}

// hostname is only shown; empty: unknown.
func hostname() string {
	name, _ := os.Hostname()
	return name
}

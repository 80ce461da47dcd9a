package nodeserver

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
)

// NewMetrics registers the stream metrics of a server that publishes these stores.
func NewMetrics(reg prometheus.Registerer, stores *feed.Stores) *stream.Metrics {
	return stream.NewMetrics(reg, "inventory", "WatchNodes", stores.TotalRevisions)
}

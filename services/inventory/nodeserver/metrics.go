package nodeserver

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
)

// NewMetrics registers the metrics of a server that tells what the stores hold.
func NewMetrics(reg prometheus.Registerer, stores *feed.Stores) *stream.Metrics {
	return stream.NewMetrics(reg, "inventory", "WatchNodes", stores.TotalRevisions)
}

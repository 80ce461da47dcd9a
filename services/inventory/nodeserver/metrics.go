package nodeserver

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/slicefeed/slicefeed/services/internal/stream"
)

// NewMetrics registers the stream metrics of a server. revisions returns the number of changes that it has published.
func NewMetrics(reg prometheus.Registerer, revisions func() uint64) *stream.Metrics {
	return stream.NewMetrics(reg, "inventory", "WatchNodes", revisions)
}

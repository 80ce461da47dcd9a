package endpointserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
)

// NewMetrics registers the metrics of a server for this store.
func NewMetrics(reg prometheus.Registerer, store *endpoints.Store) *stream.Metrics {
	return stream.NewMetrics(reg, "writer", "WatchEndpoints", store.Revision)
}

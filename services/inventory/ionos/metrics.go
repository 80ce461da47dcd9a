package ionos

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// registerMetrics registers the metrics of the budget and of listings. Those of requests are the transport's.
func registerMetrics(registry prometheus.Registerer, budget *budget) (lastListing prometheus.Gauge) {
	const ns, sub = "slicefeed", "inventory_ionos"
	with := promauto.With(registry)
	budget.waited = with.NewCounter(prometheus.CounterOpts{
		Namespace: ns, Subsystem: sub, Name: "budget_wait_seconds_total",
		Help: "Time that requests to the IONOS API have waited for the request budget.",
	})
	with.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: ns, Subsystem: sub, Name: "budget_remaining",
		Help: "Number of requests that the request budget allows now; below 1, the next request waits.",
	}, budget.Tokens)
	return with.NewGauge(prometheus.GaugeOpts{
		Namespace: ns, Subsystem: sub, Name: "last_listing_timestamp_seconds",
		Help: "Unix time of the last complete listing; 0: none yet.",
	})
}

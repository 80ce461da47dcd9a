package prober

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

type metrics struct {
	probes    *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	endpoints *prometheus.GaugeVec
	inFlight  prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	auto := promauto.With(registerer)
	return &metrics{
		probes: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "slicefeed_writer_probes_total",
			Help: "Number of probes, by mode and result. An inconclusive one says nothing about the backend: the writer could not probe it.",
		}, []string{"mode", "result"}),
		duration: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "slicefeed_writer_probe_duration_seconds",
			Help:    "Time from the start of a probe to its result.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"mode"}),
		endpoints: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slicefeed_writer_probed_endpoints",
			Help: "Number of probed backends (address, port and spec; one that Services share counts once), by probe status.",
		}, []string{"health"}),
		inFlight: auto.NewGauge(prometheus.GaugeOpts{
			Name: "slicefeed_writer_probes_in_flight",
			Help: "Number of probes in progress.",
		}),
	}
}

func (m *metrics) observeProbe(mode probe.Mode, result probe.Result, took time.Duration) {
	m.probes.WithLabelValues(mode.String(), result.String()).Inc()
	m.duration.WithLabelValues(mode.String()).Observe(took.Seconds())
}

func (m *metrics) setState(s *ProbeSchedule) {
	for health, n := range s.healthCounts {
		m.endpoints.WithLabelValues(Health(health).String()).Set(float64(n))
	}
	m.inFlight.Set(float64(s.inFlight))
}

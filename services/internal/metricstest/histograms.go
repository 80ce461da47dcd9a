package metricstest

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// HistogramSums returns the sum of each histogram that has observed anything, by the values of its labels, in the order
// of their names and separated by a space. It is nil if none has.
func HistogramSums(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sums map[string]float64
	for _, family := range families {
		for _, series := range family.GetMetric() {
			if series.GetHistogram().GetSampleCount() == 0 {
				continue
			}
			var labels []string
			for _, label := range series.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			if sums == nil {
				sums = map[string]float64{}
			}
			sums[strings.Join(labels, " ")] = series.GetHistogram().GetSampleSum()
		}
	}
	return sums
}

package collector

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// propagationSum returns the sum and the count of a stage's histogram.
func (m *metrics) propagationSum(t *testing.T, stage string) (float64, uint64) {
	t.Helper()
	var out dto.Metric
	if err := m.propagation.WithLabelValues(stage).(prometheus.Histogram).Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetHistogram().GetSampleSum(), out.GetHistogram().GetSampleCount()
}

func TestMeasuresPropagationFromSourceChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(prometheus.NewRegistry(), NewPropagation(prometheus.NewRegistry()))
		m.observePropagation(stageSent) // before any change
		m.changedAt.Store(new(time.Now()))
		time.Sleep(time.Second)
		m.observePropagation(stageStored)
		time.Sleep(time.Second)
		m.observePropagation(stageSent)
		m.changedAt.Store(&time.Time{}) // an address from a listing of the cloud
		time.Sleep(time.Hour)
		m.observePropagation(stageStored)
		m.observePropagation(stageSent)
		for stage, want := range map[string]float64{stageStored: 1, stageSent: 2} {
			if sum, n := m.propagationSum(t, stage); sum != want || n != 1 {
				t.Errorf("%s: count %d, sum %v s; want 1 and %v s", stage, n, sum, want)
			}
		}
	})
}

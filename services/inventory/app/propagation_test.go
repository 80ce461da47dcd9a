package app

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// seconds are what a stage's histogram has summed up.
func (m *metrics) seconds(t *testing.T, stage string) (float64, uint64) {
	t.Helper()
	var out dto.Metric
	if err := m.propagation.WithLabelValues(stage).(prometheus.Histogram).Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetHistogram().GetSampleSum(), out.GetHistogram().GetSampleCount()
}

func TestPropagationIsCountedFromTheSourcesWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(prometheus.NewRegistry())
		m.sent() // before anything has come
		m.seen(time.Now())
		time.Sleep(time.Second)
		m.stored()
		time.Sleep(time.Second)
		m.sent()
		m.seen(time.Time{}) // a listing of the cloud brought an address
		time.Sleep(time.Hour)
		m.stored()
		m.sent()
		for stage, want := range map[string]float64{stageStored: 1, stageSent: 2} {
			if sum, n := m.seconds(t, stage); sum != want || n != 1 {
				t.Errorf("%s: %d times, %v s in all, want once and %v s", stage, n, sum, want)
			}
		}
	})
}

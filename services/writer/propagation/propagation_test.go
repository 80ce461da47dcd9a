package propagation

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

func TestMeasuresWhatADecisionWaitedFor(t *testing.T) {
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	snapshots := func(seconds int) []subscriber.Snapshot {
		return []subscriber.Snapshot{{Source: "default", ChangedAt: at(seconds)}}
	}
	a := netip.MustParseAddr("10.0.1.7")
	probed := func(seconds int) []probe.Status {
		return []probe.Status{{Address: a, Since: at(seconds)}}
	}
	for _, tt := range []struct {
		name      string
		decisions func(*Tracker, *Metrics)
		causes    Causes
		want      map[string]float64 // cause and stage to the sum of seconds
	}{
		{"what was known before the first decision did not wait", func(s *Tracker, m *Metrics) {
			s.Observe(m, at(100), snapshots(0), probed(0))
		}, Causes{}, nil},
		{"a report", func(s *Tracker, m *Metrics) {
			s.Observe(m, at(1), snapshots(0), probed(0))
			s.Observe(m, at(11), snapshots(10), probed(0))
		}, Causes{Feed: at(10)}, map[string]float64{"feed decided": 1}},
		{"a report and a probe", func(s *Tracker, m *Metrics) {
			s.Observe(m, at(1), snapshots(0), probed(0))
			s.Observe(m, at(12), snapshots(10), probed(11))
		}, Causes{at(10), at(11)}, map[string]float64{"feed decided": 2, "probe decided": 1}},
		{"nothing new", func(s *Tracker, m *Metrics) {
			s.Observe(m, at(1), snapshots(0), probed(0))
			s.Observe(m, at(11), snapshots(10), probed(0))
			s.Observe(m, at(20), snapshots(10), probed(0))
		}, Causes{}, map[string]float64{"feed decided": 1}},
		{"another target's prober has known an address for long", func(s *Tracker, m *Metrics) {
			s.Observe(m, at(500), snapshots(0), nil)
			s.Observe(m, at(500), snapshots(0), probed(100))
		}, Causes{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reg, s := prometheus.NewRegistry(), Tracker{}
			tt.decisions(&s, NewMetrics(reg))
			if diff := cmp.Diff(tt.want, testkit.HistogramSums(t, reg)); diff != "" || s.Causes() != tt.causes {
				t.Errorf("causes %v, want %v; (-want +got)\n%s", s.Causes(), tt.causes, diff)
			}
		})
	}
}

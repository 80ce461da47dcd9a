package reconciler

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// measured are the names of the Services that any metric has a series of.
func (c *cluster) measured(t *testing.T) []string {
	t.Helper()
	families, err := c.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				if label.GetName() == "service" {
					names[label.GetValue()] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func TestASeriesIsThereWhileItsServiceIsOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, &fakeLease{term: 1}, service("blue", "default"), service("red", "default"), service("other", "elsewhere"))
		c.start(t)
		selects := service("red", "default")
		selects.Spec.Selector = map[string]string{"app": "red"}
		for _, step := range []struct {
			what string
			svc  *corev1.Service
			want []string
		}{
			{"as at the start", service("other", "elsewhere"), []string{"blue", "red"}},
			{"one opts in", service("other", "default"), []string{"blue", "other", "red"}},
			{"one is refused", selects, []string{"blue", "other", "red"}},
			{"one opts out", service("blue", "elsewhere"), []string{"other", "red"}},
			{"and so does the one that was refused", service("red", "elsewhere"), []string{"other"}},
		} {
			c.put(t, step.svc)
			if diff := cmp.Diff(step.want, c.measured(t)); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", step.what, diff)
			}
		}
	})
}

func TestMeasuresWhatADecisionWaitedFor(t *testing.T) {
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	snapshots := func(seconds int) []subscriber.Snapshot {
		return []subscriber.Snapshot{{Source: "default", ChangedAt: at(seconds)}}
	}
	a := netip.MustParseAddr("10.0.1.7")
	probed := func(seconds int) []verdict.Probe {
		return []verdict.Probe{{Address: a, Since: at(seconds)}}
	}
	for _, tt := range []struct {
		name      string
		decisions func(*stimuli, *prometheus.HistogramVec)
		causes    causes
		want      map[string]float64 // cause and stage to the sum of seconds
	}{
		{"what was known before the first decision did not wait", func(s *stimuli, m *prometheus.HistogramVec) {
			s.observe(m, at(100), snapshots(0), probed(0))
		}, causes{}, nil},
		{"a report", func(s *stimuli, m *prometheus.HistogramVec) {
			s.observe(m, at(1), snapshots(0), probed(0))
			s.observe(m, at(11), snapshots(10), probed(0))
		}, causes{feed: at(10)}, map[string]float64{"feed decided": 1}},
		{"a report and a probe", func(s *stimuli, m *prometheus.HistogramVec) {
			s.observe(m, at(1), snapshots(0), probed(0))
			s.observe(m, at(12), snapshots(10), probed(11))
		}, causes{at(10), at(11)}, map[string]float64{"feed decided": 2, "probe decided": 1}},
		{"nothing new", func(s *stimuli, m *prometheus.HistogramVec) {
			s.observe(m, at(1), snapshots(0), probed(0))
			s.observe(m, at(11), snapshots(10), probed(0))
			s.observe(m, at(20), snapshots(10), probed(0))
		}, causes{}, map[string]float64{"feed decided": 1}},
		{"another target's prober has known an address for long", func(s *stimuli, m *prometheus.HistogramVec) {
			s.observe(m, at(500), snapshots(0), nil)
			s.observe(m, at(500), snapshots(0), probed(100))
		}, causes{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reg, s := prometheus.NewRegistry(), stimuli{}
			tt.decisions(&s, newPropagation(reg))
			if diff := cmp.Diff(tt.want, sums(t, reg)); diff != "" || s.causes != tt.causes {
				t.Errorf("causes %v, want %v; (-want +got)\n%s", s.causes, tt.causes, diff)
			}
		})
	}
}

func TestMeasuresWritesThatChangeSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(withSlice())
		registry := prometheus.NewRegistry()
		f.propagation = newPropagation(registry)
		write := func() {
			f.Decide(fixtureKey, time.Now())
			f.states[fixtureKey].slot.order.causes = causes{feed: time.Now()}
			time.Sleep(time.Second)
			f.Write(t.Context(), fixtureKey, time.Now())
		}
		write()
		touched := f.store.updated.DeepCopy() // by another client, which has changed nothing that matters
		touched.ResourceVersion = "3"
		f.service.view.Slices, f.service.view.ResourceVersion = []*discoveryv1.EndpointSlice{touched}, "3"
		write()
		if diff := cmp.Diff(map[string]float64{"feed written": 1}, sums(t, registry)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// sums are those of the propagation's histograms that have observed anything.
func sums(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]float64
	for _, family := range families {
		for _, series := range family.GetMetric() {
			if h := series.GetHistogram(); h.GetSampleCount() > 0 {
				if all == nil {
					all = map[string]float64{}
				}
				all[series.GetLabel()[0].GetValue()+" "+series.GetLabel()[1].GetValue()] = h.GetSampleSum()
			}
		}
	}
	return all
}

package control

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// measured are the names of the Services that any metric has a series of.
func (o *office) measured(t *testing.T) []string {
	t.Helper()
	families, err := o.registry.Gather()
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
		o := newOffice(t, &elected{}, service("blue", "default"), service("red", "default"), service("other", "elsewhere"))
		o.run(t)
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
			o.put(t, step.svc)
			if diff := cmp.Diff(step.want, o.measured(t)); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", step.what, diff)
			}
		}
	})
}

func TestATargetSaysWhyItIsNotRightAndSinceWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, &elected{}, service("blue", "default"))
		o.run(t)
		now := float64(time.Now().Unix())
		look := func(problem string, since float64) {
			t.Helper()
			is := testutil.ToFloat64(o.metrics.problem.WithLabelValues("web", "blue", problem))
			from := testutil.ToFloat64(o.metrics.wrongSince.WithLabelValues("web", "blue"))
			right := testutil.ToFloat64(o.metrics.right.WithLabelValues("web", "blue"))
			if is != 1 || from > since || right != 0 {
				t.Errorf("%s is %v, right %v, wrong since %v, want %v or before", problem, is, right, from, since)
			}
		}
		look("no_ready_endpoints", now)
		time.Sleep(time.Hour)
		selects := service("blue", "default")
		selects.Spec.Selector = map[string]string{"app": "blue"}
		o.put(t, selects)
		look("rejected", now)
		if n := testutil.CollectAndCount(o.metrics.heldBack); n != 0 {
			t.Errorf("of a Service on which nothing is decided, %d guards are told", n)
		}
	})
}

func TestAilments(t *testing.T) {
	a := netip.MustParseAddr("10.0.1.7")
	ready := verdict.Conditions{Ready: true, Serving: true}
	served := verdict.Decision{Write: true, Endpoints: []verdict.Endpoint{{Address: a, Conditions: ready, Listed: true}, {Address: a.Next()}}}
	held := verdict.Input{Current: []verdict.CurrentEndpoint{{Address: a, Conditions: ready}}}
	with := func(change func(*verdict.Decision)) verdict.Decision {
		d := served
		d.Endpoints = slices.Clone(d.Endpoints)
		change(&d)
		return d
	}
	for _, tt := range []struct {
		name   string
		view   targets.Resolution
		in     verdict.Input
		d      verdict.Decision
		failed int
		want   []problem
	}{
		{name: "a target that is as decided is right", in: held, d: served},
		{name: "an endpoint that is not written yet", d: served, want: []problem{problemOutOfSync}},
		{name: "one that should be gone", in: held, d: with(func(d *verdict.Decision) { d.Endpoints = nil }), want: []problem{problemNoReadyEndpoints, problemOutOfSync}},
		{name: "other conditions", in: held, d: with(func(d *verdict.Decision) { d.Endpoints[0].Conditions = verdict.Conditions{} }), want: []problem{problemNoReadyEndpoints, problemOutOfSync}},
		{name: "a write that fails, though endpoints are alike", in: held, d: served, failed: 1, want: []problem{problemOutOfSync}},
		{name: "a guard that acts", in: held, d: with(func(d *verdict.Decision) { d.Guards = []verdict.Guard{{Rule: verdict.RuleShrink}} }), want: []problem{problemGuardActive}},
		{name: "what may not be written is not late", d: with(func(d *verdict.Decision) { d.Write = false }), want: []problem{problemWritesBlocked}},
		{name: "what somebody keeps from being written is not late", view: targets.Resolution{Paused: true}, d: served, want: []problem{problemPaused}},
		{name: "of a refused one nothing is decided", view: targets.Resolution{Rejection: &targets.Rejection{}}, want: []problem{problemRejected}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := slices.Sorted(maps.Keys(findProblems(tt.view, tt.in, tt.d, tt.failed)))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestMeasuresPropagationFromReportToResponse(t *testing.T) {
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	snapshots := func(seconds int) []subscriber.Snapshot {
		return []subscriber.Snapshot{{Source: "default", ChangedAt: at(seconds)}}
	}
	a := netip.MustParseAddr("10.0.1.7")
	probed := func(seconds int) map[netip.Addr]verdict.Probe {
		return map[netip.Addr]verdict.Probe{a: {Since: at(seconds)}}
	}
	for _, tt := range []struct {
		name  string
		steps func(*stimuli, *prometheus.HistogramVec)
		want  map[string]float64 // cause and stage to the sum of seconds
	}{
		{"what was known when the target came did not wait for us", func(s *stimuli, m *prometheus.HistogramVec) {
			s.decided(m, at(100), snapshots(0), probed(0))
			s.sending()
			s.wrote = true
			s.answered(m, at(101), nil)
		}, nil},
		{"a source's word that leads to a write", func(s *stimuli, m *prometheus.HistogramVec) {
			s.decided(m, at(1), snapshots(0), nil)
			s.decided(m, at(11), snapshots(10), nil)
			s.sending()
			s.wrote = true
			s.answered(m, at(14), nil)
		}, map[string]float64{"feed decided": 1, "feed written": 4}},
		{"one that changes nothing", func(s *stimuli, m *prometheus.HistogramVec) {
			s.decided(m, at(1), snapshots(0), nil)
			s.decided(m, at(11), snapshots(10), nil)
			s.sending()
			s.answered(m, at(14), nil)
		}, map[string]float64{"feed decided": 1}},
		{"a write that fails is measured when it is made good", func(s *stimuli, m *prometheus.HistogramVec) {
			s.decided(m, at(1), snapshots(0), nil)
			s.decided(m, at(11), snapshots(10), nil)
			s.sending()
			s.answered(m, at(14), errors.New("no answer"))
			s.decided(m, at(15), snapshots(10), nil)
			s.sending()
			s.wrote = true
			s.answered(m, at(20), nil)
		}, map[string]float64{"feed decided": 1, "feed written": 10}},
		{"what comes during a write waits for the next", func(s *stimuli, m *prometheus.HistogramVec) {
			s.decided(m, at(0), snapshots(0), probed(0))
			s.decided(m, at(10), snapshots(10), probed(0))
			s.sending()
			s.decided(m, at(12), snapshots(10), probed(11))
			s.wrote = true
			s.answered(m, at(13), nil)
			s.sending()
			s.wrote = true
			s.answered(m, at(20), nil)
		}, map[string]float64{"feed decided": 0, "feed written": 3, "probe decided": 1, "probe written": 9}},
		{"what may not be written is not late", func(s *stimuli, m *prometheus.HistogramVec) {
			s.decided(m, at(0), snapshots(0), nil)
			s.decided(m, at(10), snapshots(10), nil)
			s.drop()
			s.sending()
			s.wrote = true
			s.answered(m, at(1000), nil)
		}, map[string]float64{"feed decided": 0}},
		{"another target's prober has known an address for long", func(s *stimuli, m *prometheus.HistogramVec) {
			s.decided(m, at(500), snapshots(0), nil)
			s.decided(m, at(500), snapshots(0), probed(100))
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			m := newMetrics(reg)
			tt.steps(&stimuli{}, m.propagation)
			if diff := cmp.Diff(tt.want, sums(t, reg)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
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

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

	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
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
		c := newCluster(
			t,
			&fakeLease{since: time.Now()},
			service("blue", "default"),
			service("red", "default"),
			service("other", "elsewhere"),
		)
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

func TestMeasuresWritesThatChangeSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(withSlice())
		registry := prometheus.NewRegistry()
		f.propagation = newPropagation(registry)
		write := func() {
			f.Decide(fixtureKey, time.Now())
			f.states[fixtureKey].pending.causes = causes{feed: time.Now()}
			time.Sleep(time.Second)
			f.Write(t.Context(), fixtureKey, time.Now())
		}
		write()
		touched := f.store.updated.DeepCopy() // by another client, which has changed nothing that matters
		touched.ResourceVersion = "3"
		f.service.view.Slices, f.service.view.ResourceVersion = []*discoveryv1.EndpointSlice{touched}, "3"
		write()
		if diff := cmp.Diff(map[string]float64{"feed written": 1}, testkit.HistogramSums(t, registry)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

func TestMeasuresWhatADecisionWaitedFor(t *testing.T) {
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	on := func(reported int, probes ...probe.Status) basis {
		return basis{
			targets.Resolution{Target: targets.Target{State: targets.Managed}},
			[]subscriber.Snapshot{{Source: "default", ChangedAt: at(reported)}},
			verdict.Input{Probes: probes},
		}
	}
	probed := func(seconds int) probe.Status {
		return probe.Status{Address: netip.MustParseAddr("10.0.1.7"), Since: at(seconds)}
	}
	for name, tt := range map[string]struct {
		before, now basis
		want        causes
	}{
		"what was known before the first decision did not wait": {basis{}, on(0, probed(0)), causes{}},
		"a report":             {on(0, probed(0)), on(10, probed(0)), causes{feed: at(10)}},
		"a report and a probe": {on(0, probed(0)), on(10, probed(11)), causes{at(10), at(11)}},
		"nothing new":          {on(10, probed(0)), on(10, probed(0)), causes{}},
		"another target's prober has known an address for long": {on(0), on(0, probed(100)), causes{}},
		"the target is not managed any more":                    {on(0), basis{snapshots: on(10).snapshots}, causes{}},
	} {
		if got := newCauses(&tt.before, &tt.now); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	registry := prometheus.NewRegistry()
	newPropagation(registry).observe(causes{at(10), at(11)}, stageDecided, at(12))
	if diff := cmp.Diff(map[string]float64{"feed decided": 2, "probe decided": 1}, testkit.HistogramSums(t, registry)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

package reconciler

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/writer/propagation"
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
			&fakeLease{term: 1, since: time.Now()},
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
		f.propagation = propagation.NewMetrics(registry)
		write := func() {
			f.Decide(fixtureKey, time.Now())
			f.states[fixtureKey].slot.order.causes = propagation.Causes{Feed: time.Now()}
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

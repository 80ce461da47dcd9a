package endpoints

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestCountsWhatTheSlicesDoNotListAsDecided(t *testing.T) {
	listed := func(number int32, endpoints ...discoveryv1.Endpoint) func(*Target) {
		return func(t *Target) {
			t.ManagedBy = "slicefeed-default"
			t.Slices = append(t.Slices, newSlice(*t, []discoveryv1.EndpointPort{newPort("http", number)}, endpoints...))
		}
	}
	one := newEndpoint(mustParseAddr("10.0.0.1"), ready)
	for _, c := range []struct {
		name  string
		alter func(*Target)
		want  int
	}{
		{"all is as decided", func(*Target) {}, 0},
		{"nothing is written yet", func(t *Target) { t.Input.Current = nil }, 2},
		{"other conditions", func(t *Target) { t.Input.Current[1].Conditions = draining }, 1},
		{"another source, whose slice has to list it", func(t *Target) { t.Input.Current[0].Source = "blue" }, 1},
		{"another zone", func(t *Target) { t.Input.Current[0].Zone = "z" }, 1},
		{"another hostname", func(t *Target) { t.Input.Current[0].Hostname = "h" }, 1},
		{"one too many", func(t *Target) { t.Decision.Endpoints[0].Listed = false }, 1},
		{"the last is too many", func(t *Target) { t.Decision.Endpoints[1].Listed = false }, 1},
		{"one that nothing was decided about", func(t *Target) { t.Decision.Endpoints = t.Decision.Endpoints[1:] }, 1},
		{"another instead", func(t *Target) { t.Input.Current[1].Address = mustParseAddr("10.0.0.3") }, 2},
		{"other ports", listed(1, one), 2},
		{"the same ports", listed(30080, one), 0},
		{"other ports, which the endpoint has", func(t *Target) {
			listed(1, one)(t)
			t.Decision.Endpoints[0].Ports.Text = "http/TCP:1"
		}, 0},
		{"other ports, which one endpoint of two has", func(t *Target) {
			listed(1, one, newEndpoint(mustParseAddr("10.0.0.2"), ready))(t)
			t.Decision.Endpoints[0].Ports.Text = "http/TCP:1"
		}, 2},
		{"other ports, of a slice without endpoints", listed(1), 0},
		{"other ports, of a slice that is another's", func(t *Target) { listed(1, one)(t); t.ManagedBy = "another" }, 0},
		{"paused, and by hand one is drained", func(t *Target) {
			t.State = Paused
			t.Input.Current[0].Conditions = draining
		}, 1},
		{"rejected", func(t *Target) { t.State, t.Decision = Rejected, verdict.Decision{} }, 0},
		{"read-only", func(t *Target) { t.State, t.Decision = ReadOnly, verdict.Decision{} }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			target := managedTarget("a", ready, "10.0.0.1", "10.0.0.2")
			target.Input.Current = []verdict.CurrentEndpoint{
				{Address: mustParseAddr("10.0.0.1"), Conditions: ready},
				{Address: mustParseAddr("10.0.0.2"), Conditions: ready, Source: "default"},
			}
			c.alter(&target)
			checkEqual(t, "out of sync", target.CountOutOfSync(), c.want)
		})
	}
}

func TestViewsStayAsTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newSyncedStore()
		for range rapid.IntRange(0, 4).Draw(t, "targets") {
			b.Put(drawTarget(t))
		}
		filter := SelectServices(rapid.SampledFrom([][]ServiceName{nil, {{"web", "s1"}}, {{Namespace: "mail"}}}).Draw(t, "selects"))
		views, status := b.Views(filter)
		again, same := b.Views(filter)
		checkEqual(t, "status is the same", sameStatus(status, same, nil), true)
		checkEqual(t, "views", len(again), len(views))
		for i := range views {
			v := &views[i]
			b.Remove(v.Namespace, v.Service)
			checkEqual(t, "backends", len(v.Backends), v.Ready+v.Draining+v.NotReady)
			checkEqual(t, "summary", v.Summary, again[i].Summary)
		}
	})
}

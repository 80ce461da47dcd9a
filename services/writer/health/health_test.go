package health

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestFindsProblems(t *testing.T) {
	a := netip.MustParseAddr("10.0.1.7")
	ready := verdict.Conditions{Ready: true, Serving: true}
	served := verdict.Decision{
		Write:     true,
		Endpoints: []verdict.Endpoint{{Address: a, Conditions: ready, Listed: true}, {Address: a.Next()}},
	}
	held := verdict.Input{Current: []verdict.CurrentEndpoint{{Address: a, Conditions: ready}}}
	with := func(change func(*verdict.Decision)) verdict.Decision {
		d := served
		d.Endpoints = slices.Clone(d.Endpoints)
		change(&d)
		return d
	}
	for _, tt := range []struct {
		name       string
		view       targets.Resolution
		in         verdict.Input
		d          verdict.Decision
		writeFails bool
		want       []problem
	}{
		{name: "a target that is as decided is right", in: held, d: served},
		{name: "an endpoint that is not written yet", d: served, want: []problem{problemOutOfSync}},
		{name: "one that should be gone", in: held, d: with(func(d *verdict.Decision) { d.Endpoints = nil }), want: []problem{problemNoReadyEndpoints, problemOutOfSync}},
		{name: "other conditions", in: held, d: with(func(d *verdict.Decision) { d.Endpoints[0].Conditions = verdict.Conditions{} }), want: []problem{problemNoReadyEndpoints, problemOutOfSync}},
		{name: "a write that fails, though endpoints are alike", in: held, d: served, writeFails: true, want: []problem{problemOutOfSync}},
		{name: "a guard that acts", in: held, d: with(func(d *verdict.Decision) { d.Guards = []verdict.Guard{{Rule: verdict.RuleShrink}} }), want: []problem{problemGuardActive}},
		{name: "what may not be written is not late", d: with(func(d *verdict.Decision) { d.Write = false }), want: []problem{problemWritesBlocked}},
		{name: "what somebody keeps from being written is not late", view: targets.Resolution{Paused: true}, d: served, want: []problem{problemPaused}},
		{name: "of a refused one nothing is decided", view: targets.Resolution{Rejection: &targets.Rejection{}}, want: []problem{problemRejected}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := slices.Sorted(maps.Keys(findProblems(tt.view, tt.in, tt.d, tt.writeFails)))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestReportsProblemsAndSinceWhen(t *testing.T) {
	m, key, start := NewMetrics(prometheus.NewRegistry()), targets.Key{Namespace: "web", Name: "blue"}, time.Unix(1_000_000, 0)
	managed := targets.Resolution{Relevant: true}
	rejected := targets.Resolution{Relevant: true, Rejection: &targets.Rejection{}}
	ready := verdict.Conditions{Ready: true, Serving: true}
	for _, step := range []struct {
		name    string
		view    targets.Resolution
		ready   bool
		problem problem // empty: it is healthy
		since   float64
		guards  int // series
	}{
		{"no endpoint is ready", managed, false, problemNoReadyEndpoints, 1_000_000, len(verdict.GuardOrder)},
		{"an hour later it is rejected", rejected, false, problemRejected, 1_000_000, 0},
		{"then it is healthy", managed, true, "", 0, len(verdict.GuardOrder)},
		{"and unhealthy again", managed, false, problemNoReadyEndpoints, 1_010_800, len(verdict.GuardOrder)},
	} {
		var input verdict.Input
		decision := verdict.Decision{Write: true}
		if step.ready {
			a := netip.MustParseAddr("10.0.1.7")
			input.Current = []verdict.CurrentEndpoint{{Address: a, Conditions: ready}}
			decision.Endpoints = []verdict.Endpoint{{Address: a, Conditions: ready, Listed: true}}
		}
		m.Update(key, step.view, input, decision, false, start)
		start = start.Add(time.Hour)
		for _, p := range allProblems {
			if got := testutil.ToFloat64(m.problem.WithLabelValues("web", "blue", string(p))); got != gaugeValue(p == step.problem) {
				t.Errorf("%s: %s is %v", step.name, p, got)
			}
		}
		since, healthy := testutil.ToFloat64(
			m.unhealthySince.WithLabelValues("web", "blue"),
		), testutil.ToFloat64(
			m.healthy.WithLabelValues("web", "blue"),
		)
		if since != step.since || healthy != gaugeValue(step.problem == "") || testutil.CollectAndCount(m.held) != step.guards {
			t.Errorf(
				"%s: unhealthy since %v, healthy %v, %d guards; want %v, %d",
				step.name,
				since,
				healthy,
				testutil.CollectAndCount(m.held),
				step.since,
				step.guards,
			)
		}
	}
	if m.Forget(key); testutil.CollectAndCount(m.healthy) != 0 {
		t.Error("a target that is forgotten has series")
	}
}

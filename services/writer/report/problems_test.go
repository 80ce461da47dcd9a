package report

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestFindsTheProblemsOfAService(t *testing.T) {
	rejection := &targets.Rejection{Reason: "ServiceHasSelector", Message: "It has a selector."}
	for name, c := range map[string]struct {
		alter      func(*targets.Resolution, *endpoints.Target)
		writeFails bool
		want       []string
	}{
		"as decided":                     {alter: func(*targets.Resolution, *endpoints.Target) {}},
		"an endpoint is not written yet": {alter: func(_ *targets.Resolution, t *endpoints.Target) { t.Input.Current = nil }, want: []string{"ERROR OutOfSync"}},
		"one should be gone":             {alter: func(_ *targets.Resolution, t *endpoints.Target) { t.Decision.Endpoints[0].Listed = false }, want: []string{"ERROR OutOfSync", "ERROR NoReadyEndpoints"}},
		"a write fails":                  {alter: func(*targets.Resolution, *endpoints.Target) {}, writeFails: true, want: []string{"ERROR OutOfSync"}},
		"none is ready":                  {alter: func(_ *targets.Resolution, t *endpoints.Target) { t.Decision.Endpoints, t.Input.Current = nil, nil }, want: []string{"ERROR NoReadyEndpoints"}},
		"a guard of each source":         {alter: func(_ *targets.Resolution, t *endpoints.Target) { t.Decision.Guards = twoGuards() }, want: []string{"WARNING AddressNotAllowed", "WARNING SourceNotTrusted", "WARNING SourceNotTrusted"}},
		"what may not be written": {alter: func(_ *targets.Resolution, t *endpoints.Target) {
			t.Decision.Write, t.Decision.Guards, t.Input.Current = false, twoGuards()[:1], nil
		}, want: []string{"ERROR AddressNotAllowed"}},
		"paused, and changed by hand": {alter: func(v *targets.Resolution, t *endpoints.Target) {
			v.Settings.Paused, t.State, t.Input.Current = true, endpoints.Paused, nil
		}, want: []string{"WARNING Paused"}},
		"opted out while paused": {alter: func(v *targets.Resolution, t *endpoints.Target) {
			v.Settings.Paused, v.State, t.State = true, targets.Leaving, endpoints.Paused
		}, want: []string{"WARNING Paused"}},
		"opted out": {alter: func(v *targets.Resolution, _ *endpoints.Target) { v.State = targets.Leaving }},
		"not a target, though annotated": {alter: func(v *targets.Resolution, t *endpoints.Target) {
			v.Settings.Paused, v.State, t.State = true, targets.Gone, endpoints.Paused
		}},
		"read-only": {alter: func(v *targets.Resolution, t *endpoints.Target) {
			v.State, v.Settings.Paused, t.State = targets.ReadOnly, true, endpoints.ReadOnly
		}},
		"rejected": {alter: func(v *targets.Resolution, t *endpoints.Target) {
			v.State, v.Rejection, t.State, t.Decision = targets.Rejected, rejection, endpoints.Rejected, verdict.Decision{}
		}, want: []string{"ERROR ServiceHasSelector"}},
		"rejected, and a write fails": {alter: func(v *targets.Resolution, t *endpoints.Target) {
			v.State, v.Rejection, t.State = targets.ProbesOnly, rejection, endpoints.Rejected
		}, writeFails: true, want: []string{"ERROR ServiceHasSelector", "ERROR OutOfSync"}},
		"invalid annotations": {alter: func(v *targets.Resolution, _ *endpoints.Target) {
			v.Warning = &targets.Rejection{Reason: "InvalidAnnotation", Message: "a; b", Parts: []string{"a", "b"}}
		}, want: []string{"WARNING InvalidAnnotation", "WARNING InvalidAnnotation"}},
		"its label was removed": {alter: func(v *targets.Resolution, _ *endpoints.Target) {
			v.Warning = &targets.Rejection{Reason: "LabelRemoved"}
		}, want: []string{"WARNING LabelRemoved"}},
		"the label, and nothing is known": {alter: func(v *targets.Resolution, t *endpoints.Target) {
			v.State, v.Rejection, t.State = targets.Rejected, rejection, endpoints.Rejected
		}, want: []string{"ERROR ServiceHasSelector"}},
		"slices of others":        {alter: func(v *targets.Resolution, _ *endpoints.Target) { v.ForeignSlices = []string{"by-hand"} }, want: []string{"WARNING ForeignSlices"}},
		"slices of another class": {alter: func(v *targets.Resolution, _ *endpoints.Target) { v.OtherClassSlices = []string{"blue-1"} }, want: []string{"WARNING OtherClass"}},
		"trafficDistribution":     {alter: func(v *targets.Resolution, _ *endpoints.Target) { v.TrafficDistribution = "PreferClose" }, want: []string{"NOTE TrafficDistribution"}},
		"admission adds a label":  {alter: func(_ *targets.Resolution, t *endpoints.Target) { t.Admitted = []string{"label team of shop-1"} }, want: []string{"NOTE ChangedByAdmission"}},
		"admission adds an endpoint": {alter: func(_ *targets.Resolution, t *endpoints.Target) {
			t.Admitted = []string{"label team of shop-1", "endpoint 10.0.0.9 of shop-1"}
		}, want: []string{"WARNING ChangedByAdmission"}},
		"admission takes the slice away": {alter: func(_ *targets.Resolution, t *endpoints.Target) {
			t.Admitted = []string{"label kubernetes.io/service-name of shop-1"}
		}, want: []string{"WARNING ChangedByAdmission"}},
		"publishNotReadyAddresses": {alter: func(v *targets.Resolution, _ *endpoints.Target) {
			v.PublishNotReadyAddresses, v.Settings.ListUnready = true, true
		}, want: []string{"NOTE PublishNotReadyAddresses"}},
		"the same, and none are listed": {alter: func(v *targets.Resolution, _ *endpoints.Target) { v.PublishNotReadyAddresses = true }},
		"ports of the source":           {alter: withPorts("TCP", 9090, 8080)},
		"a port that it does not have":  {alter: withPorts("TCP", 9090), want: []string{"NOTE SourcePortMismatch"}},
		"a port of another protocol":    {alter: withPorts("UDP", 8080), want: []string{"NOTE SourcePortMismatch"}},
	} {
		t.Run(name, func(t *testing.T) {
			view, target := targets.Resolution{Target: targets.Target{State: targets.Managed}}, newTarget("shop", "10.0.0.1")
			c.alter(&view, &target)
			target.OutOfSync = target.CountOutOfSync()
			got := OfService(view, &target, c.writeFails)
			if diff := cmp.Diff(c.want, reasons(got)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			objects := map[string]bool{}
			for _, p := range got {
				if id := p.GetReason() + p.GetObject() + p.GetMessage(); objects[id] || p.GetAdvice() == "" {
					t.Errorf("twice, or without advice: %v", p)
				} else {
					objects[id] = true
				}
			}
		})
	}
}

func TestSaysWhyNoEndpointIsReady(t *testing.T) {
	noEndpoint := func(t *endpoints.Target) *subscriber.Snapshot {
		t.Decision.Endpoints, t.Input.Current, t.Input.Sources[0].Members = nil, nil, nil
		return &t.Sources[0]
	}
	for name, c := range map[string]struct {
		alter func(*targets.Resolution, *endpoints.Target)
		want  []string
	}{
		"the export is not granted": {func(_ *targets.Resolution, t *endpoints.Target) {
			s := noEndpoint(t)
			s.EverSynced, t.Input.Sources[0].EverSynced, s.Denial = false, false, "not you"
		}, []string{
			"NoReadyEndpoints: No endpoint is ready",
			"SourceNotSynced: Source blue has not synced: request rejected: not you",
		}},
		"there is no export": {func(_ *targets.Resolution, t *endpoints.Target) {
			s := noEndpoint(t)
			s.EverSynced, t.Input.Sources[0].EverSynced, s.Connected = false, false, true
			s.Membership = subscriber.PartStatus{State: subscriber.Unsynced, Reason: "service web/shop is not exported"}
		}, []string{
			"NoReadyEndpoints: No endpoint is ready",
			"SourceNotSynced: Source blue has not synced: service web/shop is not exported",
		}},
		"the same, and endpoints are kept": {func(_ *targets.Resolution, t *endpoints.Target) {
			t.Sources[0].EverSynced, t.Sources[0].Denial = false, "not you"
			t.Decision.Guards = []verdict.Guard{{Rule: verdict.RuleInitialSync, Source: "blue", Message: "Source blue has not synced; 1 is kept."}}
		}, []string{"SourceNotSynced: Source blue has not synced; 1 is kept: request rejected: not you"}},
		"the selector matches nothing": {func(v *targets.Resolution, t *endpoints.Target) {
			noEndpoint(t).Nodes = 2
			v.Settings.NodeSelector = labels.Everything()
		}, []string{
			"NoReadyEndpoints: No endpoint is ready: no source reports an address for it",
			"NoNodeSelected: slicefeed.dev/node-selector selects none of 2 nodes",
		}},
		"too many": {func(_ *targets.Resolution, t *endpoints.Target) {
			noEndpoint(t)
			t.Input.Sources[0].Unusable = "it reports more than 2 endpoints (MAX_ENDPOINTS)"
		}, []string{"NoReadyEndpoints: No endpoint is ready: source blue: it reports more than 2 endpoints (MAX_ENDPOINTS)"}},
		"its probe fails": {func(_ *targets.Resolution, t *endpoints.Target) {
			members := t.Input.Sources[0].Members
			noEndpoint(t)
			t.Input.Sources[0].Members = members
		}, []string{"NoReadyEndpoints: No endpoint is ready"}},
	} {
		t.Run(name, func(t *testing.T) {
			view, target := targets.Resolution{Target: targets.Target{State: targets.Managed}}, newTarget("shop", "10.0.0.1")
			target.Decision.Write = true
			c.alter(&view, &target)
			var got []string
			for _, p := range OfService(view, &target, false) {
				got = append(got, p.GetReason()+": "+p.GetMessage())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func twoGuards() []verdict.Guard {
	return []verdict.Guard{
		{Rule: verdict.RuleAllowlist, Source: "a", Message: "A lies."},
		{Rule: verdict.RuleTrust, Source: "a", Message: "A is silent."},
		{Rule: verdict.RuleTrust, Source: "b", Message: "B is silent."},
	}
}

// withPorts has the source report ports of a Service that targets 8080/TCP.
func withPorts(protocol string, numbers ...uint16) func(*targets.Resolution, *endpoints.Target) {
	return func(v *targets.Resolution, t *endpoints.Target) {
		v.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}}
		member := &verdict.Member{}
		for _, number := range numbers {
			member.Serves = append(member.Serves, contract.Port{Protocol: protocol, Number: number})
		}
		t.Sources[0].Members = []*verdict.Member{member}
	}
}

func TestEachGuardHasAReason(t *testing.T) {
	seen := map[string]bool{}
	for _, rule := range verdict.GuardOrder {
		if reason := GuardReasons[rule]; reason == "" || seen[reason] {
			t.Errorf("guard %s has reason %q", rule, reason)
		} else {
			seen[reason] = true
		}
	}
}

func TestMetricsShowProblemsAndSinceWhen(t *testing.T) {
	store, start := endpoints.NewStore("epoch"), time.Unix(1_000_000, 0)
	reg := prometheus.NewRegistry()
	reg.MustRegister(Metrics{store})
	problem := func(level report.Level, reason string) *report.Problem {
		return report.NewProblem(level, reason, "Service web/blue", "It is so.")
	}
	note, unready, ill := problem(report.Note, "TrafficDistribution"), problem(report.Error, "NoReadyEndpoints"),
		problem(report.Error, "ExternalName")
	var health endpoints.Health
	for _, step := range []struct {
		name     string
		state    endpoints.State
		problems []*report.Problem
		since    float64 // of the Service; 0: it is healthy
		each     []int   // hours after the start
	}{
		{"no endpoint is ready", endpoints.Managed, []*report.Problem{unready, note}, 1_000_000, []int{0, 0}},
		{"an hour later it is rejected", endpoints.Rejected, []*report.Problem{ill}, 1_000_000, []int{1}},
		{"then it is healthy", endpoints.Managed, []*report.Problem{note}, 0, []int{2}},
		{"and unhealthy again", endpoints.Managed, []*report.Problem{unready, note}, 1_010_800, []int{3, 2}},
	} {
		hours := int(start.Sub(time.Unix(1_000_000, 0)).Hours())
		health = health.With(step.problems, start)
		target := endpoints.Target{Namespace: "web", Service: "blue", State: step.state, Health: health}
		if step.state == endpoints.Managed {
			target.Sources = []subscriber.Snapshot{{Source: "a"}}
			target.Decision = verdict.Decision{Endpoints: []verdict.Endpoint{
				{Address: netip.MustParseAddr("10.0.1.7"), Listed: true, Conditions: verdict.Conditions{Ready: true, Serving: true}},
				{Address: netip.MustParseAddr("10.0.1.8")},
			}, Guards: []verdict.Guard{{Rule: verdict.RuleShrink, Held: 2}, {Rule: verdict.RuleShrink, Source: "b", Held: 1}}}
		}
		store.Put(target)
		var each []int
		for _, at := range health.Since {
			each = append(each, hours-int(start.Sub(at).Hours()))
		}
		start = start.Add(time.Hour)
		if !slices.Equal(each, step.each) {
			t.Errorf("%s: since hours %v, want %v", step.name, each, step.each)
		}
		want := map[string]float64{
			"target_healthy": gaugeValue(step.since == 0), "target_unhealthy_since_timestamp_seconds": step.since,
			"target_managed": gaugeValue(step.state == endpoints.Managed),
		}
		for _, p := range step.problems {
			want["target_problem "+strings.ToLower(strings.TrimPrefix(p.GetLevel().String(), "LEVEL_"))+" "+p.GetReason()] = 1
		}
		if step.state == endpoints.Managed {
			for _, rule := range verdict.GuardOrder {
				want["guard_held_endpoints "+string(rule)] = 0
			}
			want["guard_held_endpoints "+string(verdict.RuleShrink)] = 3
			want["endpoints ready"], want["endpoints draining"], want["endpoints not_ready"] = 1, 0, 0
		}
		if diff := cmp.Diff(want, gather(t, reg)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	if store.Remove("web", "blue"); len(gather(t, reg)) != 0 {
		t.Error("a target that is gone has series")
	}
	store.Put(endpoints.Target{Namespace: "web", Service: "blue", State: endpoints.ReadOnly})
	if len(gather(t, reg)) != 0 {
		t.Error("a Service of others has series")
	}
}

// gather returns each series of web/blue by its name and other labels.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "slicefeed_writer_")
			for _, l := range m.GetLabel() {
				if l.GetName() != "namespace" && l.GetName() != "service" {
					name += " " + l.GetValue()
				}
			}
			all[name] = m.GetGauge().GetValue()
		}
	}
	return all
}

package warnings

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func over(reason, guard, source string) events.Recovery {
	return events.Recovery{Reason: reason, Note: "Guard " + guard + " (source " + source + ") no longer holds endpoints of this Service."}
}

func TestReportsGuardOfEachSource(t *testing.T) {
	got := guardWarnings([]verdict.Guard{
		{Rule: verdict.RuleAllowlist, Source: "a", Message: "A lies."},
		{Rule: verdict.RuleTrust, Source: "a", Message: "A is silent."},
		{Rule: verdict.RuleTrust, Source: "b", Message: "B is silent."},
	})
	want := []events.Warning{
		{Reason: "AddressNotAllowed", Source: "a", Action: "Hold", Note: "A lies.", Recovery: over("AllowlistGuardOver", "allowlist", "a")},
		{
			Reason:    "SourceNotTrusted",
			Source:    "a",
			Action:    "Hold",
			Note:      "A is silent.",
			Transient: true,
			Recovery:  over("TrustGuardOver", "trust", "a"),
		},
		{
			Reason:    "SourceNotTrusted",
			Source:    "b",
			Action:    "Hold",
			Note:      "B is silent.",
			Transient: true,
			Recovery:  over("TrustGuardOver", "trust", "b"),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReportsPortThatTheSourceDoesNotHave(t *testing.T) {
	tcp, number := corev1.ProtocolTCP, int32(8080)
	target := targets.Target{Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: &tcp, Port: &number}}}
	for _, tt := range []struct {
		name     string
		ports    []contract.Port
		reporter bool
	}{
		{"the source knows no ports", nil, false},
		{"it has this one", []contract.Port{{Protocol: "TCP", Number: 9090}, {Protocol: "TCP", Number: 8080}}, false},
		{"it has another", []contract.Port{{Protocol: "TCP", Number: 9090}}, true},
		{"it has it by another protocol", []contract.Port{{Protocol: "UDP", Number: 8080}}, true},
	} {
		if got := portWarnings(
			subscriber.Snapshot{Source: "default", Members: []*subscriber.Member{{Ports: tt.ports}}},
			target,
		); (len(got) == 1) != tt.reporter {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestOnlyUnsyncedAndUntrustedSourcesAreTransientWarnings(t *testing.T) {
	for _, rule := range verdict.GuardOrder {
		event := guardEvents[rule]
		if event.reason == "" || event.action == "" {
			t.Errorf("guard %s has no reason or no action: the API server rejects such an Event", rule)
		}
		if event.over == "" {
			t.Errorf("guard %s has no recovery", rule)
		}
		got := guardWarnings([]verdict.Guard{{Rule: rule, Source: "blue", Message: "held"}})
		want := []events.Warning{
			{
				Reason:    event.reason,
				Source:    "blue",
				Action:    event.action,
				Note:      "held",
				Transient: event.reason == "SourceNotSynced" || event.reason == "SourceNotTrusted",
				Recovery:  guardRecovery(&verdict.Guard{Rule: rule, Source: "blue"}),
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestRemarksSayWhatAServiceAsksForInVain(t *testing.T) {
	for name, c := range map[string]struct {
		target targets.Target
		want   []string // reasons
	}{
		"nothing":                            {targets.Target{}, nil},
		"trafficDistribution":                {targets.Target{TrafficDistribution: "PreferClose"}, []string{"TrafficDistribution"}},
		"publishNotReadyAddresses":           {targets.Target{PublishNotReadyAddresses: true, Settings: targets.Settings{ListUnready: true}}, []string{"PublishNotReadyAddresses"}},
		"publishNotReadyAddresses, unlisted": {targets.Target{PublishNotReadyAddresses: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range OfTarget(targets.Resolution{Target: c.target}, nil) {
				got = append(got, w.Reason)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

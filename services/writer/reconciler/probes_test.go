package reconciler

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestRemovedEndpointsAreProbedWhileTheyAreListed(t *testing.T) {
	f := newFixture(targets.Resolution{})
	leaving, served, denied := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	s := &state{decision: verdict.Decision{Endpoints: []verdict.Endpoint{
		{Address: leaving, Verdict: verdict.Remove, Rule: verdict.RuleTrust},
		{Address: served, Verdict: verdict.Serve, Rule: verdict.RuleTable},
		{Address: denied, Verdict: verdict.Remove, Rule: verdict.RuleAllowlist},
	}}}
	view := targets.Resolution{Target: targets.Target{ProbePort: 30080, Settings: targets.Settings{Probe: probe.Spec{Mode: probe.TCP}}}}
	off := targets.Resolution{}
	off.Target.Settings.Probe.Mode = probe.Off
	for _, tt := range []struct {
		name    string
		view    targets.Resolution
		current []netip.Addr
		want    []netip.Addr
		changed bool
	}{
		{"all are listed", view, []netip.Addr{leaving, served, denied}, []netip.Addr{leaving, served}, true},
		{"nothing has changed", view, []netip.Addr{leaving, served, denied}, []netip.Addr{leaving, served}, false},
		{"one is removed", view, []netip.Addr{served}, []netip.Addr{served}, true},
		{"probing is off", off, []netip.Addr{served}, nil, true},
	} {
		var current []verdict.CurrentEndpoint
		for _, a := range tt.current {
			current = append(current, verdict.CurrentEndpoint{Address: a})
		}
		if changed := f.setProbes(fixtureKey, s, tt.view, current); changed != tt.changed || !slices.Equal(f.prober.probed, tt.want) {
			t.Errorf("%s: probed are %v, changed: %t; want %v, %t", tt.name, f.prober.probed, changed, tt.want, tt.changed)
		}
	}
}

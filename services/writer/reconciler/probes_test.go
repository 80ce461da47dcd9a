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
	at30080 := verdict.Ports{Probe: 30080}
	s := &state{decision: verdict.Decision{Endpoints: []verdict.Endpoint{
		{Address: leaving, Ports: at30080, Verdict: verdict.Remove, Rule: verdict.RuleTrust},
		{Address: served, Ports: at30080, Verdict: verdict.Serve, Rule: verdict.RuleTable},
		{Address: denied, Ports: at30080, Verdict: verdict.Remove, Rule: verdict.RuleAllowlist},
	}}}
	view := targets.Resolution{
		Target: targets.Target{Configured: anyPort, ProbePort: 30080, Settings: targets.Settings{Probe: probe.Spec{Mode: probe.TCP}}},
	}
	off := targets.Resolution{}
	off.Settings.Probe.Mode = probe.Off
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
		s.basis = basis{view: tt.view, input: verdict.Input{Current: current}}
		if changed := f.setProbes(s); changed != tt.changed || !slices.Equal(f.prober.probed, tt.want) {
			t.Errorf("%s: probed are %v, changed: %t; want %v, %t", tt.name, f.prober.probed, changed, tt.want, tt.changed)
		}
	}
}

// This is the last gate before a probe, whatever came before it.
func TestNoProbeGoesToAPortThatIsNotAllowed(t *testing.T) {
	at := func(port uint16, others ...verdict.Ports) verdict.Endpoint {
		return verdict.Endpoint{
			Address: netip.MustParseAddr("10.0.0.1"),
			Verdict: verdict.Serve,
			Ports:   verdict.Ports{Probe: port},
			Others:  others,
		}
	}
	allows := func(_ string, port uint16) bool { return port >= 30000 }
	for _, tt := range []struct {
		e    verdict.Endpoint
		want []uint16
	}{
		{at(30080), []uint16{30080}},
		{at(22), nil},
		{at(0), nil},
		{at(30081, verdict.Ports{Probe: 30080}), []uint16{30080, 30081}},
		{at(30081, verdict.Ports{Probe: 22}), []uint16{30081}},
		{at(30081, verdict.Ports{Probe: 30081}), []uint16{30081}},
	} {
		var got []uint16
		for _, r := range requests(probe.Spec{Mode: probe.TCP}, []verdict.Endpoint{tt.e}, nil, allows) {
			got = append(got, r.Key.Port)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v is probed at %v, want %v", tt.e, got, tt.want)
		}
	}
}

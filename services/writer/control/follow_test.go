package control

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// asked notes which addresses are probed.
type asked struct {
	probes

	addresses map[netip.Addr]bool
}

func (a *asked) Set(_ string, requests []prober.Request) {
	a.addresses = map[netip.Addr]bool{}
	for _, request := range requests {
		a.addresses[request.Key.Address] = true
	}
}

func TestWhatIsToGoIsProbedUntilTheSlicesListItNoMore(t *testing.T) {
	a := &asked{}
	shared := newStages(Config{Prober: a, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	one := &control{stages: shared, key: targets.Key{Namespace: "web", Name: "shop"}, changed: make(chan struct{}, 1)}
	gone, serves, denied := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	judged := []verdict.Endpoint{
		{Address: gone, Verdict: verdict.Remove, Rule: verdict.RuleTrust},
		{Address: serves, Verdict: verdict.Serve, Rule: verdict.RuleTable},
		{Address: denied, Verdict: verdict.Remove, Rule: verdict.RuleAllowlist},
	}
	spec := prober.Spec{Mode: prober.TCP}
	one.follow(spec, 30080, judged, []verdict.CurrentEndpoint{{Address: gone}, {Address: serves}, {Address: denied}})
	if !a.addresses[gone] || !a.addresses[serves] || a.addresses[denied] {
		t.Errorf("while all are listed, %v are probed", a.addresses)
	}
	one.follow(spec, 30080, judged, []verdict.CurrentEndpoint{{Address: serves}})
	if a.addresses[gone] || !a.addresses[serves] {
		t.Errorf("when one is listed no more, %v are probed", a.addresses)
	}
}

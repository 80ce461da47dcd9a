package endpoints

import (
	"encoding/hex"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

func publishedEndpoint() *publishedState {
	return &publishedState{
		TargetStatus: TargetStatus{State: Managed, Ports: []Port{{"http", "TCP", 30080, "h2c", 0}}},
		backends:     []Backend{{mustParseAddr("10.0.0.1"), ready, "default", "z", "", 0}},
	}
}

func TestR4FingerprintIsStableAcrossProcesses(t *testing.T) {
	e := publishedEndpoint().encodeEntries(ServiceName{"web", "a"}, false)[1]
	// A golden value: if two versions of the writer differ here, every client reads its complete set
	// again after an upgrade.
	f := e.Fingerprint
	checkEqual(t, "fingerprint", hex.EncodeToString(f[:]), "f47c5083908ab0c5555915a204ba180a")
}

func TestR4FingerprintCoversPublishedFields(t *testing.T) {
	seen := map[contract.Digest]string{}
	check := func(what string, at int, p *publishedState, of ServiceName, grouped bool) {
		t.Helper()
		f := p.encodeEntries(of, grouped)[at].Fingerprint
		if other, twice := seen[f]; twice {
			t.Errorf("%s and %s have one fingerprint", what, other)
		}
		seen[f] = what
	}
	web := ServiceName{"web", "a"}
	check("an endpoint", 1, publishedEndpoint(), web, false)
	check("another namespace", 1, publishedEndpoint(), ServiceName{"mail", "a"}, false)
	check("another service", 1, publishedEndpoint(), ServiceName{"web", "b"}, false)
	check("a group", 1, publishedEndpoint(), web, true)
	for what, alter := range map[string]func(*Port, *Backend){
		"port's name":  func(p *Port, _ *Backend) { p.Name = "x" },
		"protocol":     func(p *Port, _ *Backend) { p.Protocol = "UDP" },
		"number":       func(p *Port, _ *Backend) { p.Number++ },
		"app protocol": func(p *Port, _ *Backend) { p.AppProtocol = "x" },
		"service port": func(p *Port, _ *Backend) { p.ServicePort = 1 },
		"address":      func(_ *Port, b *Backend) { b.Address = mustParseAddr("10.0.0.2") },
		"ready":        func(_ *Port, b *Backend) { b.Conditions.Ready = false },
		"serving":      func(_ *Port, b *Backend) { b.Conditions.Serving = false },
		"terminating":  func(_ *Port, b *Backend) { b.Conditions.Terminating = true },
		"source":       func(_ *Port, b *Backend) { b.Source = "x" },
		"zone":         func(_ *Port, b *Backend) { b.Zone = "x" },
		"hostname":     func(_ *Port, b *Backend) { b.Hostname = "x" },
	} {
		p := publishedEndpoint()
		alter(&p.Ports[0], &p.backends[0])
		check(what, 1, p, web, false)
		check(what+" in a group", 1, p, web, true)
	}
	two := publishedEndpoint()
	two.backends = append(two.backends, Backend{Address: mustParseAddr("10.0.0.2")})
	check("another backend of a group", 1, two, web, true)
	for what, alter := range map[string]func(*TargetStatus){
		"a target":    func(*TargetStatus) {},
		"its state":   func(s *TargetStatus) { s.State = Paused },
		"its reason":  func(s *TargetStatus) { s.Reason = "x" },
		"its message": func(s *TargetStatus) { s.Message = "x" },
		"its type":    func(s *TargetStatus) { s.ServiceType = "x" },
		"its ports":   func(s *TargetStatus) { s.Ports = append(s.Ports, Port{Name: "x"}) },
	} {
		p := publishedEndpoint()
		alter(&p.TargetStatus)
		check(what, 0, p, web, false)
	}
}

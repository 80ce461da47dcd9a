package endpoints

import (
	"encoding/hex"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
)

func TestR4FingerprintIsStableAcrossProcesses(t *testing.T) {
	e := &Entry{
		Key: "web/a/http/10.0.0.1", Namespace: "web", Service: "a", Kind: KindEndpoint, Port: Port{"http", "TCP", 30080, "h2c", 0},
		Backends: []Backend{{mustParseAddr("10.0.0.1"), ready, "default", "z", "", 0}},
	}
	// A golden value: if two versions of the writer differ here, every client reads its complete set
	// again after an upgrade.
	e.setFingerprint()
	f := e.Fingerprint
	checkEqual(t, "fingerprint", hex.EncodeToString(f[:]), "0dfc2ef020f31dae867f49659405316d")
}

func TestR4FingerprintCoversPublishedFields(t *testing.T) {
	seen := map[deltaset.Digest]string{}
	for what, alter := range map[string]func(*Entry){
		"nothing":      func(*Entry) {},
		"namespace":    func(e *Entry) { e.Namespace = "mail" },
		"service":      func(e *Entry) { e.Service = "b" },
		"kind":         func(e *Entry) { e.Kind = KindGroup },
		"port's name":  func(e *Entry) { e.Port.Name = "x" },
		"protocol":     func(e *Entry) { e.Port.Protocol = "UDP" },
		"number":       func(e *Entry) { e.Port.Number++ },
		"app protocol": func(e *Entry) { e.Port.AppProtocol = "h2c" },
		"address":      func(e *Entry) { e.Backends[0].Address = mustParseAddr("10.0.0.2") },
		"another":      func(e *Entry) { e.Backends = append(e.Backends, Backend{Address: mustParseAddr("10.0.0.2")}) },
		"ready":        func(e *Entry) { e.Backends[0].Conditions.Ready = false },
		"serving":      func(e *Entry) { e.Backends[0].Conditions.Serving = false },
		"terminating":  func(e *Entry) { e.Backends[0].Conditions.Terminating = true },
		"source":       func(e *Entry) { e.Backends[0].Source = "x" },
		"zone":         func(e *Entry) { e.Backends[0].Zone = "x" },
		"hostname":     func(e *Entry) { e.Backends[0].Hostname = "x" },
		"left out":     func(e *Entry) { e.Omitted = 1 },
		"a target":     func(e *Entry) { e.Kind = KindTarget },
		"its state":    func(e *Entry) { e.Kind, e.State = KindTarget, Paused },
		"its reason":   func(e *Entry) { e.Kind, e.Reason = KindTarget, "x" },
		"its message":  func(e *Entry) { e.Kind, e.Message = KindTarget, "x" },
		"its ports":    func(e *Entry) { e.Kind, e.Ports = KindTarget, []Port{{}} },
	} {
		e := &Entry{
			Namespace: "web",
			Service:   "a",
			Kind:      KindEndpoint,
			Port:      Port{"http", "TCP", 1, "", 0},
			Backends:  []Backend{{mustParseAddr("10.0.0.1"), ready, "s", "", "", 0}},
		}
		alter(e)
		e.setFingerprint()
		f := e.Fingerprint
		if other, twice := seen[f]; twice {
			t.Errorf("%s and %s have one fingerprint", what, other)
		}
		seen[f] = what
	}
}

package endpoints

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
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

// Each case is one address of a target. Its source is synced and connected and lists the address as
// ready, unless the case changes that.
func TestExplainsAddressWithAdvice(t *testing.T) {
	address := mustParseAddr("10.0.0.1")
	type world struct {
		target  Target
		source  *verdict.Source
		decided *verdict.Endpoint
		probe   verdict.Probe
	}
	guard := func(rule verdict.Rule) func(*world) {
		return func(w *world) {
			w.decided.Rule, w.decided.Verdict = rule, verdict.Hold
			w.target.Decision.Guards = []verdict.Guard{
				{Rule: verdict.RuleTrust, Source: "another", Message: "Not this."},
				{Rule: rule, Source: "default", Held: 1, Message: "See here."},
			}
		}
	}
	outBy := func(v verdict.Verdict, then func(*world)) func(*world) {
		return func(w *world) {
			w.decided.Verdict, w.decided.Conditions = v, out
			then(w)
		}
	}
	member := func(s verdict.State) func(*world) { return func(w *world) { w.source.Members[0].State = s } }
	for _, c := range []struct {
		name   string
		alter  func(*world)
		says   string
		advice string // part of it; empty: there is none
	}{
		{"all is well", func(*world) {}, "Listed as ready by source and probe.", ""},
		{"a guard", guard(verdict.RuleShrink), "Guard shrink holds a change: still listed as ready.", "See here."},
		{"the floor", guard(verdict.RuleFloor), "because no other endpoint would be ready", "See here."},
		{"the allowlist", func(w *world) {
			guard(verdict.RuleAllowlist)(w)
			w.decided.Listed, w.decided.Verdict = false, verdict.Remove
		}, "Not allowed by the allowlist: not listed.", "See here."},
		{"the probe fails", outBy(verdict.Unready, func(w *world) {
			w.probe = verdict.Probe{Status: verdict.Failing, Detail: "connection refused"}
		}), "Listed as not ready", "The probe fails: connection refused."},
		{"pending", func(w *world) {
			w.probe = verdict.Probe{}
			w.decided.Verdict, w.decided.Listed = verdict.Hold, false
		}, "Not listed yet", "The probe status is pending."},
		{"the source is silent", outBy(verdict.Hold, func(w *world) {
			w.source.Connected = false
			w.target.Sources[0].Connected = false
		}), "Unchanged: listed as not ready.", "link down"},
		{"not ready", outBy(verdict.Unready, member(verdict.NotReady)), "Listed as not ready", "slicefeed-inventory explain worker-1"},
		{"draining", func(w *world) {
			member(verdict.Draining)(w)
			w.decided.Verdict, w.decided.Conditions = verdict.Drain, draining
		}, "Listed as draining", "Node worker-1 is draining"},
		{"a state of a newer inventory", outBy(verdict.Hold, member(verdict.Unknown)), "Unchanged", "Update the writer"},
		{"the source reports no port of the Service", outBy(verdict.Hold, func(w *world) {
			member(verdict.Unknown)(w)
			w.decided.Rule, w.decided.Listed = verdict.RuleTrust, false
			w.source.MembershipSynced, w.source.Unusable = true, "no port is reported"
		}), "Not listed yet", "no port is reported"},
		{"no source lists it", func(w *world) {
			w.source.Members, w.target.Decision.Endpoints = nil, nil
		}, "No source and no slice lists this address", "slicefeed-inventory explain NODE"},
		{"a source that has not synced", func(w *world) {
			w.source.EverSynced, w.target.Decision.Endpoints = false, nil
		}, "No source and no slice lists this address", "Source default has not synced"},
		{"paused", func(w *world) { w.target.State = Paused }, "Service is paused; nothing is written. Its slices do not list the address.", "slicefeed.dev/paused"},
		{"rejected", func(w *world) {
			w.target.State, w.target.Reason, w.target.Message = Rejected, "ServiceHasSelector", "Remove it."
		}, "Service is rejected (ServiceHasSelector); nothing is written. Its slices do not list the address.", "Remove it."},
		{"rejected, and its endpoints follow their probes", func(w *world) {
			w.target.State, w.target.Reason, w.target.Message, w.target.FollowsProbes = Rejected, "ServiceHasSelector", "Remove it.", true
		}, "Service is rejected (ServiceHasSelector); no endpoints are added, and failing ones still become not ready. Its slices do not list the address.", "Remove it."},
		{"a standby", func(w *world) { w.target.Leading = false }, "This writer is a standby", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world{target: managedTarget("a", ready, "10.0.0.1"), probe: verdict.Probe{Status: verdict.Passing}}
			w.decided = &w.target.Decision.Endpoints[0]
			w.decided.Verdict, w.decided.Rule = verdict.Serve, verdict.RuleTable
			sources := []verdict.Source{{
				Name: "default", EverSynced: true, Connected: true,
				Members: []verdict.Member{{Address: address, Name: "worker-1", State: verdict.Ready, Since: time.Unix(1, 0)}},
			}}
			w.source = &sources[0]
			w.target.Sources = []subscriber.Snapshot{{Source: "default", EverSynced: true, SyncedInStream: true, Connected: true}}
			c.alter(&w)
			w.probe.Address = address
			w.target.Input = verdict.Input{
				Sources: sources, Limits: verdict.Limits{Probing: true}, Probes: []verdict.Probe{w.probe},
			}
			b := NewStore("instance")
			b.Put(w.target)
			e, known := b.Explain(ServiceName{"web", "a"}, address, time.Unix(100, 0))
			if !known || !strings.Contains(e.Conclusion, c.says) || !strings.Contains(e.Advice, c.advice) ||
				(c.advice == "") != (e.Advice == "") {
				t.Errorf("known %t, it says:\n%s\n%s\nwant:\n%s\n%s", known, e.Conclusion, e.Advice, c.says, c.advice)
			}
		})
	}
	if _, known := NewStore("instance").Explain(ServiceName{"web", "a"}, address, time.Unix(100, 0)); known {
		t.Error("a Service that is no target is explained")
	}
}

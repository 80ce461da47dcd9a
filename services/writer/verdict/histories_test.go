package verdict

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The histories that broke earlier drafts of the rules, by their number.
func TestHistories(t *testing.T) {
	for _, h := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"1: the prober's host loses its network: the only node stays ready", func(t *testing.T) {
			w := newWorld(t, 1)
			w.see("at rest", "0:ready")
			w.probe(0, Failing)
			w.see("it fails", "0:ready")
			w.wantGuards("panic 1")
		}},
		{"2: the prober is broken and a node is deleted: that one goes, the other stays", func(t *testing.T) {
			w := newWorld(t, 2)
			w.shrinks()
			w.pass(5 * time.Second)
			w.fail(w.now, 0, 1)
			w.see("all fail", "0:ready 1:ready")
			w.pass(5 * time.Second)
			w.unlist("blue", 0)
			w.observe("blue")
			w.see("0 is deleted", "1:ready")
			w.pass(5 * time.Minute)
			w.see("for as long as it lasts", "1:ready")
		}},
		{"3: the standby's prober never worked, and it takes over: all stay", func(t *testing.T) {
			w := newWorld(t, 2)
			w.takeover()
			w.in.Probes = nil
			w.see("nothing is judged", "0:ready 1:ready")
			w.in.Probes = map[netip.Addr]Probe{addr(0): {Status: Failing, Since: w.now}, addr(1): {Status: Failing, Since: w.now}}
			w.see("everything fails from the start", "0:ready 1:ready")
		}},
		{"4: the leader's host is cut off from everything, and its process restarts: all stay", func(t *testing.T) {
			w := newWorld(t, 2)
			w.report("blue", 1, NotReady)
			w.see("at rest", "0:ready 1:ready")
			w.restart()
			w.fail(w.now, 0, 1)
			w.see("blind", "0:ready 1:ready")
			w.wantGuards("initial-sync 2 blue", "panic 2")
		}},
		{"5: failures of a broken prober are noticed one by one: those that are out already get back what they had", func(t *testing.T) {
			w := newWorld(t, 4)
			w.report("blue", 1, Draining)
			w.see("at rest", "0:ready 1:drain 2:ready 3:ready")
			w.pass(5 * time.Second) // all pass for the last time
			broken := w.now.Add(time.Second)
			w.now = w.now.Add(3 * time.Second)
			w.fail(broken, 0, 1)
			w.see("two", "0:out 1:out 2:ready 3:ready")
			w.now = w.now.Add(time.Second)
			w.fail(broken, 2)
			w.see("three", "0:out 1:out 2:out 3:ready")
			w.now = w.now.Add(time.Second)
			w.fail(broken.Add(time.Second), 3)
			w.see("the last", "0:ready 1:drain 2:ready 3:ready")
			w.wantGuards("panic 4")
		}},
		{"5, and those that are out are not listed", func(t *testing.T) {
			w := newWorld(t, 2)
			w.in.Limits.ListUnready = false
			w.pass(5 * time.Second)
			w.now = w.now.Add(3 * time.Second)
			w.fail(w.now, 0)
			w.see("one", "1:ready")
			w.fail(w.now, 1)
			w.see("the other", "0:ready 1:ready")
		}},
		{"6: a node died before the prober broke: it stays out, the others stay ready", func(t *testing.T) {
			w := newWorld(t, 3)
			w.pass(5 * time.Second)
			w.fail(w.now, 0)
			w.see("0 dies", "0:out 1:ready 2:ready")
			w.pass(5 * time.Second)
			w.fail(w.now.Add(time.Second), 1, 2)
			w.see("all fail", "0:out 1:ready 2:ready")
		}},
		{"7: the prober is broken and the feed leaves all but one out: at most the budget leaves", func(t *testing.T) {
			w := newWorld(t, 5)
			w.shrinks()
			w.pass(5 * time.Second)
			w.fail(w.now, 0, 1, 2, 3, 4)
			for n := range 4 {
				w.unlist("blue", n)
			}
			w.observe("blue")
			w.see("two of five", "2:ready 3:ready 4:ready")
			w.wantGuards("panic 1", "shrink 2 blue")
		}},
		{"8: while membership is degraded, an endpoint that died and revived is ready again", func(t *testing.T) {
			w := newWorld(t, 2)
			w.see("at rest", "0:ready 1:ready")
			w.source("blue").MembershipSynced = false
			w.probe(0, Failing)
			w.see("it dies", "0:out 1:ready")
			w.probe(0, Passing)
			w.see("it revives", "0:ready 1:ready")
		}},
		{"8, with a node that was draining: it comes back draining", func(t *testing.T) {
			w := newWorld(t, 2)
			w.report("blue", 0, Draining)
			w.see("it drains", "0:drain 1:ready")
			w.source("blue").MembershipSynced = false
			w.probe(0, Failing)
			w.see("it dies", "0:out 1:ready")
			w.probe(0, Passing)
			w.see("it revives", "0:drain 1:ready")
		}},
		{"8, with a node whose leaving was not written yet: its probe does not bring it back", func(t *testing.T) {
			w := newWorld(t, 2)
			w.probe(0, Failing)
			w.see("it dies", "0:out 1:ready")
			w.unlist("blue", 0)
			w.mem, _ = Decide(w.mem, w.in, w.now) // gone, but the API server is away
			w.source("blue").Connected = false
			w.probe(0, Passing)
			w.see("something answers at its address", "1:ready")
		}},
		{"9: before the first word after a restart, an endpoint that died and revived is ready again", func(t *testing.T) {
			w := newWorld(t, 2)
			w.restart()
			w.see("blind", "0:ready 1:ready")
			w.probe(0, Failing)
			w.see("it dies", "0:out 1:ready")
			w.probe(0, Passing)
			w.see("it revives", "0:ready 1:ready")
			w.wantGuards("initial-sync 2 blue")
		}},
		{"10: link down, 1 fails, then 0 dies, then 1 recovers: 1 is ready and 0 is out", func(t *testing.T) {
			w := newWorld(t, 2)
			w.see("at rest", "0:ready 1:ready")
			w.source("blue").Connected = false
			w.pass(5 * time.Second)
			w.fail(w.now, 1)
			w.see("1 fails", "0:ready 1:out")
			w.pass(5 * time.Second)
			w.fail(w.now.Add(time.Second), 0)
			w.see("0 dies", "0:ready 1:out")
			w.pass(5 * time.Second)
			w.probe(1, Passing)
			w.see("1 recovers", "0:out 1:ready")
		}},
		{"11: the only node is DRAINING and its probe's spec changes: it stays ready", func(t *testing.T) {
			w := newWorld(t, 1)
			w.probe(0, Pending)
			w.report("blue", 0, Draining)
			w.see("not judged", "0:ready")
			w.probe(0, Passing)
			w.see("judged", "0:ready")
			w.wantGuards("floor 1")
		}},
		{"12: the only node is DRAINING and its address changes: the new one is ready once it passes", func(t *testing.T) {
			w := newWorld(t, 1)
			w.shrinks()
			w.report("blue", 0, Draining)
			w.see("draining", "0:ready")
			w.unlist("blue", 0)
			w.report("blue", 7, Draining)
			w.see("the address changes", "0:ready")
			w.probe(7, Passing)
			w.see("the new one passes", "7:ready")
		}},
		{"13: the feed says that both are DRAINING: they stay, and nothing is booked", func(t *testing.T) {
			w := newWorld(t, 2)
			w.shrinks()
			w.report("blue", 0, Draining)
			w.report("blue", 1, Draining)
			w.see("both drain", "0:ready 1:ready")
			w.wantGuards("floor 2")
			w.report("blue", 1, Ready)
			w.see("the whole budget is left", "0:drain 1:ready")
		}},
		{"14: a lie takes half, then there are two takeovers: no more leave in the new leader's first window", func(t *testing.T) {
			w := newWorld(t, 4)
			w.shrinks()
			w.pass(5 * time.Second)
			w.observe("blue")
			for n := range 3 {
				w.unlist("blue", n)
			}
			w.see("a lie", "2:ready 3:ready")
			w.pass(time.Second)
			w.takeover()
			w.observe("blue")
			w.see("a takeover", "2:ready 3:ready")
			w.pass(time.Minute - 1)
			w.observe("blue")
			w.see("just before its first window ends", "2:ready 3:ready")
			w.takeover()
			w.see("another", "2:ready 3:ready")
			w.pass(time.Minute)
			w.see("by time alone", "3:ready")
		}},
		{"15: probing off; an address changes back and forth: each leaving counts, also of joiners", func(t *testing.T) {
			w := newWorld(t, 4)
			w.shrinks()
			w.in.Limits.Probing = false
			w.unlist("blue", 0)
			w.report("blue", 5, Ready)
			w.see("it changes", "1:ready 2:ready 3:ready 5:ready")
			w.unlist("blue", 5)
			w.report("blue", 0, Ready)
			w.see("back", "0:ready 1:ready 2:ready 3:ready")
			w.unlist("blue", 0)
			w.report("blue", 5, Ready)
			w.see("and again: the budget of 2 is used up", "0:ready 1:ready 2:ready 3:ready 5:ready")
			w.wantGuards("shrink 1 blue")
		}},
		{"16: probing off; the only selected node is deleted: gone after three complete observations", func(t *testing.T) {
			w := newWorld(t, 1)
			w.in.Limits.Probing = false
			w.see("at rest", "0:ready")
			w.unlist("blue", 0)
			w.see("deleted", "0:ready")
			w.wantGuards("empty 1 blue")
			for range 3 {
				w.see("until the third observation", "0:ready")
				w.pass(5 * time.Second)
				w.observe("blue")
			}
			w.see("after the third", "")
			w.wantGuards()
		}},
		{"17: probing on, the feed is empty and confirmed: what still answers stays ready, and it is told", func(t *testing.T) {
			w := newWorld(t, 2)
			w.shrinks()
			w.probe(1, Failing)
			w.see("at rest", "0:ready 1:out")
			w.unlist("blue", 0)
			w.unlist("blue", 1)
			for range 3 {
				w.see("not confirmed", "0:ready 1:out")
				w.wantGuards("empty 1 blue")
				w.pass(5 * time.Second)
				w.observe("blue")
			}
			w.see("confirmed", "0:ready")
			w.wantGuards("floor 1")
			w.fail(w.now, 0)
			w.see("it fails, too", "")
		}},
		{"18: what was written last is what is held, also when the link is lost then", func(t *testing.T) {
			w := newWorld(t, 2)
			w.unlist("blue", 0)
			w.report("blue", 7, Ready)
			w.probe(7, Passing)
			w.see("the address changes", "1:ready 7:ready")
			w.source("blue").Connected = false
			w.see("the link is lost", "1:ready 7:ready")
		}},
		{"19: a source that was never synced does not keep another's changes", func(t *testing.T) {
			w := newWorld(t, 2)
			w.in.Sources = append(w.in.Sources, Source{Name: "green", Allowlist: w.source("blue").Allowlist})
			w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(9), Conditions: ready, Source: "green"})
			w.probe(9, Passing)
			w.unlist("blue", 0)
			w.report("blue", 3, Ready)
			w.probe(3, Passing)
			w.see("blue changes", "1:ready 3:ready 9@green:ready")
		}},
		{"20: the inventory restarts and counts from 1: that is newer", func(t *testing.T) {
			w := newWorld(t, 4)
			w.shrinks()
			w.source("blue").Observation = 10_000
			for n := range 3 {
				w.unlist("blue", n)
			}
			w.see("half", "2:ready 3:ready")
			w.pass(time.Minute)
			w.see("nothing new was seen", "2:ready 3:ready")
			if diff := cmp.Diff([]string{"blue"}, w.d.NeedObservations); diff != "" {
				t.Error(diff)
			}
			w.source("blue").Epoch, w.source("blue").Observation = "second", 1
			w.see("the next window opens", "3:ready")
		}},
		{"21: what another source says of an address that bears a label is ignored", func(t *testing.T) {
			w := newWorld(t, 2)
			w.in.Sources = append([]Source{trusted("azure")}, w.in.Sources...)
			w.report("azure", 0, Draining)
			w.see("azure lies", "0:ready 1:ready")
			w.source("blue").Connected = false
			w.see("and while blue is away", "0:ready 1:ready")
			w.source("blue").Connected = true
			w.unlist("blue", 0)
			w.see("blue leaves it out", "0@azure:drain 1:ready")
		}},
		{"22: CIDRs that exclude every held endpoint write nothing, and it is told", func(t *testing.T) {
			w := newWorld(t, 2)
			w.in.Sources = append(w.in.Sources, trusted("green"))
			w.source("blue").Allowlist.CIDRs = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}
			w.report("green", 5, Ready)
			w.probe(5, Passing)
			w.see("typing mistake", "0:ready 1:ready")
			if w.d.Write {
				t.Error("it wants to be written")
			}
			w.wantGuards("allowlist 2")
		}},
		{"22, but not every one: those outside are removed", func(t *testing.T) {
			w := newWorld(t, 2)
			w.source("blue").Allowlist.CIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}
			w.see("one is outside", "1:ready")
		}},
		{"22, and another source may point there: it takes them over", func(t *testing.T) {
			w := newWorld(t, 2)
			w.in.Sources = append(w.in.Sources, trusted("green"))
			w.source("blue").Allowlist.CIDRs = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}
			w.report("green", 0, Ready)
			w.see("one has another source", "0@green:ready")
			w.wantGuards("allowlist 2 blue")
		}},
		{"23: three observations within a second do not confirm an empty set", func(t *testing.T) {
			w := newWorld(t, 1)
			w.in.Limits.Probing = false
			w.see("at rest", "0:ready")
			w.unlist("blue", 0)
			for range 3 {
				w.pass(300 * time.Millisecond)
				w.observe("blue")
				w.see("too soon", "0:ready")
			}
			w.pass(5 * time.Second)
			w.observe("blue")
			w.see("the second that counts", "0:ready")
			w.pass(5 * time.Second)
			w.observe("blue")
			w.see("the third that counts", "")
		}},
		{"24: a new node is listed when its probe passes, and not before", func(t *testing.T) {
			w := newWorld(t, 1)
			w.report("blue", 1, Ready)
			w.see("not judged", "0:ready")
			w.probe(1, Failing)
			w.see("its backend is not up yet", "0:ready")
			w.probe(1, Passing)
			w.see("it is up", "0:ready 1:ready")
		}},
	} {
		t.Run(h.name, h.run)
	}
}

package verdict

import (
	"net/netip"
	"testing"
	"time"
)

// The histories that broke earlier drafts of the rules, as far as fence, gate, empty, trust
// and the table decide them.
func TestHistories(t *testing.T) {
	for _, h := range []struct {
		name string
		tell func(t *testing.T)
	}{
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
			w.tell("blue", 0, Draining)
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
			w.source("blue").Alive = false
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
			w.wantGuards("snapshot-gate 2 blue")
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
		{"18: what was written last is what is held, also when the link is lost then", func(t *testing.T) {
			w := newWorld(t, 2)
			w.unlist("blue", 0)
			w.tell("blue", 7, Ready)
			w.probe(7, Passing)
			w.see("the address changes", "1:ready 7:ready")
			w.source("blue").Alive = false
			w.see("the link is lost", "1:ready 7:ready")
		}},
		{"19: a source that was never synced does not keep another's changes", func(t *testing.T) {
			w := newWorld(t, 2)
			w.in.Sources = append(w.in.Sources, Source{Name: "green", Fence: w.source("blue").Fence})
			w.in.Held = append(w.in.Held, Held{Address: addr(9), Conditions: ready, Source: "green"})
			w.probe(9, Passing)
			w.unlist("blue", 0)
			w.tell("blue", 3, Ready)
			w.probe(3, Passing)
			w.see("blue changes", "1:ready 3:ready 9@green:ready")
		}},
		{"21: what another source says of an address that bears a label is ignored", func(t *testing.T) {
			w := newWorld(t, 2)
			w.in.Sources = append([]Source{trusted("azure")}, w.in.Sources...)
			w.tell("azure", 0, Draining)
			w.see("azure lies", "0:ready 1:ready")
			w.source("blue").Alive = false
			w.see("and while blue is away", "0:ready 1:ready")
			w.source("blue").Alive = true
			w.unlist("blue", 0)
			w.see("blue leaves it out", "0@azure:drain 1:ready")
		}},
		{"22: CIDRs that exclude every held endpoint write nothing, and it is told", func(t *testing.T) {
			w := newWorld(t, 2)
			w.in.Sources = append(w.in.Sources, trusted("green"))
			w.source("blue").Fence.CIDRs = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}
			w.tell("green", 5, Ready)
			w.probe(5, Passing)
			w.see("typing mistake", "0:ready 1:ready")
			if w.d.Write {
				t.Error("it wants to be written")
			}
			w.wantGuards("fence 2")
		}},
		{"22, but not every one: those outside are removed", func(t *testing.T) {
			w := newWorld(t, 2)
			w.source("blue").Fence.CIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}
			w.see("one is outside", "1:ready")
		}},
		{"22, and another source may point there: it takes them over", func(t *testing.T) {
			w := newWorld(t, 2)
			w.in.Sources = append(w.in.Sources, trusted("green"))
			w.source("blue").Fence.CIDRs = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}
			w.tell("green", 0, Ready)
			w.see("one has another source", "0@green:ready")
			w.wantGuards("fence 2 blue")
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
			w.tell("blue", 1, Ready)
			w.see("not judged", "0:ready")
			w.probe(1, Failing)
			w.see("its backend is not up yet", "0:ready")
			w.probe(1, Passing)
			w.see("it is up", "0:ready 1:ready")
		}},
	} {
		t.Run(h.name, h.tell)
	}
}

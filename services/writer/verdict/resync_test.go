package verdict

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// asked sets a resync for now.
func (w *world) asked() { w.in.Limits.Resync = w.now }

// stolen is a Service whose slices list four addresses that no source lists, with a new leader.
func stolen(t testing.TB) *world {
	w := newWorld(t, 2)
	w.shrinks()
	for n := 10; n < 14; n++ {
		w.hold(n, "blue", ready)
		w.probe(n, Passing)
	}
	w.takeover()
	return w
}

const (
	left   = "0:ready 1:ready"
	staysA = "0:ready 1:ready 10:ready 11:ready 12:ready 13:ready"
)

func TestAResyncLetsGoWhatNoSourceLists(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*world)
		want   string
	}{
		{"without one the new leader keeps it", func(*world) {}, staysA},
		{"it goes at once, though the leader is new", func(w *world) { w.asked() }, left},
		{"within ten minutes after its time", func(w *world) {
			w.asked()
			w.now = w.now.Add(10 * time.Minute)
			w.source("blue").MembershipSyncedAt = w.now
			w.in.LeadingSince = w.now
		}, left},
		{"no later", func(w *world) {
			w.asked()
			w.now = w.now.Add(10*time.Minute + time.Second)
			w.source("blue").MembershipSyncedAt = w.now
			w.in.LeadingSince = w.now
		}, staysA},
		{"within ten minutes before it: clocks differ", func(w *world) { w.in.Limits.Resync = w.now.Add(10 * time.Minute) }, left},
		{"no sooner", func(w *world) { w.in.Limits.Resync = w.now.Add(10*time.Minute + time.Second) }, staysA},
		{"not by a standby", func(w *world) { w.asked(); w.in.LeadingSince = time.Time{} }, staysA},
		{"not while its source is not trusted", func(w *world) { w.asked(); w.source("blue").Connected = false }, staysA},
		{"not while another source is not trusted", func(w *world) {
			w.asked()
			w.in.Sources = append(w.in.Sources, trusted("green"))
			w.source("green").MembershipSynced = false
		}, staysA},
		{"the allowlist applies", func(w *world) { w.asked(); w.source("blue").Allowlist.CIDRs = nil }, staysA},
		{"a panic applies: failures take nothing", func(w *world) {
			w.asked()
			w.fail(w.now, 0, 1, 10, 11, 12, 13)
		}, left},
		{"an empty source counts", func(w *world) {
			w.asked()
			w.unlist("blue", 0)
			w.unlist("blue", 1)
		}, ""},
		{"what drains leaves ready at once, and the floor keeps it while nothing else is ready", func(w *world) {
			w.asked()
			w.report("blue", 0, Draining)
			w.report("blue", 1, Draining)
		}, left},
		{"what drains leaves ready at once", func(w *world) {
			w.asked()
			w.report("blue", 0, Draining)
		}, "0:drain 1:ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := stolen(t)
			tt.change(w)
			w.see("resync", tt.want)
		})
	}
}

func TestAResyncIsMadeOncePerLeader(t *testing.T) {
	w := stolen(t)
	w.asked()
	w.see("the first time", left)
	if r := w.d.Resync; !r.Done || r.Removed != 4 || r.Message() == "" {
		t.Errorf("reported as %+v", r)
	}
	again := func() {
		w.hold(10, "blue", ready)
		w.hold(11, "blue", ready)
		w.pass(time.Second)
	}
	again()
	w.see("the second time", "0:ready 1:ready 10:ready 11:ready")
	w.takeover()
	w.see("another leader", left)
	again()
	w.asked()
	w.see("asked again", left)
}

func TestWhatAResyncLetGoStaysFreeUntilItIsWritten(t *testing.T) {
	for name, empty := range map[string]bool{"a source that lists others": false, "an empty source": true} {
		t.Run(name, func(t *testing.T) {
			w, want := stolen(t), left
			if empty {
				w.unlist("blue", 0)
				w.unlist("blue", 1)
				want = ""
			}
			w.asked()
			w.unwritten("the API server is away", want)
			w.pass(20 * time.Minute)
			w.see("it is back", want)
		})
	}
	t.Run("unless its source cannot be trusted any more", func(t *testing.T) {
		w := stolen(t)
		w.asked()
		w.unwritten("the API server is away", left)
		w.source("blue").Connected = false
		w.see("the link is lost", staysA)
		w.source("blue").Connected = true
		w.see("the link is back: the guards apply again", staysA)
	})
}

func TestAResyncSaysWhatItWaitsFor(t *testing.T) {
	w := stolen(t)
	w.asked()
	w.source("blue").Connected = false
	w.see("not trusted", staysA)
	if want := (Resync{WaitingFor: "source blue, link down"}); w.d.Resync != want {
		t.Errorf("%+v, want %+v", w.d.Resync, want)
	}
	w.source("blue").Connected = true
	w.see("trusted again", left)
}

// With any endpoints and reports: a resync with all sources trusted leaves nothing listed that no source lists, adds nothing, and
// without that trust it changes no decision at all.
func TestPropertiesOfAResync(t *testing.T) {
	world := t
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(world, 0)
		w.in.Limits.Probing = rapid.Bool().Draw(t, "probing")
		w.in.Limits.ShrinkWindow = time.Minute
		w.in.Sources = append(w.in.Sources, trusted("green"))
		listed := map[int]bool{}
		for n := range rapid.IntRange(1, 8).Draw(t, "nodes") {
			if rapid.Bool().Draw(t, "listed") {
				listed[n] = true
				w.report(rapid.SampledFrom([]string{"blue", "green"}).Draw(t, "by"), n, State(rapid.IntRange(1, 3).Draw(t, "state")))
			}
			if rapid.Bool().Draw(t, "held") {
				as := rapid.SampledFrom([]Conditions{ready, draining, {}}).Draw(t, "as")
				w.hold(n, rapid.SampledFrom([]string{"blue", "green"}).Draw(t, "label"), as)
			}
			w.probe(n, ProbeStatus(rapid.IntRange(0, 2).Draw(t, "health")))
		}
		all := rapid.Bool().Draw(t, "every source is trusted")
		if !all {
			w.source("green").Connected = false
		}
		w.takeover()
		_, without := Decide(w.mem, w.in, w.now)
		w.asked()
		_, with := Decide(w.mem, w.in, w.now)
		if !all {
			if got, want := picture(held(with)), picture(held(without)); got != want {
				t.Fatalf("with a source that is not trusted: %s, want %s", got, want)
			}
			return
		}
		for _, h := range held(with) {
			for n := range 8 {
				if h.Address == addr(n) && !listed[n] {
					t.Fatalf("%d is listed, which no source lists: %s", n, picture(held(with)))
				}
			}
		}
		if !with.Resync.Done {
			t.Fatalf("%+v", with.Resync)
		}
	})
}

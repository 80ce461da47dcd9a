package verdict

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

func TestWhatIsNotInCanonicalFormIsNeverWritten(t *testing.T) {
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("fd00::1%eth0"), netip.MustParseAddr("::ffff:10.0.0.1")} {
		if alwaysDenied(a) != "not in canonical form" {
			t.Errorf("%s: %q", a, alwaysDenied(a))
		}
	}
}

func TestTheFloorSaysWhetherItKeepsOrLists(t *testing.T) {
	w := newWorld(t, 1)
	w.report("blue", 0, Draining)
	if w.see("the last one drains", "0:ready"); w.endpoint(addr(0)).Verdict != Hold {
		t.Errorf("what is held: %+v", w.endpoint(addr(0)))
	}
	w = newWorld(t, 0)
	w.report("blue", 5, Draining)
	w.probe(5, probe.Passing)
	if w.decide(); w.endpoint(addr(5)).Verdict != Serve || !w.endpoint(addr(5)).Conditions.Ready {
		t.Errorf("what is new: %+v", w.endpoint(addr(5)))
	}
}

func TestAnyPassingProbeIsReported(t *testing.T) {
	for failing := range 3 {
		w := newWorld(t, 3)
		for n := range 3 {
			if n != failing {
				w.probe(n, probe.Failing)
			}
		}
		if w.decide(); !w.d.AnyPassing {
			t.Errorf("only the probe of %d passes, and nothing is seen", failing)
		}
	}
}

// The name decides which source owns a new address.
func TestFirstOfSeveralSuppressedSourcesOwnsNewAddress(t *testing.T) {
	w := newWorld(t, 1)
	for _, name := range []string{"green", "red"} {
		w.in.Sources = append(w.in.Sources, trusted(name))
		w.source(name).Connected = false
		w.report(name, 5, Ready)
	}
	if w.decide(); w.endpoint(addr(5)).Source != "green" {
		t.Errorf("got %+v", w.endpoint(addr(5)))
	}
}

func TestZoneAndHostnameAreWrittenWithTheConditions(t *testing.T) {
	w := newWorld(t, 1)
	w.in.Current[0].Zone, w.source("blue").Members[0].Zone = "old", "new"
	w.in.Current[0].Hostname, w.source("blue").Members[0].Hostname = "db-old", "db-new"
	w.probe(0, probe.Pending)
	if w.decide(); w.endpoint(addr(0)).Zone != "old" || w.endpoint(addr(0)).Hostname != "db-old" {
		t.Errorf("as it was: %+v", w.endpoint(addr(0)))
	}
	w.probe(0, probe.Passing)
	if w.decide(); w.endpoint(addr(0)).Zone != "new" || w.endpoint(addr(0)).Hostname != "db-new" {
		t.Errorf("decided upon: %+v", w.endpoint(addr(0)))
	}
}

func TestASourceIsEmptyIfNothingOfItCouldServe(t *testing.T) {
	for _, of := range []struct {
		state  State
		health probe.Health
		empty  bool
	}{
		{Ready, probe.Failing, false},
		{Draining, probe.Failing, false},
		{Unknown, probe.Failing, false},
		{NotReady, probe.Failing, true},
		{NotReady, probe.Passing, false},
		{NotReady, probe.Pending, true},
	} {
		w := newWorld(t, 1)
		w.report("blue", 0, of.state)
		w.probe(0, of.health)
		if got := newEvaluation(Memory{}, w.in, w.now).isEmpty(0); got != of.empty {
			t.Errorf("state %d, health %d: empty is %t, want %t", of.state, of.health, got, of.empty)
		}
	}
}

// An address that is new has no memory, though its neighbor does: the oldest report leaves first.
func TestAddressDoesNotInheritItsNeighborsMemory(t *testing.T) {
	w := newWorld(t, 0)
	w.shrinks()
	for _, n := range []int{1, 2, 3, 4, 10} {
		w.report("blue", n, Ready)
		w.probe(n, probe.Passing)
		w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(n), Conditions: ready, Source: "blue"})
	}
	for n := 1; n < 5; n++ {
		w.report("blue", n, Draining)
	}
	w.see("two of four that drain", "1:drain 2:drain 3:ready 4:ready 10:ready")
	w.pass(2 * time.Minute)
	w.observe("blue")
	w.report("blue", 0, Draining)
	w.probe(0, probe.Passing)
	w.in.Current = append([]CurrentEndpoint{{Address: addr(0), Conditions: ready, Source: "blue"}}, w.in.Current...)
	w.see("those who wait go before the one that has just come", "0:ready 1:drain 2:drain 3:drain 4:drain 10:ready")
}

// A mistake of the caller must not lead to wrong slices.
func TestTheOrderOfTheInputMakesNoDifference(t *testing.T) {
	w := newWorld(t, 4)
	w.in.Sources = append(w.in.Sources, trusted("green"))
	w.report("green", 2, Ready)
	w.report("green", 6, Ready)
	w.report("blue", 6, Ready) // the first by name has it
	w.probe(6, probe.Passing)
	w.unlist("blue", 3)
	_, want := Decide(Memory{}, w.in, w.now)

	reversed := w.in
	reversed.Current, reversed.Sources = slices.Clone(w.in.Current), slices.Clone(w.in.Sources)
	slices.Reverse(reversed.Current)
	slices.Reverse(reversed.Sources)
	for i := range reversed.Sources {
		reversed.Sources[i].Members = slices.Clone(reversed.Sources[i].Members)
		slices.Reverse(reversed.Sources[i].Members)
	}
	last := reversed.Current[0]
	_, got := Decide(Memory{}, reversed, w.now)
	if diff := cmp.Diff(want, got, byValue); diff != "" {
		t.Errorf("reversed (-in order +reversed):\n%s", diff)
	}
	if reversed.Current[0] != last || reversed.Sources[0].Name != "green" {
		t.Error("the caller's own slices were sorted")
	}
}

// A consumer uses one family. A broken IPv6 network of the prober must not empty it because IPv4 passes.
func TestEachAddressFamilyHasItsOwnPanicAndFloor(t *testing.T) {
	v6 := func(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00::%d", n+1)) }
	dual := func(t *testing.T) *world {
		w := newWorld(t, 2)
		w.source("blue").Allowlist.CIDRs = append(w.source("blue").Allowlist.CIDRs, netip.MustParsePrefix("fd00::/64"))
		for n := range 2 {
			w.source("blue").Members = append(w.source("blue").Members, Member{Address: v6(n), Name: fmt.Sprint("node-", n), State: Ready})
			w.in.Current = append(w.in.Current, CurrentEndpoint{Address: v6(n), Conditions: ready, Source: "blue"})
			w.setProbe(probe.Status{Address: v6(n), Health: probe.Passing, Since: start, RunStart: start, RunLast: w.now})
		}
		w.pass(time.Minute)
		return w
	}
	fail := func(w *world, all ...netip.Addr) {
		for _, a := range all {
			w.setProbe(
				probe.Status{Address: a, Health: probe.Failing, Since: w.now, RunStart: w.now.Add(-10 * time.Second), RunLast: w.now},
			)
		}
	}
	isReady := func(w *world, a netip.Addr) bool { return w.endpoint(a).Listed && w.endpoint(a).Conditions.Ready }
	t.Run("all of a family fail", func(t *testing.T) {
		w := dual(t)
		fail(w, v6(0), v6(1))
		w.decide()
		if !isReady(w, v6(0)) || !isReady(w, v6(1)) || !isReady(w, addr(0)) {
			t.Errorf("an IPv4 pass takes IPv6 endpoints out: %s", reasons(w.d))
		}
		w.wantGuards("panic 2")
	})
	t.Run("one of a family fails", func(t *testing.T) {
		w := dual(t)
		fail(w, v6(0))
		if w.decide(); isReady(w, v6(0)) || !isReady(w, v6(1)) {
			t.Errorf("another of its family corroborates its failure: %s", reasons(w.d))
		}
	})
	t.Run("all of a family leave", func(t *testing.T) {
		w := dual(t)
		s := w.source("blue")
		s.Members = slices.DeleteFunc(slices.Clone(s.Members), func(m Member) bool { return m.Address.Is6() })
		if w.decide(); !isReady(w, v6(0)) || !isReady(w, v6(1)) {
			t.Errorf("the family is emptied: %s", reasons(w.d))
		}
		w.wantGuards("floor 2")
	})
}

// Found by property tests: what floor keeps is what other rules see in the next decision.
func TestExpiryCountsWhatFloorKeeps(t *testing.T) {
	w := newWorld(t, 0)
	w.in.Limits.Probing, w.in.Limits.ExpireAfter = false, 5*time.Second
	w.in.Sources = append(w.in.Sources, trusted("default"))
	w.hold(0, "blue", draining)
	w.report("default", 4, Unknown)
	w.hold(4, "default", draining)
	w.report("default", 2, Ready)
	w.hold(2, "default", ready)
	w.source("blue").Connected = false
	w.decide()
	w.in.Current = []CurrentEndpoint{
		{Address: addr(0), Conditions: draining, Source: "blue"},
		{Address: addr(2), Conditions: ready, Source: "default"},
		{Address: addr(4), Conditions: draining, Source: "default"},
	}
	w.pass(4 * time.Second)
	w.unlist("default", 2)
	w.pass(2 * time.Second)
	w.see("blue has expired, and default has nothing ready", "4@default:ready")
}

func TestTierBeforeItsFirstProbeKeepsLaterOnesOut(t *testing.T) {
	w := newWorld(t, 0)
	green := trusted("green")
	green.Tier = 1
	w.in.Sources = append(w.in.Sources, green)
	for n := range 4 {
		w.report([]string{"blue", "green"}[n/2], n, Ready)
		w.probe(n, probe.Pending)
	}
	w.probe(2, probe.Passing)
	w.see("the second tier answers first", "")
	w.probe(0, probe.Passing)
	w.see("the first tier answers", "0:ready")
	w.probe(0, probe.Failing)
	w.in.Current = nil
	w.see("the first tier was probed, and fails", "2@green:ready")
}

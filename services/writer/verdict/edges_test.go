package verdict

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsNotInCanonicalFormIsNeverWritten(t *testing.T) {
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("fd00::1%eth0"), netip.MustParseAddr("::ffff:10.0.0.1")} {
		if alwaysDenied(a) != "not in canonical form" {
			t.Errorf("%s: %q", a, alwaysDenied(a))
		}
	}
}

func TestAllowlistAppliesToItsOwnSource(t *testing.T) {
	w := newWorld(t, 1)
	w.in.Sources = append(w.in.Sources, trusted("green"))
	w.source("green").Allowlist.CIDRs = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	w.see("green's fence has nothing to say of what is blue's", "0:ready")
	w.wantGuards()
}

func TestTheFloorSaysWhetherItKeepsOrLists(t *testing.T) {
	w := newWorld(t, 1)
	w.report("blue", 0, Draining)
	if w.see("the last one drains", "0:ready"); w.endpoint(addr(0)).Verdict != Hold {
		t.Errorf("what is held: %+v", w.endpoint(addr(0)))
	}
	w = newWorld(t, 0)
	w.report("blue", 5, Draining)
	w.probe(5, Passing)
	if w.decide(); w.endpoint(addr(5)).Verdict != Serve || !w.endpoint(addr(5)).Conditions.Ready {
		t.Errorf("what is new: %+v", w.endpoint(addr(5)))
	}
}

// What is only held would be ready by itself the next time, and what drains would go.
func TestTheFloorPrefersWhatASourceHasSpokenOf(t *testing.T) {
	w := newWorld(t, 0)
	w.in.Sources = append(w.in.Sources, trusted("green"))
	for n, source := range []string{"blue", "green"} {
		w.hold(n, source, draining)
		w.report(source, n, Draining)
		w.probe(n, Passing)
	}
	w.source("blue").Connected = false
	w.see("both drain, and blue is lost", "0:drain 1@green:ready")
}

func TestOneProbeThatPassesIsEnoughToSee(t *testing.T) {
	for failing := range 3 {
		w := newWorld(t, 3)
		for n := range 3 {
			if n != failing {
				w.probe(n, Failing)
			}
		}
		if w.decide(); !w.d.AnyPassing {
			t.Errorf("only the probe of %d passes, and nothing is seen", failing)
		}
	}
}

func TestPanicThatKeepsNothingIsNoGuard(t *testing.T) {
	w := newWorld(t, 2)
	w.probe(0, Failing)
	w.see("one fails", "0:out 1:ready")
	w.probe(1, Pending)
	w.see("the other is not judged any more", "0:out 1:ready")
	if w.wantGuards(); !w.d.Panic {
		t.Error("failures are not void though nothing passes")
	}
}

// What is left of a window's budget when it closes is over: the next ones need a newer look.
func TestTheRestOfAWindowsBudgetEndsWithIt(t *testing.T) {
	w := newWorld(t, 6)
	w.shrinks()
	w.unlist("blue", 0)
	w.see("one of three that may", "1:ready 2:ready 3:ready 4:ready 5:ready")
	w.pass(2 * time.Minute)
	w.unlist("blue", 1)
	w.see("the window is over, and nobody has looked since", "1:ready 2:ready 3:ready 4:ready 5:ready")
	if !slices.Contains(w.d.NeedObservations, "blue") {
		t.Error("no newer look is asked for")
	}
	w.observe("blue")
	w.see("somebody has", "2:ready 3:ready 4:ready 5:ready")
}

func TestAWindowIsOpenedByTheFirstThatLeaves(t *testing.T) {
	w := newWorld(t, 4)
	w.shrinks()
	w.see("nobody leaves", "0:ready 1:ready 2:ready 3:ready")
	w.pass(50 * time.Second)
	opened := w.now
	w.unlist("blue", 0)
	w.unlist("blue", 1)
	w.unlist("blue", 2)
	if got := w.decide(); got != "2:ready 3:ready" || !w.d.Wake.Equal(opened.Add(time.Minute)) {
		t.Errorf("half of them leave: %q; wakes %s after the window was opened, want when it ends", got, w.d.Wake.Sub(opened))
	}
	w.pass(15 * time.Second)
	w.observe("blue")
	w.see("it is open still", "2:ready 3:ready")
	w.pass(45 * time.Second)
	w.see("it is over", "3:ready")
}

func TestMistypedAllowlistOpensNoNewWindow(t *testing.T) {
	w := newWorld(t, 4)
	w.shrinks()
	allowlist := w.source("blue").Allowlist
	w.unlist("blue", 0)
	w.unlist("blue", 1)
	w.see("half of them leave", "2:ready 3:ready")
	w.source("blue").Allowlist = Allowlist{}
	if w.decide(); w.d.Write {
		t.Fatal("the fence takes all")
	}
	w.source("blue").Allowlist = allowlist
	w.observe("blue")
	w.unlist("blue", 2)
	w.see("the fence is mended, and the window is the same", "2:ready 3:ready")
}

func TestOnlyWhatOurSettingsDropIsOurOwnDoing(t *testing.T) {
	w := newWorld(t, 4)
	w.shrinks()
	w.see("at first", "0:ready 1:ready 2:ready 3:ready")
	w.source("blue").Selector = "pool=blue"
	for n := range 3 {
		w.report("blue", n, Draining)
	}
	w.see("the selector drops nobody, and three drain", "0:drain 1:drain 2:ready 3:ready")
}

func TestTheSelectorOfAnotherSourceIsNotOurOwnDoing(t *testing.T) {
	w := newWorld(t, 4)
	w.shrinks()
	w.in.Sources = append(w.in.Sources, trusted("green"))
	w.source("blue").Selector, w.source("green").Selector = "pool=a", "pool=b"
	w.see("at first", "0:ready 1:ready 2:ready 3:ready")
	for n := range 3 {
		w.unlist("blue", n)
	}
	w.see("half of them leave", "2:ready 3:ready")
}

// Whose word counts of an address that is new is settled by name.
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

func TestEndpointWithoutOwnerStaysUntilAllSourcesCount(t *testing.T) {
	w := newWorld(t, 1)
	w.in.Sources = append(w.in.Sources, trusted("green"))
	w.report("green", 7, Ready)
	w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(3), Conditions: ready, Source: "former"})
	w.probe(3, Passing)
	w.source("blue").Connected = false
	w.see("one of two is believed", "0:ready 3@former:ready")
	w.source("blue").Connected = true
	w.see("both are", "0:ready")

	w = newWorld(t, 1)
	w.in.Sources = nil
	w.see("there is none at all", "0:ready")
	if got := w.endpoint(addr(0)).Rule; got != RuleTrust {
		t.Errorf("without any source the rule is %s", got)
	}
}

func TestTheZoneIsWrittenWithTheConditions(t *testing.T) {
	w := newWorld(t, 1)
	w.in.Current[0].Zone, w.source("blue").Members[0].Zone = "old", "new"
	w.probe(0, Pending)
	if w.decide(); w.endpoint(addr(0)).Zone != "old" {
		t.Errorf("as it was: %+v", w.endpoint(addr(0)))
	}
	w.probe(0, Passing)
	if w.decide(); w.endpoint(addr(0)).Zone != "new" {
		t.Errorf("decided upon: %+v", w.endpoint(addr(0)))
	}

	w = newWorld(t, 2)
	w.in.Limits.ListUnready, w.source("blue").Members[0].Zone = false, "here"
	w.fail(w.now.Add(1), 0)
	w.see("it is out, and no slice says where it was", "1:ready")
	w.fail(w.now.Add(1), 1)
	if w.decide(); w.endpoint(addr(0)).Zone != "here" || !w.endpoint(addr(0)).Listed {
		t.Errorf("given back: %+v", w.endpoint(addr(0)))
	}
}

func TestTrustHoldsBeforeEmpty(t *testing.T) {
	w := newWorld(t, 2)
	w.unlist("blue", 0)
	w.unlist("blue", 1)
	w.source("blue").Connected = false
	w.see("empty when the link went down", "0:ready 1:ready")
	w.wantGuards("trust 2 blue")
	if len(w.d.NeedObservations) != 0 {
		t.Errorf("%v are asked to look, who do not hear", w.d.NeedObservations)
	}
}

func TestASourceIsEmptyIfNothingOfItCouldServe(t *testing.T) {
	for _, of := range []struct {
		state  State
		health ProbeStatus
		empty  bool
	}{
		{Ready, Failing, false},
		{Draining, Failing, false},
		{Unknown, Failing, false},
		{NotReady, Failing, true},
		{NotReady, Passing, false},
		{NotReady, Pending, false},
	} {
		w := newWorld(t, 1)
		w.report("blue", 0, of.state)
		w.probe(0, of.health)
		if got := newEvaluation(Memory{}, w.in, w.now).isEmpty(0); got != of.empty {
			t.Errorf("state %d, health %d: empty is %t, want %t", of.state, of.health, got, of.empty)
		}
	}
}

// In a panic what is not judged yet counts for nothing, but only as long as its source has at stake what the panic
// keeps. There is always green's, which fails unless there is no panic.
func TestASourceIsEmptyInAPanicIfAllThatItHasAtStakeFails(t *testing.T) {
	stray := netip.MustParseAddr("10.9.0.1")
	for _, tt := range []struct {
		name  string
		alter func(*world)
		empty bool
	}{
		{"one in use fails", func(w *world) { w.hold(0, "blue", ready); w.fail(w.now, 0) }, true},
		{"it has none", func(*world) {}, false},
		{"it is out", func(w *world) { w.hold(0, "blue", Conditions{}); w.fail(w.now, 0) }, false},
		{"it is not judged yet", func(w *world) { w.hold(0, "blue", ready) }, false},
		{"its fence takes it", func(w *world) {
			w.in.Current = append(w.in.Current, CurrentEndpoint{Address: stray, Conditions: ready, Source: "blue"})
			w.in.Probes[stray] = Probe{Status: Failing, Since: w.now}
		}, false},
		{"there is no panic", func(w *world) { w.hold(0, "blue", ready); w.fail(w.now, 0); w.probe(5, Passing) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 0)
			w.in.Sources = append(w.in.Sources, trusted("green"))
			w.report("blue", 4, NotReady)
			w.report("green", 5, Ready)
			w.hold(5, "green", ready)
			w.fail(w.now, 5)
			tt.alter(w)
			c := newEvaluation(Memory{}, w.in, w.now)
			c.dropDisallowedAddresses()
			c.evaluateTrust()
			c.ignoreFailures()
			if got := c.isEmpty(0); got != tt.empty {
				t.Errorf("empty is %t, want %t", got, tt.empty)
			}
		})
	}
}

func TestWhatOneSourceConfirmsIsNotAnothers(t *testing.T) {
	w := newWorld(t, 1)
	for i, name := range []string{"green", "red"} {
		w.in.Sources = append(w.in.Sources, trusted(name)) // of one epoch, as it happens
		n := 5 + i
		w.report(name, n, Ready)
		w.probe(n, Passing)
		w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(n), Conditions: ready, Source: name})
	}
	w.unlist("blue", 0)
	for range 3 {
		w.see("blue's emptiness is not confirmed yet", "0:ready 5@green:ready 6@red:ready")
		if !slices.Contains(w.d.NeedObservations, "blue") || len(w.d.NeedObservations) != 1 {
			t.Errorf("%v are asked to look", w.d.NeedObservations)
		}
		w.pass(5 * time.Second)
		w.observe("blue")
	}
	w.see("now it is", "5@green:ready 6@red:ready")
	w.unlist("green", 5)
	w.see("green's is not", "5@green:ready 6@red:ready")
	w.pass(5 * time.Second)
	w.observe("green")
	w.see("one look", "5@green:ready 6@red:ready")
	if !w.d.Wake.Equal(w.now.Add(emptyGap)) {
		t.Errorf("wakes after %s, want when the next look may count", w.d.Wake.Sub(w.now))
	}
}

// An address without a past has none, though its neighbour does: who was known longest goes first.
func TestAnAddressDoesNotInheritItsNeighboursPast(t *testing.T) {
	w := newWorld(t, 0)
	w.shrinks()
	for _, n := range []int{1, 2, 3, 4, 10} {
		w.report("blue", n, Ready)
		w.probe(n, Passing)
		w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(n), Conditions: ready, Source: "blue"})
	}
	for n := 1; n < 5; n++ {
		w.report("blue", n, Draining)
	}
	w.see("two of four that drain", "1:drain 2:drain 3:ready 4:ready 10:ready")
	w.pass(2 * time.Minute)
	w.observe("blue")
	w.report("blue", 0, Draining)
	w.probe(0, Passing)
	w.in.Current = append([]CurrentEndpoint{{Address: addr(0), Conditions: ready, Source: "blue"}}, w.in.Current...)
	w.see("those who wait go before the one that has just come", "0:ready 1:drain 2:drain 3:drain 4:drain 10:ready")
}

func TestOfTwoEndpointsOfOneAddressTheOneThatServesMoreCounts(t *testing.T) {
	out := Conditions{}
	for _, of := range []struct {
		name      string
		one, more Conditions
	}{{"ready and draining", draining, ready}, {"ready and out", out, ready}, {"draining and out", out, draining}} {
		for _, order := range [][2]Conditions{{of.one, of.more}, {of.more, of.one}} {
			w := newWorld(t, 2)
			w.probe(0, Pending)
			w.in.Current = []CurrentEndpoint{
				{Address: addr(0), Conditions: order[0], Source: "blue"},
				{Address: addr(0), Conditions: order[1], Source: "blue"},
				{Address: addr(1), Conditions: ready, Source: "blue"},
			}
			if w.decide(); w.endpoint(addr(0)).Conditions != of.more {
				t.Errorf("%s: got %+v", of.name, w.endpoint(addr(0)).Conditions)
			}
		}
	}
}

// A caller's slip must not end in slices that are wrong.
func TestTheOrderOfTheInputMakesNoDifference(t *testing.T) {
	w := newWorld(t, 4)
	w.in.Sources = append(w.in.Sources, trusted("green"))
	w.report("green", 2, Ready)
	w.report("green", 6, Ready)
	w.report("blue", 6, Ready) // the first by name has it
	w.probe(6, Passing)
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

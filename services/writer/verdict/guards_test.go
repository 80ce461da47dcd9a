package verdict

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReportsSinceWhenNoProbePasses(t *testing.T) {
	w := newWorld(t, 2)
	check := func(what string, panics bool, since time.Time) {
		t.Helper()
		w.decide()
		if w.d.Panic != panics || !w.d.NonePassingSince.Equal(since) {
			t.Errorf("%s: panic %t since %v, want %t since %v", what, w.d.Panic, w.d.NonePassingSince, panics, since)
		}
	}
	check("all pass", false, time.Time{})
	w.probe(0, Failing)
	check("one fails", false, time.Time{})
	w.pass(time.Second)
	w.probe(1, Pending)
	began := w.now
	check("none passes, one is out and one not judged yet", true, began)
	w.pass(time.Minute)
	w.probe(1, Failing)
	check("none passes", true, began)
	w.pass(time.Minute)
	w.probe(1, Passing)
	check("one passes", false, time.Time{})
	w.probe(1, Failing)
	check("another time", true, w.now)
	w.in.Limits.Probing = false
	check("nobody probes", false, time.Time{})
	w.in.Limits.Probing = true
	w.in.Current = nil
	check("nothing is held", false, time.Time{})
}

func TestAnEndpointInUseThatCannotBeProbedIsReported(t *testing.T) {
	cannot := func(w *world, n int) { w.in.Probes[addr(n)] = Probe{Expired: true, Detail: "too many open files"} }
	for _, tt := range []struct {
		name   string
		change func(*world)
		want   bool
	}{
		{"none", func(*world) {}, false},
		{"one in use", func(w *world) { cannot(w, 0); cannot(w, 1) }, true},
		{"not judged yet is not it", func(w *world) { w.probe(0, Pending); w.probe(1, Pending) }, false},
		{"one that is out", func(w *world) {
			w.in.Current[0].Conditions = Conditions{}
			w.source("blue").EverSynced = false
			cannot(w, 0)
		}, false},
		{"one that nobody holds", func(w *world) { w.report("blue", 5, Ready); cannot(w, 5) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 2)
			tt.change(w)
			before := picture(w.in.Current)
			if got := w.decide(); got != before || w.d.CannotProbe != tt.want {
				t.Errorf("%s, cannot probe: %t; want %s, %t", got, w.d.CannotProbe, before, tt.want)
			}
			if tt.want && !strings.Contains(w.d.Endpoints[0].Reason, "pending (too many open files)") {
				t.Errorf("the reason is %q", w.d.Endpoints[0].Reason)
			}
		})
	}
}

func TestPanicEndsWhenAnythingPassesThatCouldServe(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*world)
		want   string
	}{
		{"one that is held", func(w *world) { w.probe(1, Passing) }, "0:out 1:ready"},
		{"one that is held and not listed by the source any more", func(w *world) {
			w.probe(1, Passing)
			w.unlist("blue", 1)
		}, "0:out 1:ready"},
		{"a new one", func(w *world) { w.report("blue", 5, Ready); w.probe(5, Passing) }, "0:out 1:out 5:ready"},
		{"a new one of a source that is not believed", func(w *world) {
			w.in.Sources = append(w.in.Sources, trusted("green"))
			w.source("green").Connected = false
			w.report("green", 5, Ready)
			w.probe(5, Passing)
		}, "0:ready 1:ready"},
		{"a new one in a state that we do not know", func(w *world) { w.report("blue", 5, Unknown); w.probe(5, Passing) }, "0:ready 1:ready"},
		{"one that is not listed, being out", func(w *world) { w.putOut(); w.probe(5, Passing) }, "5@green:ready"},
		{"one that is not listed, being out, and that another than its own source tells", func(w *world) {
			w.putOut()
			w.source("green").Connected = false
			w.report("blue", 5, Ready)
			w.probe(5, Passing)
		}, "0:ready 1:ready"},
		{"one that its own source may not have, but another may", func(w *world) {
			w.putOut()
			w.source("green").Connected = false
			w.source("green").Allowlist = Allowlist{}
			w.report("blue", 5, Ready)
			w.probe(5, Passing)
		}, "5:ready"},
		{"one that the fence refuses", func(w *world) {
			w.source("blue").Allowlist.Denied = map[netip.Addr]struct{}{addr(1): {}}
			w.probe(1, Passing)
		}, "0:ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.pass(time.Second)
			w.fail(w.now, 0, 1)
			w.see("none passes", "0:ready 1:ready")
			tt.change(w)
			w.see("then", tt.want)
		})
	}
}

// putOut adds a second source, of which one fails while nobody wants to see what is out.
func (w *world) putOut() {
	w.in.Limits.ListUnready = false
	w.in.Sources = append(w.in.Sources, trusted("green"))
	w.report("green", 5, Ready)
	w.hold(5, "green", Conditions{})
	w.fail(w.now, 5)
	w.decide()
}

func TestInAPanicTheFeedAloneTakes(t *testing.T) {
	w := newWorld(t, 5)
	w.fail(w.now.Add(time.Second), 0, 1, 2, 3)
	w.probe(4, Pending)
	w.report("blue", 0, NotReady)
	w.unlist("blue", 1)
	w.report("blue", 2, Draining)
	w.report("blue", 3, Unknown)
	w.report("blue", 4, NotReady) // its probe has said nothing that could be void
	w.see("not ready is out, absent is gone, the rest keeps its conditions", "0:out 2:ready 3:ready 4:ready")
	w.source("blue").Connected = false
	w.unlist("blue", 2)
	w.see("a source that is not believed takes nothing", "0:out 2:ready 3:ready 4:ready")
}

func TestInAPanicWhatIsNotJudgedYetStaysReadyThoughItDrains(t *testing.T) {
	w := newWorld(t, 4)
	w.report("blue", 0, Ready)
	w.in.Current[3].Conditions = draining
	for n := 1; n < 4; n++ {
		w.report("blue", n, Draining)
		w.probe(n, Pending)
	}
	w.fail(w.now.Add(time.Second), 0)
	w.see("one fails, and none has passed", "0:ready 1:ready 2:ready 3:drain")
	w.wantGuards("panic 3")
	w.source("blue").Connected = false
	w.see("nor does it change when its source is lost", "0:ready 1:ready 2:ready 3:drain")
	w.source("blue").Connected = true
	w.report("blue", 0, NotReady)
	w.see("one is out, and still fails", "0:out 1:ready 2:ready 3:drain")
	w.wantGuards("panic 2")
	w.probe(1, Passing)
	w.see("one passes", "0:out 1:ready 2:ready 3:drain")
	w.wantGuards("floor 2")

	w = newWorld(t, 3)
	w.fail(w.now.Add(time.Second), 0)
	w.unlist("blue", 0)
	w.probe(1, Pending)
	w.report("blue", 1, Draining)
	w.probe(2, Pending)
	w.see("the last that fails is gone", "1:drain 2:ready")
}

func TestPanicKeepsALastResort(t *testing.T) {
	type node struct {
		held     Conditions
		reported State // unlisted: gone
		probe    ProbeStatus
	}
	out, goes := Conditions{}, node{ready, NotReady, Failing}
	for _, tt := range []struct {
		name  string
		nodes []node
		want  string
	}{
		{"one that is READY, and out by a failure from before", []node{goes, {out, Ready, Failing}}, "0:out 1:ready"},
		{"when the last one is deleted, too", []node{{ready, unlisted, Failing}, {out, Ready, Failing}}, "1:ready"},
		{"all of them", []node{goes, {out, Ready, Failing}, {out, Ready, Failing}}, "0:out 1:ready 2:ready"},
		{"not judged yet", []node{goes, {out, Ready, Pending}}, "0:out 1:ready"},
		{"rather than one that drains", []node{goes, {out, Draining, Failing}, {out, Ready, Failing}}, "0:out 1:out 2:ready"},
		{"or one that drains", []node{goes, {out, Draining, Failing}}, "0:out 1:ready"},
		{"or one in a state that we do not know", []node{goes, {out, Unknown, Failing}}, "0:out 1:ready"},
		{"but not what its source calls dead", []node{goes, {out, NotReady, Failing}, {out, Ready, Failing}, {out, unlisted, Failing}}, "0:out 1:out 2:ready"},
		{"nor what is not judged yet and called dead", []node{goes, {out, NotReady, Pending}, {out, Ready, Failing}}, "0:out 1:out 2:ready"},
		{"nor while one is ready", []node{goes, {out, Ready, Failing}, {ready, Ready, Failing}}, "0:out 1:out 2:ready"},
		{"nor while one serves its last", []node{goes, {out, Ready, Failing}, {draining, Ready, Failing}}, "0:out 1:out 2:drain"},
	} {
		for _, listOut := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, list-out %t", tt.name, listOut), func(t *testing.T) {
				last := len(tt.nodes)
				w := newWorld(t, last+1)
				w.in.Limits.ListUnready = listOut
				for n, one := range tt.nodes {
					if !one.held.inUse() {
						w.probe(n, Failing)
					}
				}
				w.decide() // so they went out while the others passed
				w.pass(time.Second)
				w.unlist("blue", last)
				w.in.Current = slices.DeleteFunc(w.in.Current, func(h CurrentEndpoint) bool { return h.Address == addr(last) })
				for i := range w.in.Current {
					w.in.Current[i].Conditions = tt.nodes[w.in.Current[i].Address.As4()[3]].held
				}
				for n, one := range tt.nodes {
					if one.held.inUse() || one.probe == Pending {
						w.probe(n, one.probe)
					}
					if w.unlist("blue", n); one.reported != unlisted {
						w.report("blue", n, one.reported)
					}
				}
				want := tt.want
				if !listOut {
					want = strings.Join(slices.DeleteFunc(strings.Fields(want), func(s string) bool { return strings.HasSuffix(s, ":out") }), " ")
				}
				w.see("it goes", want)
			})
		}
	}
	t.Run("also one of a source that is lost, whatever that said last", func(t *testing.T) {
		for _, last := range []State{Ready, NotReady} {
			w := newWorld(t, 1)
			w.in.Sources = append(w.in.Sources, trusted("green"))
			w.report("green", 5, last)
			w.source("green").Connected = false
			w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(5), Source: "green"})
			w.fail(w.now.Add(time.Second), 0, 5)
			w.report("blue", 0, NotReady)
			w.report("blue", 1, Ready) // so that blue is not empty
			w.unwritten("nobody speaks of it", "0:out 5@green:ready")
			w.wantGuards("panic 1")
			w.see("nor when it is written", "0:out 5@green:ready")
			w.wantGuards("panic 1", "trust 1 green")
		}
	})
	t.Run("not while the budget keeps the last one", func(t *testing.T) {
		w := newWorld(t, 2)
		w.shrinks()
		w.takeover()
		w.in.Current[1].Conditions = Conditions{}
		w.fail(w.now, 0, 1)
		w.report("blue", 0, NotReady)
		w.see("a leader's first window", "0:ready 1:out")
		w.pass(time.Minute)
		w.see("it is over", "0:out 1:ready")
	})
}

func TestAPanicThatEndsWithTheLastFailingEndpointChangesNothingElse(t *testing.T) {
	w := newWorld(t, 3)
	w.in.Current[1].Conditions, w.in.Current[2].Conditions = Conditions{}, Conditions{}
	w.fail(w.now.Add(time.Second), 0)
	w.unlist("blue", 0)
	w.probe(1, Pending)
	w.probe(2, Pending)
	w.report("blue", 1, Draining)
	w.see("one is gone, and none fails any more", "1:drain 2:out")
}

func TestWhatAPassingEndpointHasPutOutStaysOutWhenThatIsGone(t *testing.T) {
	w := newWorld(t, 3)
	w.decide()
	w.now = w.now.Add(time.Second)
	w.fail(w.now, 1)
	w.probe(2, Pending)
	w.unlist("blue", 0)
	w.see("0 passes and goes", "1:out 2:ready")
}

func TestWhatWasOutBeforeAFailureIsNotGivenBack(t *testing.T) {
	w := newWorld(t, 2)
	w.in.Current[0].Conditions = Conditions{}
	w.fail(w.now.Add(time.Second), 0, 1)
	w.see("nobody knows what it had", "0:out 1:ready")
}

func TestTheFloorPrefers(t *testing.T) {
	type node struct {
		held     string // "", ready, drain, out
		reported State  // unlisted: gone
		probe    ProbeStatus
	}
	for _, tt := range []struct {
		name  string
		nodes []node
		want  string
	}{
		{"draining ones that are ready now", []node{{"ready", Draining, Passing}, {"ready", Draining, Pending}, {"drain", Draining, Passing}, {"ready", unlisted, Passing}}, "0:ready 1:ready 2:drain"},
		{"then draining ones that pass", []node{{"ready", Draining, Failing}, {"drain", Draining, Passing}, {"drain", Draining, Pending}, {"ready", unlisted, Passing}}, "0:out 1:ready 2:drain"},
		{"also new ones", []node{{"ready", unlisted, Passing}, {"", Draining, Passing}}, "1:ready"},
		{"then those that are ready now and have not failed", []node{{"ready", unlisted, Passing}, {"ready", unlisted, Pending}, {"out", unlisted, Passing}, {"out", Ready, Failing}}, "0:ready 1:ready 3:out"},
		{"then held ones that pass", []node{{"drain", unlisted, Passing}, {"out", unlisted, Passing}, {"out", Ready, Failing}}, "0:ready 1:ready 2:out"},
		{"it acts for one that is not judged yet", []node{{"ready", unlisted, Pending}, {"out", Ready, Failing}}, "0:ready 1:out"},
		{"but not for one that was out", []node{{"out", unlisted, Pending}, {"out", Ready, Failing}}, "1:out"},
		{"nor for one that fails", []node{{"out", NotReady, Failing}, {"out", Ready, Failing}}, "0:out 1:out"},
		{"nor while anything is ready", []node{{"ready", Draining, Passing}, {"ready", Ready, Passing}}, "0:drain 1:ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 0)
			for n, one := range tt.nodes {
				w.probe(n, one.probe)
				if one.reported != unlisted {
					w.report("blue", n, one.reported)
				}
				if one.held != "" {
					w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(n), Source: "blue", Conditions: map[string]Conditions{"ready": ready, "drain": draining}[one.held]})
				}
			}
			w.see("the floor", tt.want)
		})
	}
}

func TestWithoutProbesTheFloorKeepsAllButWhatIsConfirmedGone(t *testing.T) {
	off := func(t *testing.T, n int) *world {
		w := newWorld(t, n)
		w.in.Limits.Probing = false
		w.see("at rest", picture(w.in.Current))
		return w
	}
	t.Run("all drain", func(t *testing.T) {
		w := off(t, 2)
		w.report("blue", 0, Draining)
		w.report("blue", 1, Draining)
		w.see("they stay", "0:ready 1:ready")
	})
	t.Run("a new Service whose nodes all drain", func(t *testing.T) {
		w := newWorld(t, 1)
		w.in.Limits.Probing, w.in.Current = false, nil
		w.report("blue", 0, Draining)
		w.see("they are ready at once, not only when asked again", "0:ready")
	})
	t.Run("the ready one leaves and another drains", func(t *testing.T) {
		w := off(t, 2)
		w.report("blue", 1, Draining)
		w.see("one drains", "0:ready 1:drain")
		w.unlist("blue", 0)
		w.see("the other leaves", "1:ready")
	})
	t.Run("one of two sources is empty, and that is confirmed", func(t *testing.T) {
		w := off(t, 1)
		w.in.Sources = append(w.in.Sources, trusted("green"))
		w.report("green", 7, Unknown)
		w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(7), Source: "green"})
		w.unlist("blue", 0)
		for range 3 {
			w.see("not confirmed", "0:ready 7@green:out")
			w.pass(5 * time.Second)
			w.observe("blue")
		}
		w.see("confirmed", "7@green:out")
	})
}

func TestShrinkLetsGoWhoWasKnownLongestFirst(t *testing.T) {
	w := newWorld(t, 6)
	w.shrinks()
	w.in.LeadingSince = w.now
	w.see("at rest", "0:ready 1:ready 2:ready 3:ready 4:ready 5:ready")
	for _, n := range []int{3, 4, 1} {
		w.pass(time.Second)
		w.report("blue", n, Draining)
		w.decide()
	}
	w.pass(time.Second)
	w.unlist("blue", 0)
	w.unlist("blue", 2)
	w.see("none leaves in the first window", "0:ready 1:ready 2:ready 3:ready 4:ready 5:ready")
	w.wantGuards("shrink 5 blue")
	if want := w.in.LeadingSince.Add(time.Minute); !w.d.Wake.Equal(want) {
		t.Errorf("wakes at %v, want %v", w.d.Wake, want)
	}
	w.pass(time.Minute)
	opened := w.now
	w.see("three of six", "0:ready 1:drain 2:ready 3:drain 4:drain 5:ready")
	w.wantGuards("shrink 2 blue")
	if want := opened.Add(time.Minute); !w.d.Wake.Equal(want) || w.d.NeedObservations != nil {
		t.Errorf("wakes at %v, wants observations %v; want %v and none: time is what is missing", w.d.Wake, w.d.NeedObservations, want)
	}
	w.pass(time.Minute)
	w.see("nothing new was observed", "0:ready 1:drain 2:ready 3:drain 4:drain 5:ready")
	if diff := cmp.Diff([]string{"blue"}, w.d.NeedObservations); diff != "" {
		t.Error(diff)
	}
	w.observe("blue")
	w.see("one of three, by address", "1:drain 2:ready 3:drain 4:drain 5:ready")
	w.observe("blue")
	w.see("an observation alone is not enough", "1:drain 2:ready 3:drain 4:drain 5:ready")
	w.pass(time.Minute)
	w.see("the last", "1:drain 3:drain 4:drain 5:ready")
	w.wantGuards()
}

func TestShrinkDoesNotCount(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*world)
		want   string
	}{
		{"what the probes call dead, too", func(w *world) {
			w.fail(w.now, 0, 1, 2)
			w.unlist("blue", 0)
			w.unlist("blue", 1)
		}, "2:out 3:ready"},
		{"what the fence refuses", func(w *world) {
			w.source("blue").Allowlist.Denied = map[netip.Addr]struct{}{addr(0): {}, addr(1): {}, addr(2): {}}
		}, "3:ready"},
		{"what another selector leaves out", func(w *world) {
			for n := range 3 {
				w.unlist("blue", n)
			}
			w.source("blue").Selector = "pool=green"
		}, "3:ready"},
		{"what bears the label of a source that is none of ours any more", func(w *world) {
			for n := range 3 {
				w.unlist("blue", n)
				w.in.Current[n].Source = "former"
			}
		}, "3:ready"},
		{"what its source leaves out and another one has, ready", func(w *world) {
			w.in.Sources = append(w.in.Sources, trusted("green"))
			for n := range 3 {
				w.unlist("blue", n)
				w.report("green", n, Ready)
			}
		}, "0@green:ready 1@green:ready 2@green:ready 3:ready"},
		{"anything at all when it is off", func(w *world) {
			w.in.Limits.ShrinkWindow = 0
			for n := range 3 {
				w.unlist("blue", n)
			}
		}, "3:ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 4)
			w.shrinks()
			w.decide()
			w.in.LeadingSince = w.now
			tt.change(w)
			w.see("in the first window", tt.want)
		})
	}
}

func TestAnotherSelectorFreesOnlyWhatLeavesWithIt(t *testing.T) {
	w := newWorld(t, 4)
	w.shrinks()
	w.in.LeadingSince = w.now
	w.decide()
	w.unlist("blue", 0)
	w.see("held", "0:ready 1:ready 2:ready 3:ready")
	w.source("blue").Selector = "pool=green"
	w.unlist("blue", 1)
	w.unwritten("only the one that came with it", "0:ready 2:ready 3:ready")
	w.see("also when it must be written again", "0:ready 2:ready 3:ready")
	w.unlist("blue", 2)
	w.see("and not what leaves later", "0:ready 2:ready 3:ready")
}

func TestWhatLeavesByASelectorThatIsUndoneIsCountedAgain(t *testing.T) {
	w := newWorld(t, 4)
	w.shrinks()
	w.in.LeadingSince = w.now
	w.decide()
	w.source("blue").Selector = "pool=green"
	for n := range 3 {
		w.unlist("blue", n)
	}
	w.unwritten("our own doing", "3:ready")
	w.source("blue").Selector, w.source("blue").Connected = "", false
	w.see("undone", "0:ready 1:ready 2:ready 3:ready")
	w.source("blue").Connected = true
	w.see("they were deleted meanwhile", "0:ready 1:ready 2:ready 3:ready")
}

func TestALeavingThatWasNotWrittenIsNotCountedTwice(t *testing.T) {
	w := newWorld(t, 4)
	w.shrinks()
	w.unlist("blue", 1)
	w.unlist("blue", 2)
	w.unlist("blue", 3)
	for range 3 {
		w.unwritten("two go", "0:ready 3:ready")
		w.pass(time.Second)
	}
	w.unlist("blue", 0) // which comes first by address
	w.report("blue", 3, Ready)
	w.see("those that were let go, go", "0:ready 3:ready")
}

func TestStandbyReleasesNothing(t *testing.T) {
	w := newWorld(t, 4)
	w.shrinks()
	w.in.LeadingSince = time.Time{}
	w.unlist("blue", 0)
	for range 3 {
		w.see("the leader decides", "0:ready 1:ready 2:ready 3:ready")
		w.pass(time.Minute)
		w.observe("blue")
	}
	if w.d.NeedObservations != nil {
		t.Errorf("it asks for observations of %v", w.d.NeedObservations)
	}
}

func TestEachSourceHasItsOwnBudget(t *testing.T) {
	w := newWorld(t, 4)
	w.shrinks()
	w.in.Sources = append(w.in.Sources, trusted("green"))
	for n := 4; n < 6; n++ {
		w.report("green", n, Draining)
		w.probe(n, Passing)
		w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(n), Conditions: ready, Source: "green"})
	}
	for n := range 3 {
		w.unlist("blue", n)
	}
	w.see("half of each", "2:ready 3:ready 4@green:drain 5@green:ready")
	w.wantGuards("shrink 1 blue", "shrink 1 green")
}

// The pairs of guards that meet.
func TestGuardsThatMeet(t *testing.T) {
	t.Run("empty and shrink: what is confirmed goes at once, also in a first window", func(t *testing.T) {
		w := newWorld(t, 4)
		w.shrinks()
		w.in.Limits.Probing = false
		w.decide()
		w.in.LeadingSince = w.now
		for n := range 4 {
			w.unlist("blue", n)
		}
		for range 3 {
			w.see("not confirmed", "0:ready 1:ready 2:ready 3:ready")
			w.wantGuards("empty 4 blue")
			w.pass(5 * time.Second)
			w.observe("blue")
		}
		w.see("confirmed", "")
	})
	t.Run("empty and shrink: a set that is empty but for one is subject to the budget", func(t *testing.T) {
		w := newWorld(t, 4)
		w.shrinks()
		for n := range 4 {
			w.unlist("blue", n)
		}
		w.see("empty", "0:ready 1:ready 2:ready 3:ready")
		w.pass(5 * time.Second)
		w.observe("blue")
		w.report("blue", 3, Ready)
		w.see("but for one", "2:ready 3:ready")
	})
	t.Run("panic and floor: what is not judged yet is kept until it is", func(t *testing.T) {
		w := newWorld(t, 2)
		w.report("blue", 7, Ready) // so that the feed is not empty
		w.fail(w.now.Add(time.Second), 0, 7)
		w.probe(1, Pending)
		w.unlist("blue", 0)
		w.unlist("blue", 1)
		w.see("one is not judged", "1:ready")
		w.fail(w.now, 1)
		w.see("both witnesses", "")
	})
	t.Run("gate and takeover: nothing changes until the source is heard, then half may go after the first window", func(t *testing.T) {
		w := newWorld(t, 4)
		w.shrinks()
		w.pass(time.Minute)
		w.restart()
		w.takeover()
		before := fmt.Sprint(w.in.Current)
		w.see("not heard", "0:ready 1:ready 2:ready 3:ready")
		if after := fmt.Sprint(w.in.Current); after != before {
			t.Errorf("was %s, is %s", before, after)
		}
		w.pass(30 * time.Second)
		*w.source("blue") = trusted("blue")
		w.source("blue").MembershipSyncedAt = w.now
		w.report("blue", 3, Ready)
		w.see("heard", "0:ready 1:ready 2:ready 3:ready")
		w.wantGuards("shrink 3 blue")
		w.pass(30 * time.Second)
		w.see("after the window", "2:ready 3:ready")
	})
	t.Run("fence and shrink: what the fence takes leaves the budget as it is", func(t *testing.T) {
		w := newWorld(t, 4)
		w.shrinks()
		w.source("blue").Allowlist.Denied = map[netip.Addr]struct{}{addr(0): {}}
		w.unlist("blue", 1)
		w.unlist("blue", 2)
		w.see("one by the fence, and two of four", "3:ready")
	})
	t.Run("fence and shrink: a fence that would take all books nothing", func(t *testing.T) {
		w := newWorld(t, 2)
		w.shrinks()
		cidrs := w.source("blue").Allowlist.CIDRs
		w.source("blue").Allowlist.CIDRs = nil
		w.unlist("blue", 0)
		w.see("typing mistake", "0:ready 1:ready")
		w.source("blue").Allowlist.CIDRs = cidrs
		w.see("mended", "1:ready")
	})
	t.Run("fence and shrink: what one source's fence takes and another one has is not held for the former", func(t *testing.T) {
		w := newWorld(t, 4)
		w.shrinks()
		w.in.Limits.Probing = false
		w.in.Sources = append(w.in.Sources, trusted("green"))
		w.decide()
		w.in.LeadingSince = w.now
		w.source("blue").Allowlist.Denied = map[netip.Addr]struct{}{addr(0): {}, addr(1): {}}
		w.report("green", 0, Ready)
		w.report("green", 1, NotReady)
		w.see("green's word counts", "0@green:ready 1@green:out 2:ready 3:ready")
	})
	t.Run("fence and adoption: it would take all, also what nobody may have and what bears nobody's label", func(t *testing.T) {
		w := newWorld(t, 1)
		w.in.Current[0].Source = ""
		w.in.Sources[0].Name = "default"
		w.in.Current = append(w.in.Current, CurrentEndpoint{Address: netip.MustParseAddr("127.0.0.7"), Conditions: ready, Source: "former"})
		w.source("default").Allowlist.CIDRs = nil
		w.see("typing mistake", "0@default:ready 7@former:ready")
		w.wantGuards("allowlist 2")
		w.in.Current = w.in.Current[1:]
		w.see("also alone", "7@former:ready")
		if message := w.d.Guards[0].Message; !strings.Contains(message, "127.0.0.7: loopback address") {
			t.Error(message)
		}
	})
	t.Run("fence and floor: what the fence refuses is not kept, though nothing else is ready", func(t *testing.T) {
		w := newWorld(t, 2)
		w.in.Current[1].Conditions = Conditions{}
		w.probe(1, Failing)
		w.source("blue").Allowlist.Denied = map[netip.Addr]struct{}{addr(0): {}}
		w.see("refused", "1:out")
	})
	t.Run("a source that is lost beside one that is present: each keeps its own", func(t *testing.T) {
		w := newWorld(t, 2)
		w.shrinks()
		w.in.Sources = append(w.in.Sources, trusted("green"))
		for n := 4; n < 8; n++ {
			w.probe(n, Passing)
			w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(n), Conditions: ready, Source: "green"})
		}
		w.report("green", 7, Ready)
		w.source("blue").Connected = false
		w.unlist("blue", 0)
		w.see("green shrinks, blue stays", "0:ready 1:ready 6@green:ready 7@green:ready")
		w.wantGuards("trust 2 blue", "shrink 1 green")
	})
}

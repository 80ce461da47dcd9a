package oracle

import (
	"net/netip"
	"testing"
	"time"
)

// TestEveryClauseRefusesWhatBreaksIt has for each clause of the invariants a world that breaks
// it, beside one that comes close.
func TestEveryClauseRefusesWhatBreaksIt(t *testing.T) {
	plain := func() *rig { return settled(4) }
	far := netip.MustParseAddr("192.168.1.1")
	t.Run("I1", func(t *testing.T) {
		outside := func(r *rig) []Member {
			return []Member{
				r.node(0, Ready),
				r.node(1, Ready),
				r.node(2, Ready),
				r.node(3, Ready),
				{Name: "x", Addresses: []netip.Addr{far}, State: Ready},
			}
		}
		check(t, plain,
			wrong("I1 allowlist", "an address outside the fence", func(r *rig) {
				r.is("default", outside(r)...)
				r.tells("default", outside(r)...)
				s := *r.lists["default"]
				s.Endpoints = append(s.Endpoints[:4:4], Endpoint{serve.Conditions, far})
				r.put("default", &s)
			}),
			wrong("I1 never told", "an address that nobody told", func(r *rig) { r.probe(9, Passing); r.write(all(serve, 9)) }),
			wrong("I1 invented", "an inventory that invents a machine", func(r *rig) { r.tells("default", outside(r)...) }),
			right("a liar may", func(r *rig) { r.see(Lies{"default"}); r.tells("default", outside(r)...) }),
			right("what a colleague removed comes back", func(r *rig) {
				r.edits("default", r.lists["default"].Endpoints[:2]...)
				r.write(all(serve, 2, 3))
			}),
			right("what a stranger added goes", func(r *rig) {
				r.edits("default", append(r.lists["default"].Endpoints[:4:4], Endpoint{serve.Conditions, addr(77)})...)
				r.write(all(gone, 77))
			}))
	})
	t.Run("I2", func(t *testing.T) {
		check(t, plain,
			wrong("I2 never shrinks", "an honest inventory that forgets a machine", func(r *rig) { r.tells("default", r.node(0, Ready)) }),
			right("one that tells of a deletion", func(r *rig) {
				r.is("default", r.node(0, Ready))
				r.tells("default", r.node(0, Ready))
			}))
		check(t, func() *rig {
			r := settled(1)
			r.probe(0, Failing)
			return r
		},
			right("every witness calls it dead", func(r *rig) {
				r.is("default", r.node(0, NotReady))
				for range 3 {
					r.tells("default", r.node(0, NotReady))
					r.wait(5 * time.Second)
				}
				r.write(all(out, 0))
			}),
			wrong("I2 never none", "the feed stands by it, and it is taken", func(r *rig) { r.write(all(gone, 0)) }))
	})
	t.Run("I3", func(t *testing.T) {
		check(t, plain,
			wrong("I3 no change", "the same again", func(r *rig) { r.write(nil) }),
			wrong("I3 no change", "the same after a restart", func(r *rig) { r.restart(); r.write(nil) }),
			wrong("I4 initial-sync", "another after a restart", func(r *rig) { r.restart(); r.write(all(drain, 0)) }),
			wrong("I4 reason", "one that is served is drained for no reason", func(r *rig) { r.write(all(drain, 0)) }),
			wrong("I4 reason", "one that is out stays out of a plan for another", func(r *rig) {
				r.probe(0, Failing)
				r.write(map[int]fate{0: out, 1: out})
			}),
			wrong("I3 flap", "there and back on the same knowledge", func(r *rig) {
				r.probe(0, Failing)
				r.write(all(out, 0))
				r.write(all(serve, 0))
			}),
			wrong("I3 paused", "a Service that is paused", func(r *rig) {
				c := r.config("w1")
				c.Paused = true
				r.see(c)
				r.probe(0, Failing)
				r.write(all(out, 0))
			}),
			wrong("I3 opted out", "a Service that opted out", func(r *rig) {
				r.see(Configured{Writer: "w1", Target: web, Out: true})
				r.write(all(out, 0))
			}),
			right("its slices go", func(r *rig) {
				r.see(Configured{Writer: "w1", Target: web, Out: true})
				r.put("default", nil)
			}),
			wrong("I3 flap", "two writers that do not agree on the labels", func(r *rig) {
				for _, rest := range []string{"mine", "ports"} {
					s := *r.lists["default"]
					s.Rest = rest
					r.put("default", &s)
				}
			}))
	})
	t.Run("I4", func(t *testing.T) {
		leaves := func(r *rig) { // a lie leaves 0 and 1 out
			r.see(Lies{"default"})
			r.tells("default", r.node(2, Ready), r.node(3, Ready))
		}
		again := func(r *rig) { r.see(Leads{"w1", false}); r.see(Leads{"w1", true}) }
		selected := func(r *rig, by map[string]string) {
			c := r.config("w1")
			c.Selector = by
			r.see(c)
		}
		odd := map[string]string{"pool": "1"}
		deleted := func(r *rig) {
			r.is("default", r.node(1, Ready), r.node(3, Ready))
			r.tells("default", r.node(1, Ready), r.node(3, Ready))
		}
		// held is a lie that leaves all but one out, of which nothing can be written for a while. When the leader's first
		// window is over its writer says how many it holds back.
		held := func(r *rig, back int) {
			again(r)
			r.see(Lies{"default"})
			r.tells("default", r.node(3, Ready))
			r.see(Acts{"w1", web, []string{"shrink"}, map[string]int{"default": 3}})
			r.wait(time.Minute)
			r.see(Acts{"w1", web, []string{"shrink"}, map[string]int{"default": back}})
			r.wait(30 * time.Second)
			r.write(all(gone, 0, 1))
			r.wait(30 * time.Second)
			r.observes("default")
		}
		// late is the same, and its window was over before anything could be written.
		late := func(r *rig, back int) {
			again(r)
			r.see(Lies{"default"})
			r.tells("default", r.node(3, Ready))
			r.see(Acts{"w1", web, []string{"shrink"}, map[string]int{"default": 3}})
			r.wait(time.Minute)
			r.see(Acts{"w1", web, []string{"shrink"}, map[string]int{"default": back}})
			r.wait(70 * time.Second)
			r.write(all(gone, 0, 1))
			r.wait(20 * time.Second)
			r.observes("default")
		}
		// failedToo is one that fails and is deleted, and another that leaves 50 s later. After 10 s more the window is over
		// that the first of them opened if its failure did not count.
		failedToo := func(r *rig, wait time.Duration) {
			again(r)
			r.see(Lies{"default"})
			r.wait(time.Minute)
			r.probe(0, Failing)
			r.wait(time.Second)
			r.tells("default", r.node(1, Ready), r.node(2, Ready), r.node(3, Ready))
			r.write(all(gone, 0))
			r.wait(50 * time.Second)
			r.tells("default", r.node(3, Ready))
			r.write(all(gone, 1))
			r.wait(wait)
			r.tells("default", r.node(3, Draining))
		}
		check(
			t,
			plain,
			right("its window was over when they went", func(r *rig) { late(r, 1); r.write(all(gone, 2)) }),
			wrong("I4 shrink", "its window was not over when they went", func(r *rig) { late(r, 3); r.write(all(gone, 2)) }),
			right("its window began when it said that two may go", func(r *rig) { held(r, 1); r.write(all(gone, 2)) }),
			wrong("I4 shrink", "its window began when they went", func(r *rig) { held(r, 3); r.write(all(gone, 2)) }),
			right("half leave", func(r *rig) { leaves(r); r.write(all(gone, 0, 1)) }),
			wrong("I4 shrink", "more than half, one after the other", func(r *rig) {
				leaves(r)
				r.write(all(gone, 0))
				r.write(all(gone, 1))
				r.tells("default", r.node(3, Ready))
				r.wait(59 * time.Second)
				r.write(all(gone, 2))
			}),
			right("another when the window is over", func(r *rig) {
				leaves(r)
				r.write(all(gone, 0, 1))
				r.tells("default", r.node(3, Ready))
				r.wait(61 * time.Second)
				r.observes("default")
				r.write(all(gone, 2))
			}),
			right("its window began with one that failed too, if that was not counted",
				func(r *rig) { failedToo(r, 20*time.Second); r.write(all(gone, 2)) }),
			wrong("I4 shrink", "it began with one that failed too or with the next, and neither allows that", func(r *rig) {
				failedToo(r, 20*time.Second)
				r.write(all(gone, 2))
				r.write(all(gone, 3))
			}),
			wrong("I4 shrink", "the window that one may have opened that failed too was not over", func(r *rig) {
				failedToo(r, 5*time.Second)
				r.write(all(gone, 2))
			}),
			wrong("I4 shrink", "a leader's first window", func(r *rig) {
				r.restart()
				for i := range 4 {
					r.probe(i, Passing)
				}
				leaves(r)
				r.write(all(gone, 0))
			}),
			right("when no budget is set", func(r *rig) {
				c := r.config("w1")
				c.ShrinkWindow = 0
				r.see(c)
				r.see(Lies{"default"})
				r.tells("default", r.node(3, Ready))
				r.write(all(gone, 0, 1, 2))
			}),
			right("our own selector takes them", func(r *rig) {
				c := r.config("w1")
				c.Selector = map[string]string{"pool": "7"}
				r.see(c)
				moved := r.node(0, Ready)
				moved.Labels = map[string]string{"pool": "7"}
				r.tells("default", moved, r.node(1, Ready), r.node(2, Ready), r.node(3, Ready))
				r.write(all(gone, 1, 2, 3))
			}),
			right("our own selector took them before they were deleted", func(r *rig) {
				again(r)
				selected(r, odd)
				deleted(r)
				r.write(all(gone, 0, 2))
			}),
			right("at the same moment, to a writer that stood still", func(r *rig) {
				again(r)
				deleted(r)
				selected(r, odd)
				r.write(all(gone, 0, 2))
			}),
			wrong("I4 shrink", "our own selector took them, and would have them again but that they were deleted", func(r *rig) {
				again(r)
				selected(r, odd)
				deleted(r)
				selected(r, nil)
				r.write(all(gone, 0, 2))
			}),
			wrong("I4 reason", "NOT_READY takes what passes its probe", func(r *rig) {
				r.tells("default", r.node(0, NotReady), r.node(1, Ready), r.node(2, Ready), r.node(3, Ready))
				r.write(all(out, 0))
			}),
			wrong("I4 trust", "a link that is dead takes nothing", func(r *rig) {
				leaves(r)
				r.doubts("default", func(v *Told) { v.Alive = false })
				r.write(all(gone, 0))
			}),
			wrong("I4 trust", "a word that is too old takes nothing", func(r *rig) {
				leaves(r)
				r.wait(16 * time.Minute)
				r.write(all(gone, 0))
			}),
			wrong("I4 leader", "who does not lead writes", func(r *rig) {
				leaves(r)
				r.see(Leads{"w1", false})
				r.write(all(gone, 0))
			}),
			wrong("I4 corroboration", "all fail at once and one is put out", func(r *rig) {
				for i := range 4 {
					r.probe(i, Failing)
				}
				r.write(all(out, 0))
			}),
		)
		check(
			t,
			func() *rig {
				r := settled(2)
				r.probe(0, Failing)
				r.wait(time.Second)
				r.probe(1, Passing)
				r.wait(time.Second)
				r.probe(1, Failing)
				return r
			},
			right("a failure counts while nothing passes, as another endpoint has passed since it began",
				func(r *rig) { r.write(all(out, 0)) }),
			wrong("I4 corroboration", "the failure of the other one, which has not been followed by a pass",
				func(r *rig) { r.write(all(out, 1)) }),
		)
		// emptyFor is an empty view that has been seen three times, another one for a while, and an empty one again.
		emptyFor := func(r *rig, while time.Duration) {
			for range 3 {
				r.is("default")
				r.tells("default")
				r.wait(5 * time.Second)
			}
			r.is("default", r.node(3, Ready))
			r.tells("default", r.node(3, Ready))
			r.wait(while)
			r.is("default")
			r.tells("default")
		}
		check(t, func() *rig { return settled(2, probingOff) },
			wrong("I4 empty", "the third observation comes too soon", func(r *rig) {
				r.is("default")
				r.tells("default")
				r.wait(4 * time.Second)
				r.tells("default")
				r.wait(3999 * time.Millisecond)
				r.tells("default")
				r.write(all(gone, 0, 1))
			}),
			wrong("I4 empty", "another epoch starts over", func(r *rig) {
				r.is("default")
				r.tells("default")
				r.wait(5 * time.Second)
				r.tells("default")
				r.wait(5 * time.Second)
				r.view("default").Epoch = "2"
				r.tells("default")
				r.write(all(gone, 0, 1))
			}),
			wrong("I4 empty", "a view that is not empty starts over", func(r *rig) {
				emptyFor(r, time.Second)
				r.write(all(gone, 0, 1))
			}),
			right("one that was never the newest does not", func(r *rig) {
				emptyFor(r, 0)
				r.write(all(gone, 0, 1))
			}),
			right("three that are far enough apart are believed", func(r *rig) {
				r.is("default")
				for range 3 {
					r.tells("default")
					r.wait(4 * time.Second)
				}
				r.write(all(gone, 0, 1))
			}))
	})
	t.Run("I5", func(t *testing.T) {
		ends := func(r *rig) {
			r.see(Over{})
			r.at = r.o.Due()
			r.see(End{})
		}
		check(t, plain,
			right("all is as it should be", ends),
			wrong("I5 wrong", "one that was deleted is still served", func(r *rig) {
				r.is("default", r.node(1, Ready), r.node(2, Ready), r.node(3, Ready))
				ends(r)
			}),
			wrong("I5 wrong", "a new one is not listed", func(r *rig) {
				r.is("default", append(r.truth["default"], r.node(4, Ready))...)
				r.see(Backend{addr(4), 0, true})
				ends(r)
			}),
			wrong("I5 wrong", "a dead one is still served", func(r *rig) { r.see(Backend{addr(2), 0, false}); ends(r) }),
			right("a new one that never answered is not listed", func(r *rig) {
				r.is("default", append(r.truth["default"], r.node(4, Ready))...)
				ends(r)
			}),
			right("the floor keeps what answers, and says so", func(r *rig) {
				r.is("default")
				r.see(Acts{"w1", web, []string{"floor"}, map[string]int{"default": 0}})
				ends(r)
			}),
			wrong("I5 told", "the floor keeps what answers, and is silent", func(r *rig) {
				r.is("default")
				r.see(Acts{"w1", web, []string{}, map[string]int{"default": 0}})
				ends(r)
			}),
			right("a panic keeps all, and says so", func(r *rig) {
				for i := range 4 {
					r.see(Backend{addr(i), 0, false})
				}
				r.see(Acts{"w1", web, []string{"panic"}, map[string]int{"default": 0}})
				ends(r)
			}),
			wrong("I5 leader", "nobody leads", func(r *rig) { r.see(Leads{"w1", false}); ends(r) }))
	})
	t.Run("I7", func(t *testing.T) {
		check(t, func() *rig {
			r := plain()
			r.o.setup.Limit = 10
			return r
		}, right("within the limit", func(r *rig) { r.see(Holds{"i", "w1", 10}) }),
			wrong("I7 bounded", "above it", func(r *rig) { r.see(Holds{"i", "w1", 11}) }))
	})
}

func TestTheBoundGrowsWithEachHalving(t *testing.T) {
	for n, want := range []int{0, 1, 2, 3, 3, 4, 4} {
		if got := halvings(n); got != want {
			t.Errorf("%d endpoints take %d windows, not %d", n, got, want)
		}
	}
	d := Delays{}.withDefaults()
	for window, want := range map[time.Duration]time.Duration{time.Minute: d.Rest, time.Hour: time.Hour} {
		if got := d.bound(3, 3, window) - d.bound(2, 3, window); got != want {
			t.Errorf("one halving more adds %s with windows of %s, not %s", got, window, want)
		}
	}
	if got := d.bound(1, 10, time.Minute) - d.bound(1, 9, time.Minute); got != d.Rest {
		t.Errorf("one observation more that confirms an empty source adds %s", got)
	}
}

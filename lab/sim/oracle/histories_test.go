package oracle

import (
	"net/netip"
	"testing"
	"time"
)

func probingOff(c *Configured) { c.Probe = "" }

func all(f fate, of ...int) map[int]fate {
	m := map[int]fate{}
	for _, i := range of {
		m[i] = f
	}
	return m
}

// TestTheHistoriesAreJudgedAsTheDesignHasThem has the 24 short histories that broke earlier
// drafts of the rules: the right answer is accepted, one that breaks an invariant refused.
func TestTheHistoriesAreJudgedAsTheDesignHasThem(t *testing.T) {
	t.Run("1 one node, the prober's host loses its network", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(1)
			r.wait(5 * time.Second)
			r.probe(0, Failing)
			return r
		}, right("stays ready", nothing),
			wrong("I2 never none", "is put out", func(r *rig) { r.write(all(out, 0)) }))
	})
	t.Run("2 two nodes, the prober is broken, node 0 is deleted", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2)
			r.wait(5 * time.Second)
			r.probe(0, Failing)
			r.probe(1, Failing)
			r.is("default", r.node(1, Ready))
			r.tells("default", r.node(1, Ready))
			return r
		}, right("0 is gone", func(r *rig) { r.write(all(gone, 0)) }),
			wrong("I4 corroboration", "1 is put out with it", func(r *rig) { r.write(map[int]fate{0: gone, 1: out}) }))
	})
	t.Run("3 the standby's prober never worked, and it takes over", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2)
			r.boot("w2")
			r.tells("default", r.node(0, Ready), r.node(1, Ready))
			r.probe(0, Failing)
			r.probe(1, Failing)
			r.see(Leads{"w1", false})
			r.see(Leads{"w2", true})
			return r
		}, right("stays", nothing),
			wrong("I4 corroboration", "one is put out", func(r *rig) { r.write(all(out, 0)) }))
	})
	t.Run("4 the leader's host is cut off from everything and its process restarts", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2)
			r.restart()
			r.probe(0, Failing)
			r.probe(1, Failing)
			return r
		}, right("stays", nothing),
			wrong("I4 corroboration", "one is put out", func(r *rig) { r.write(all(out, 0)) }))
	})
	t.Run("5 the prober is broken, and failures are noticed one by one", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2)
			r.probe(0, Passing)
			r.probe(1, Passing)
			broken := r.at.Add(time.Second)
			r.at = r.at.Add(3 * time.Second) // nothing passes meanwhile
			r.probeSince(0, Failing, broken)
			return r
		}, right("0 stays", nothing),
			wrong("I4 corroboration", "0 is put out, since 1 is still passing", func(r *rig) { r.write(all(out, 0)) }))
	})
	t.Run("6 node 0 dies, later all probes fail", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2)
			r.probe(0, Failing)
			r.write(all(out, 0))
			r.wait(time.Minute)
			r.probe(1, Passing)
			r.wait(time.Second)
			r.probe(1, Failing)
			return r
		}, right("0 stays out", nothing),
			wrong("I2 never none", "1 is put out too", func(r *rig) { r.write(all(out, 1)) }))
	})
	t.Run("7 the prober is broken, the feed leaves all but one out", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(4)
			for i := range 4 {
				r.probe(i, Failing)
			}
			r.see(Lies{"default"})
			r.tells("default", r.node(3, Ready))
			return r
		}, right("half leave", func(r *rig) { r.write(all(gone, 0, 1)) }),
			wrong("I4 shrink", "three leave", func(r *rig) { r.write(all(gone, 0, 1, 2)) }))
	})
	t.Run("8 membership is DEGRADED, a node dies and revives", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2)
			r.doubts("default", func(v *Told) { v.Membership = false })
			r.probe(0, Failing)
			r.write(all(out, 0))
			r.wait(time.Minute)
			r.probe(0, Passing)
			return r
		}, right("is ready again", func(r *rig) { r.write(all(serve, 0)) }),
			wrong("I4 trust", "the other is gone", func(r *rig) { r.write(map[int]fate{0: serve, 1: gone}) }))
	})
	t.Run("9 the same before the first synced after a restart", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2)
			r.restart()
			r.probe(1, Passing)
			r.probe(0, Failing)
			r.write(all(out, 0))
			r.wait(time.Minute)
			r.probe(0, Passing)
			return r
		}, right("is ready again", func(r *rig) { r.write(all(serve, 0)) }),
			wrong("I4 initial-sync", "the other is gone", func(r *rig) { r.write(map[int]fate{0: serve, 1: gone}) }))
	})
	t.Run("10 the link is down, 1 fails first, then 0 dies, 1 recovers", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2)
			r.doubts("default", func(v *Told) { v.Alive = false })
			r.probe(1, Failing)
			r.write(all(out, 1))
			r.wait(time.Minute)
			r.probe(0, Passing)
			r.wait(time.Second)
			r.probe(0, Failing)
			r.see(Backend{addr(0), false})
			r.wait(time.Minute)
			r.probe(1, Passing)
			return r
		}, right("1 is ready, 0 out", func(r *rig) { r.write(map[int]fate{0: out, 1: serve}) }),
			wrong("I2 never none", "0 is out, and 1 stays so", func(r *rig) { r.write(all(out, 0)) }))
	})
	t.Run("11 a probe's spec changes, the node is DRAINING", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(1)
			r.probe(0, Unjudged)
			r.is("default", r.node(0, Draining))
			r.tells("default", r.node(0, Draining))
			return r
		}, right("stays ready", nothing),
			right("stays ready when the probe passes", func(r *rig) { r.probe(0, Passing) }),
			wrong("I4 floor", "drains", func(r *rig) { r.write(all(drain, 0)) }))
	})
	t.Run("12 one node is DRAINING, then its address changes", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(1)
			r.tells("default", r.node(0, Draining))
			moved := r.node(0, Draining)
			moved.Addresses = []netip.Addr{addr(9)}
			r.is("default", moved)
			r.tells("default", moved)
			r.see(Backend{addr(9), true})
			r.probe(9, Passing)
			return r
		}, right("the new one is ready at once", func(r *rig) { r.write(map[int]fate{0: gone, 9: serve}) }),
			wrong("I4 floor", "it drains", func(r *rig) { r.write(map[int]fate{0: gone, 9: drain}) }))
	})
	t.Run("13 the feed says both DRAINING", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2)
			r.tells("default", r.node(0, Draining), r.node(1, Draining))
			return r
		}, right("stays", nothing),
			wrong("I4 floor", "both drain", func(r *rig) {
				r.write(all(drain, 0))
				r.wait(2 * time.Minute)
				r.observes("default")
				r.write(all(drain, 1))
			}))
	})
	t.Run("14 a lie takes half, a takeover, another lie", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(4)
			r.see(Lies{"default"})
			r.tells("default", r.node(2, Ready), r.node(3, Ready))
			r.write(all(gone, 0, 1))
			r.wait(time.Second)
			r.see(Leads{"w1", false})
			r.boot("w2")
			r.see(Leads{"w2", true})
			r.tells("default", r.node(3, Ready))
			r.probe(2, Passing)
			r.probe(3, Passing)
			return r
		}, right("no more leave", nothing),
			right("one leaves when the first window is over", func(r *rig) {
				r.wait(time.Minute)
				r.write(all(gone, 2))
			}),
			wrong("I4 shrink", "one leaves at once", func(r *rig) { r.write(all(gone, 2)) }))
	})
	t.Run("15 probing is off, an address changes back and forth within a window", func(t *testing.T) {
		at := func(r *rig, i int) Member {
			m := r.node(1, Ready)
			m.Addresses = []netip.Addr{addr(i)}
			return m
		}
		check(t, func() *rig {
			r := settled(2, probingOff)
			r.see(Lies{"default"})
			r.tells("default", r.node(0, Ready), at(r, 9))
			r.write(map[int]fate{1: gone, 9: serve})
			r.wait(10 * time.Second)
			r.tells("default", r.node(0, Ready), at(r, 1))
			return r
		}, right("the other is added beside it", func(r *rig) { r.write(all(serve, 1)) }),
			wrong("I4 shrink", "it leaves again", func(r *rig) { r.write(map[int]fate{9: gone, 1: serve}) }))
	})
	t.Run("16 probing is off, the only node that a target selects is deleted", func(t *testing.T) {
		pool := func(c *Configured) { c.Selector = map[string]string{"pool": "1"} }
		check(t, func() *rig {
			r := bare(probingOff, pool)
			r.boot("w1")
			members := []Member{r.node(0, Ready), r.node(1, Ready), r.node(2, Ready)}
			r.is("default", members...)
			r.tells("default", members...)
			r.see(Leads{"w1", true})
			r.write(all(serve, 1))
			r.wait(2 * time.Minute)
			r.is("default", members[0], members[2])
			for range 2 {
				r.tells("default", members[0], members[2])
				r.wait(5 * time.Second)
			}
			return r
		}, right("gone after three observations", func(r *rig) {
			r.observes("default")
			r.write(all(gone, 1))
		}), wrong("I4 empty", "gone after two", func(r *rig) { r.write(all(gone, 1)) }))
	})
	t.Run("17 probing is on, the feed is empty, node 0 still answers", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2)
			r.is("default")
			for range 4 {
				r.tells("default")
				r.wait(5 * time.Second)
			}
			r.probe(1, Failing)
			r.see(Backend{addr(1), false})
			return r
		}, right("1 is gone, 0 stays", func(r *rig) { r.write(all(gone, 1)) }),
			wrong("I2 never none", "both are gone", func(r *rig) { r.write(all(gone, 0, 1)) }))
	})
	t.Run("18 an address changed and was written, then the link is lost", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2)
			moved := r.node(1, Ready)
			moved.Addresses = []netip.Addr{addr(9)}
			r.is("default", r.node(0, Ready), moved)
			r.tells("default", r.node(0, Ready), moved)
			r.probe(9, Passing)
			r.write(map[int]fate{1: gone, 9: serve})
			r.doubts("default", func(v *Told) { v.Alive = false })
			return r
		}, right("the new one stays", nothing),
			wrong("I4 trust", "it is gone with the old slice", func(r *rig) { r.write(all(gone, 9)) }))
	})
	two := func(c *Configured) { c.Sources = []string{"default", "other"} }
	t.Run("19 two sources, one was never synced", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2, two)
			m := Member{Name: "far", Addresses: []netip.Addr{addr(9)}, State: Ready}
			r.is("other", m)
			r.doubts("other", func(v *Told) { v.Ever, v.Synced, v.Members = false, false, []Member{m} })
			r.probe(9, Passing)
			r.is("default", r.node(1, Ready))
			r.tells("default", r.node(1, Ready))
			return r
		}, right("the other's changes flow", func(r *rig) { r.write(all(gone, 0)) }),
			wrong("I4 trust", "its own are listed", func(r *rig) { r.writeTo("other", all(serve, 9)) }))
	})
	t.Run("20 the inventory restarts and counts from 1", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(4)
			r.see(Lies{"default"})
			r.view("default").Observation = 10_000
			r.tells("default", r.node(2, Ready), r.node(3, Ready))
			r.write(all(gone, 0, 1))
			r.tells("default", r.node(3, Ready))
			r.wait(61 * time.Second)
			return r
		}, right("the next window opens", func(r *rig) {
			r.doubts("default", func(v *Told) { v.Epoch, v.Observation = "2", 1 })
			r.write(all(gone, 2))
		}), wrong("I4 shrink", "it opens on an old observation", func(r *rig) {
			r.doubts("default", func(v *Told) { v.Observation = 10_001 })
			r.write(all(gone, 2))
		}))
	})
	t.Run("21 a lying source says DRAINING for another's address", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2, two)
			r.see(Lies{"other"})
			r.tells("other", Member{Name: "liar", Addresses: []netip.Addr{addr(0)}, State: Draining})
			return r
		}, right("ignored", nothing),
			wrong("I4 reason", "drained", func(r *rig) { r.write(all(drain, 0)) }))
	})
	t.Run("22 the new CIDRs exclude every held endpoint", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2)
			r.see(Fenced{Writer: "w1", Source: "default", Inside: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}})
			return r
		}, right("nothing is written", nothing),
			wrong("I4 allowlist", "they are removed", func(r *rig) { r.write(all(gone, 0, 1)) }),
			wrong("I4 allowlist", "they are removed with what a stranger added", func(r *rig) {
				r.edits("default", append(r.lists["default"].Endpoints[:2:2], Endpoint{serve.Conditions, addr(77)})...)
				r.write(all(gone, 0, 1, 77))
			}))
		check(t, func() *rig {
			r := settled(1, probingOff)
			r.is("default")
			for range 3 {
				r.tells("default")
				r.wait(5 * time.Second)
			}
			r.write(all(gone, 0))
			r.edits("default", Endpoint{serve.Conditions, netip.MustParseAddr("192.168.1.1")})
			return r
		}, right("nothing was held, and what a stranger added outside of them goes", func(r *rig) {
			r.put("default", &Slice{Source: "default", Rest: "ports"})
		}))
	})
	t.Run("23 three messages within a second say empty", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(1, probingOff)
			r.see(Lies{"default"})
			for range 3 {
				r.tells("default")
				r.wait(300 * time.Millisecond)
			}
			return r
		}, right("held", nothing),
			wrong("I4 empty", "believed", func(r *rig) { r.write(all(gone, 0)) }))
	})
	t.Run("24 a new node whose backend is not up yet", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(1)
			members := []Member{r.node(0, Ready), r.node(1, Ready)}
			r.is("default", members...)
			r.tells("default", members...)
			r.probe(1, Failing)
			return r
		}, right("no write until it passes", func(r *rig) {
			r.probe(1, Passing)
			r.write(all(serve, 1))
		}))
	})
}

// A simulated world told it: while the API server hung, a writer lost the Lease and had it back within
// milliseconds, and then a request from before was carried out.
func TestWhatCameLateMayBePutBack(t *testing.T) {
	lands := func(meanwhile func(*rig)) func() *rig {
		return func() *rig {
			r := settled(4)
			left := []Member{r.node(0, Ready), r.node(1, Ready), r.node(2, Ready)}
			r.is("default", left...)
			r.tells("default", left...)
			r.plans++
			r.see(Planned{r.who, web, r.plans, 1})
			sent, before := r.at, r.lists["default"]
			meanwhile(r)
			r.lists["default"] = &Slice{Source: "default", Rest: "ports", Endpoints: before.Endpoints[:3]}
			r.see(
				Wrote{
					Writer: "w1",
					Target: web,
					Plan:   r.plans,
					Sent:   sent,
					Slice:  "web-default",
					Before: before,
					After:  r.lists["default"],
				},
			)
			return r
		}
	}
	restores := func(r *rig) { r.write(all(serve, 3)) }
	t.Run("in the same term", func(t *testing.T) {
		check(t, lands(nothing), wrong("I3 flap", "it is not late", restores))
	})
	t.Run("in the next one", func(t *testing.T) {
		check(t, lands(func(r *rig) { r.see(Leads{"w1", false}); r.see(Leads{"w1", true}) }),
			right("it is put back, and goes in its turn", func(r *rig) {
				restores(r)
				r.wait(2 * time.Minute)
				r.observes("default")
				r.write(all(gone, 3))
			}),
			wrong("I4 shrink", "it is put back, and goes before its turn", func(r *rig) { restores(r); r.write(all(gone, 3)) }),
			right("it stays", nothing))
	})
	t.Run("in another's", func(t *testing.T) {
		check(t, lands(func(r *rig) {
			left := r.truth["default"]
			r.boot("w2")
			r.tells("default", left...)
			for i := range 4 {
				r.probe(i, Passing)
			}
			r.see(Leads{"w2", true})
		}), right("it is put back", restores))
	})
}

// A simulated world told it.
func TestTheFloorSpeaksOfEachSourceByItself(t *testing.T) {
	t.Run("without probes the floor keeps what another source has than the one that is empty", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(1, probingOff, func(c *Configured) { c.Sources = []string{"default", "other"} })
			for _, state := range []State{Ready, Draining} {
				r.is("other", r.node(5, state))
				r.tells("other", r.node(5, state))
				r.writeTo("other", all(map[State]fate{Ready: serve, Draining: drain}[state], 5))
			}
			r.is("default")
			for range 4 {
				r.tells("default")
				r.wait(5 * time.Second)
			}
			return r
		},
			right("it is ready", func(r *rig) { r.writeTo("other", all(serve, 5)); r.write(all(gone, 0)) }),
			wrong("I4 floor", "it drains, and nothing is ready", func(r *rig) { r.write(all(gone, 0)) }))
	})
}

// A simulated world told it: the watch was behind, so the leader took it that the other source's endpoints were
// still there.
func TestALeaderMayNotKnowYetWhatSomeoneElseTook(t *testing.T) {
	check(t, func() *rig {
		r := settled(1, func(c *Configured) { c.Sources = []string{"default", "other"} })
		r.is("other", r.node(5, Ready))
		r.tells("other", r.node(5, Ready))
		r.see(Backend{addr(5), true})
		r.probe(5, Passing)
		r.writeTo("other", all(serve, 5))
		r.see(Lies{"default"})
		for range 4 {
			r.tells("default")
			r.wait(5 * time.Second)
		}
		r.edited("other", nil)
		return r
	},
		right("it does not know, and what it takes is the last", func(r *rig) { r.put("default", nil) }),
		right("it was answered what another slice is", func(r *rig) {
			r.see(Noticed{Writer: "w1", Target: web, Slice: "web-default", Version: r.version})
			r.put("default", nil)
		}),
		wrong("I2 never none", "its watch has shown it", func(r *rig) {
			r.see(Noticed{Writer: "w1", Target: web, Version: r.version})
			r.put("default", nil)
		}),
		wrong("I2 never none", "it was answered so", func(r *rig) {
			r.see(Noticed{Writer: "w1", Target: web, Slice: "web-other", Version: r.version})
			r.put("default", nil)
		}),
		wrong("I2 never none", "it has put it back since, and takes both", func(r *rig) {
			r.writeTo("other", all(serve, 5))
			r.put("other", nil)
			r.put("default", nil)
		}))
}

// A simulated world told it: there was one slice, and each of two sources had nothing for the Service in turn.
func TestASliceGoesFromSourceToSource(t *testing.T) {
	of := func(source string, nodes ...int) *Slice {
		s := &Slice{Source: source, Rest: source + ", ports"}
		for _, i := range nodes {
			s.Endpoints = append(s.Endpoints, Endpoint{serve.Conditions, addr(i)})
		}
		return s
	}
	passed := func() *rig {
		r := settled(0, func(c *Configured) { c.Sources = []string{"default", "other"} })
		r.put("default", of("default"))
		// has passes the Service to a source that has node i.
		has := func(source, without string, i int) {
			r.is(source, r.node(i, Ready))
			r.tells(source, r.node(i, Ready))
			r.probe(i, Passing)
			for range 4 {
				r.is(without)
				r.tells(without)
				r.wait(5 * time.Second)
			}
			r.put("default", of(source, i))
		}
		has("default", "other", 0)
		has("other", "default", 9)
		has("default", "other", 0)
		return r
	}
	check(t, passed, right("its label goes with what it lists", nothing),
		wrong("I3 flap", "its label alone goes there and back", func(r *rig) {
			r.put("default", of("other", 0))
			r.put("default", of("default", 0))
		}),
		wrong("I3 flap", "it is empty, and its label goes there and back", func(r *rig) {
			r.is("default")
			for range 4 {
				r.tells("default")
				r.wait(5 * time.Second)
			}
			r.probe(0, Failing)
			r.put("default", of("default"))
			r.put("default", of("other"))
			r.put("default", of("default"))
		}))
}

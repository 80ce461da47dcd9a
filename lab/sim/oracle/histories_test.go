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

func TestEndpointsThatNewCIDRsExcludeStay(t *testing.T) {
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
		r.see(Backend{addr(5), 0, true})
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

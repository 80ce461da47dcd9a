package oracle

import (
	"testing"
	"time"
)

// Simulated worlds told these.
func TestWhatAViewThatIsEmptyCountsFor(t *testing.T) {
	// times has the source say the same so often, far enough apart.
	times := func(r *rig, n int, members ...Member) {
		r.is("default", members...)
		for range n {
			r.tells("default", members...)
			r.wait(5 * time.Second)
		}
	}
	t.Run("all that there is is NOT_READY and fails, though another source's passes", func(t *testing.T) {
		seen := func(observations int, passed bool) func() *rig {
			return func() *rig {
				r := settled(1, func(c *Configured) { c.Sources = []string{"default", "other"} })
				r.is("other", r.node(5, Ready))
				r.tells("other", r.node(5, Ready))
				r.probe(5, Passing)
				r.writeTo("other", all(serve, 5))
				r.probe(1, map[bool]Verdict{true: Passing, false: Failing}[passed])
				times(r, observations, r.node(1, NotReady))
				r.probe(1, Failing)
				r.probe(0, Failing)
				return r
			}
		}
		check(t, seen(2, false),
			right("twice: what fails is out", func(r *rig) { r.write(all(out, 0)) }),
			wrong("I4 empty", "twice: it is gone", func(r *rig) { r.write(all(gone, 0)) }))
		check(t, seen(3, false), right("three times: it is gone", func(r *rig) { r.write(all(gone, 0)) }))
		check(t, seen(3, true),
			right("while one of them passed it was not empty", func(r *rig) { r.write(all(out, 0)) }),
			wrong("I4 empty", "it is gone all the same", func(r *rig) { r.write(all(gone, 0)) }))
	})
	t.Run("the observation that is in force when an epoch is first met does not confirm it", func(t *testing.T) {
		restarted := func(observations int) func() *rig {
			return func() *rig {
				r := settled(1, probingOff)
				r.is("default")
				r.doubts("default", func(v *Told) { v.Epoch, v.Observation, v.Members = "2", 1, nil })
				r.wait(5 * time.Second)
				times(r, observations)
				return r
			}
		}
		goes := func(r *rig) { r.write(all(gone, 0)) }
		check(t, restarted(2), wrong("I4 empty", "two since", goes))
		check(t, restarted(3), right("three since", goes))
	})
	t.Run("nor does one whose number is no higher than an earlier one's", func(t *testing.T) {
		back := func(from uint64) func() *rig {
			return func() *rig {
				r := settled(1, probingOff)
				r.doubts("default", func(v *Told) { v.Observation = 10 })
				r.see(Lies{"default", true})
				r.view("default").Observation = from
				times(r, 3)
				return r
			}
		}
		goes := func(r *rig) { r.write(all(gone, 0)) }
		check(t, back(5), wrong("I4 empty", "it went back", goes))
		check(t, back(10), right("it went on", goes))
	})
	t.Run("one that is out and passes becomes what was said of it before", func(t *testing.T) {
		said := func(r *rig, last ...Member) {
			r.probe(1, Failing)
			r.write(all(out, 1))
			r.is("default", last...)
			r.tells("default", last...)
			r.probe(0, Failing)
			times(r, 2)
			r.probe(1, Passing)
		}
		drains := func(r *rig) { r.write(all(drain, 1)) }
		check(t, func() *rig {
			r := settled(2)
			said(r, r.node(0, Ready), r.node(1, Draining))
			return r
		}, right("it drains", drains))
		check(t, func() *rig {
			r := settled(2)
			said(r, r.node(0, Ready), r.node(1, Ready))
			return r
		}, right("it is ready", func(r *rig) { r.write(all(serve, 1)) }), wrong("I3 table", "it drains", drains))
	})
	t.Run("or goes, if our own selector leaves it out", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2)
			c := r.config("w1")
			c.Selector = map[string]string{"pool": "0"}
			r.see(c)
			r.doubts("default", func(v *Told) { v.Membership = false })
			r.probe(1, Failing)
			r.write(all(out, 1))
			r.probe(1, Passing)
			return r
		}, right("it goes", func(r *rig) { r.write(all(gone, 1)) }), wrong("I3 table", "it drains", func(r *rig) { r.write(all(drain, 1)) }))
	})
}

func TestAWindowEndsWithTheTarget(t *testing.T) {
	check(t, func() *rig {
		r := settled(4)
		r.see(Lies{"default", true})
		r.tells("default", r.node(0, Ready), r.node(1, Ready), r.node(2, Ready))
		r.write(all(gone, 3))
		r.wait(2 * time.Minute)
		return r
	},
		wrong("I4 shrink", "another goes on the same observation", func(r *rig) {
			r.doubts("default", func(v *Told) { v.Members, v.Word = []Member{r.node(0, Ready), r.node(1, Ready)}, r.at })
			r.write(all(gone, 2))
		}),
		right("it was deleted, and has come back", func(r *rig) {
			r.see(Configured{Writer: "w1", Target: web, Out: true})
			r.put("default", nil)
			r.see(r.config("w1"))
			r.write(all(serve, 0, 1, 2))
			r.doubts("default", func(v *Told) { v.Members, v.Word = []Member{r.node(0, Ready), r.node(1, Ready)}, r.at })
			r.write(all(gone, 2))
		}))
}

func TestWhatASelectorLeavesOutWhileTheServiceIsOptedOutIsOurOwnDoing(t *testing.T) {
	check(t, func() *rig {
		r := settled(4)
		r.see(Configured{Writer: "w1", Target: web, Out: true})
		c := r.config("w1")
		c.Selector = map[string]string{"pool": "0"}
		r.see(c)
		r.see(Leads{"w1", false})
		r.see(Leads{"w1", true})
		return r
	},
		right("what it leaves out goes", func(r *rig) { r.write(all(gone, 1, 3)) }),
		wrong("I4 shrink", "and with it what was deleted", func(r *rig) {
			r.is("default", r.node(0, Ready))
			r.tells("default", r.node(0, Ready))
			r.write(all(gone, 1, 2, 3))
		}))
}

func TestToANewLeaderAllThatTheSlicesListIsOurs(t *testing.T) {
	edited := func(r *rig, as fate) {
		r.edits("default", Endpoint{serve.Conditions, addr(0)}, Endpoint{as.Conditions, addr(77)})
	}
	restores := func(r *rig) { r.write(all(serve, 77)) }
	again := func(r *rig) { r.see(Leads{"w1", false}); r.see(Leads{"w1", true}) }
	check(t, func() *rig { return settled(1) },
		right("it was added before, and is put back when someone else alters it", func(r *rig) {
			edited(r, serve)
			again(r)
			edited(r, out)
			restores(r)
		}),
		right("it was added before, and is given back in a panic", func(r *rig) {
			edited(r, serve)
			again(r)
			r.doubts("default", func(v *Told) { v.Membership = false })
			r.probe(0, Passing)
			r.wait(time.Second)
			r.probe(77, Failing)
			r.write(all(out, 77))
			r.probe(0, Failing)
			restores(r)
		}),
		wrong("I3 table", "it was added since", func(r *rig) {
			again(r)
			edited(r, serve)
			edited(r, out)
			restores(r)
		}),
		wrong("I3 table", "it was added before, and has left in its turn", func(r *rig) {
			edited(r, serve)
			again(r)
			r.wait(2 * time.Minute)
			r.observes("default")
			r.write(all(gone, 77))
			edited(r, out)
			restores(r)
		}))
}

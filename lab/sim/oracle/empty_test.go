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
}

func TestAWindowEndsWithTheTarget(t *testing.T) {
	check(t, func() *rig {
		r := settled(4)
		r.see(Lies{"default"})
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

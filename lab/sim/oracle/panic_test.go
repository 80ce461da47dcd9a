package oracle

import (
	"testing"
	"time"
)

// Two simulated worlds told these.
func TestInAPanicTheLastOneOfUseGoesAsTheSourcesHaveIt(t *testing.T) {
	t.Run("a view that is all NOT_READY is seen as often as an empty one, whatever the prober has said", func(t *testing.T) {
		seen := func(observations int) func() *rig {
			return func() *rig {
				r := settled(1)
				r.probe(0, Failing)
				r.is("default", r.node(1, NotReady))
				for range observations {
					r.tells("default", r.node(1, NotReady))
					r.wait(5 * time.Second)
				}
				r.probe(1, Failing)
				return r
			}
		}
		goes := func(r *rig) { r.write(all(gone, 0)) }
		check(t, seen(3), right("three times", goes))
		check(t, seen(2), wrong("I4 panic", "twice", goes))
		check(t, func() *rig {
			r := seen(2)()
			r.probe(1, Unjudged)
			return r
		}, wrong("I4 panic", "twice, with one that is not judged yet", goes))
	})
	t.Run("what is given back is so in a slice that someone else has deleted, too", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(2, func(c *Configured) { c.NoOut = true })
			r.probe(0, Passing)
			r.wait(time.Second)
			r.probe(1, Failing)
			r.write(all(gone, 1))
			r.probe(0, Failing)
			r.edited("default", nil)
			return r
		}, right("both are back", func(r *rig) { r.write(all(serve, 0, 1)) }),
			wrong("I3 table", "and one that was never held", func(r *rig) { r.write(all(serve, 0, 1, 2)) }))
	})
	t.Run("what someone else put out is given back if a failure would have put it out", func(t *testing.T) {
		check(t, func() *rig {
			r := settled(3)
			r.probe(0, Passing)
			r.probe(2, Passing)
			r.wait(time.Second)
			r.edits("default", Endpoint{out.Conditions, addr(0)}, Endpoint{out.Conditions, addr(1)}, Endpoint{out.Conditions, addr(2)})
			r.probe(1, Failing)
			r.write(all(serve, 0, 2))
			r.probe(0, Failing)
			r.write(all(out, 0))
			r.probe(2, Failing)
			return r
		}, right("both are back", func(r *rig) { r.write(all(serve, 0, 1)) }),
			wrong("I3 table", "as what neither was", func(r *rig) { r.write(all(drain, 0, 1)) }))
	})
	t.Run("one that was taken out while another passed comes back in its place, though none is listed as out", func(t *testing.T) {
		taken := func(told State, noOut bool) func() *rig {
			return func() *rig {
				r := settled(2, func(c *Configured) { c.NoOut = noOut })
				r.probe(1, Failing)
				r.write(all(map[bool]fate{false: out, true: gone}[noOut], 1))
				r.wait(5 * time.Second)
				r.probe(0, Passing)
				r.wait(5 * time.Second)
				r.probe(0, Failing)
				r.is("default", r.node(0, NotReady), r.node(1, told))
				r.tells("default", r.node(0, NotReady), r.node(1, told))
				return r
			}
		}
		back := func(r *rig) { r.write(map[int]fate{0: gone, 1: serve}) }
		check(t, taken(Ready, true), right("it is READY", back))
		check(t, taken(Draining, true), right("it drains", back),
			wrong("I3 table", "and another one with it that was never held", func(r *rig) { r.write(map[int]fate{0: gone, 1: serve, 2: serve}) }))
		check(t, taken(NotReady, true), wrong("I3 table", "it is NOT_READY", back))
		check(t, func() *rig {
			r := taken(Ready, true)()
			r.is("default", r.node(0, NotReady), r.node(2, Ready))
			r.tells("default", r.node(0, NotReady), r.node(2, Ready))
			return r
		}, wrong("I3 table", "it was deleted since", back))
		check(t, func() *rig {
			r := taken(Ready, true)()
			r.is("default", r.node(0, Ready), r.node(1, Ready))
			r.tells("default", r.node(0, Ready), r.node(1, Ready))
			return r
		}, wrong("I3 table", "the last one stays", func(r *rig) { r.write(all(serve, 1)) }))
		check(t, taken(Ready, false), right("listed as out", func(r *rig) { r.write(map[int]fate{0: out, 1: serve}) }))
	})
}

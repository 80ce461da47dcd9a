package churn

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// crowd is a Service's endpoints while they come and go. Its draws are seeded: each run
// makes the same changes.
type crowd struct {
	list   []planner.Endpoint
	born   int // how many addresses have been used; none comes twice
	random *rand.Rand
}

func newCrowd(n int) *crowd {
	c := &crowd{random: rand.New(rand.NewPCG(uint64(n), 0))}
	c.join(n)
	return c
}

func (c *crowd) join(n int) {
	c.list = slices.Clone(c.list)
	for range n {
		c.born++
		// All as long as text: which of two equally full slices is written makes no difference.
		address := netip.AddrFrom4([4]byte{10, 100, byte(100 + c.born/100), byte(100 + c.born%100)})
		c.list = append(c.list, planner.Endpoint{Address: address, Ready: true, Serving: true})
	}
}

// leave takes away those that are first in the list, who are there longest.
func (c *crowd) leave(n int) { c.list = slices.Clone(c.list[n:]) }

// drain makes those that are first in the list terminating.
func (c *crowd) drain(n int) {
	c.list = slices.Clone(c.list)
	for i := range n {
		c.list[i].Ready, c.list[i].Terminating = false, true
	}
}

// The changes of one endpoint.
var changes = []struct {
	name string
	make func(*crowd)
}{
	{"one turns unready, or ready again", func(c *crowd) {
		c.list = slices.Clone(c.list)
		e := &c.list[c.random.IntN(len(c.list))]
		e.Ready, e.Serving = !e.Ready, !e.Serving
	}},
	{"one joins", func(c *crowd) { c.join(1) }},
	{"one leaves", func(c *crowd) {
		at := c.random.IntN(len(c.list))
		c.list = slices.Delete(slices.Clone(c.list), at, at+1)
	}},
}

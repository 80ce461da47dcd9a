package sim

import (
	"math/rand/v2"
	"time"

	"github.com/slicefeed/slicefeed/lab/sim/oracle"
)

// What the writer's app gives its Lease.
const (
	leaseDuration = 12 * time.Second
	leaseRenew    = 7 * time.Second
	leaseRetry    = time.Second
)

// candidate competes for the Lease as client-go does.
type candidate struct {
	w     *writer
	rand  *rand.Rand
	until time.Time // the Lease is ours at least so long
	since time.Time // when it became ours last

	turn     int       // of the Lease as last seen
	seenAt   time.Time // when it was seen first
	resting  time.Time // until then it is left to others
	leads    bool      // as was told
	notice   *event
	released bool
}

// Leading is whether the Lease is surely ours.
func (c *candidate) Leading() bool { return !c.released && time.Now().Before(c.until) }

// LeadingSince is when its term began; zero: it does not lead.
func (c *candidate) LeadingSince() time.Time {
	if !c.Leading() {
		return time.Time{}
	}
	return c.since
}

// Changed delivers nothing: the writer is poked.
func (c *candidate) Changed() <-chan struct{} { return nil }

// Release has the writer stop leading, and then leaves the Lease to others for a while.
func (c *candidate) Release() (handOver func()) {
	if !c.Leading() {
		return func() {}
	}
	c.w.tellf("%s gives the Lease up", c.w.name)
	c.released = true
	c.look()
	return func() {
		c.resting = time.Now().Add(leaseDuration)
		c.w.at(time.Now().Add(5*time.Millisecond), func() {
			server := c.w.consuming
			if server.down+server.hanging+c.w.cutOff == 0 && server.holder == c.w.id() {
				server.holder, server.turns = "", server.turns+1
			}
		})
	}
}

// compete tries to take or renew the Lease, again and again.
func (c *candidate) compete() {
	pause := leaseRetry + time.Duration(c.rand.Int64N(int64(leaseRetry*6/5)))
	if c.Leading() {
		pause = leaseRetry
	}
	c.w.at(time.Now().Add(pause), c.compete)
	if c.resting.After(time.Now()) {
		return
	}
	c.released = false
	sent := time.Now()
	c.w.at(sent.Add(2*time.Millisecond+time.Duration(c.rand.IntN(5))*time.Millisecond), func() { c.try(sent) })
}

// try is a read and, if that may succeed, an update.
func (c *candidate) try(sent time.Time) {
	server, me := c.w.consuming, c.w.id()
	if server.down+server.hanging+c.w.cutOff > 0 || server.retryAfter > 0 && c.rand.IntN(3) > 0 {
		return
	}
	now := time.Now()
	if server.turns != c.turn {
		c.turn, c.seenAt = server.turns, now
	}
	switch server.holder {
	case me, "":
	default:
		c.lost() // whoever finds it with another leads no longer
		if now.Before(c.seenAt.Add(leaseDuration)) {
			return
		}
	}
	server.holder, server.renewed = me, now
	server.turns++
	c.turn, c.seenAt = server.turns, now
	if server.losing > 0 && c.rand.IntN(2) == 0 {
		return
	}
	if !c.Leading() {
		c.since = now
	}
	c.until = sent.Add(leaseRenew)
	c.look()
}

// lost has the writer lead no longer, because it has found that the Lease is not its own.
func (c *candidate) lost() {
	c.until = time.Time{}
	c.look()
}

// look tells when the writer takes itself for the leader, and when no more.
func (c *candidate) look() {
	now := c.Leading()
	c.notice.cancel()
	if now {
		life := c.w.lives
		c.notice = c.w.world.at(c.until, func() {
			if c.w.lives == life {
				c.look()
			}
		})
	}
	if now != c.leads {
		c.leads = now
		c.w.tellf("%s %s", c.w.name, map[bool]string{true: "leads", false: "leads no more"}[now])
		c.w.see(oracle.Leads{Writer: c.w.name, Leads: now})
		c.w.poke()
	}
}

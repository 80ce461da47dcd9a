package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Crowd is many subscribers of one server that come and go together.
type Crowd struct {
	all  []*Subscriber
	end  context.CancelFunc
	life *errgroup.Group
	over context.Context // done when any of them has failed

	mu      sync.Mutex
	waiting *Arrival
	digest  Fingerprint // that was received last
}

// Arrival is when each of a crowd came to be as is wanted.
type Arrival struct {
	want func(*Subscriber) bool
	seen []bool
	at   []time.Time
	all  chan struct{}
}

// NewCrowd makes subscribers of a server that sends so many nodes at most.
func NewCrowd(s *Server, subscribers, nodes int) (*Crowd, error) {
	c := &Crowd{}
	names := make([]*tls.Config, min(clients, subscribers))
	for n := range names {
		var err error
		if names[n], err = s.As(SubscriberName(n)); err != nil {
			return nil, err
		}
	}
	for n := range subscribers {
		c.all = append(c.all, &Subscriber{number: n, nodes: nodes, address: s.Address(), tls: names[n%len(names)], onSynced: c.onSynced})
	}
	return c, nil
}

func (c *Crowd) onSynced(s *Subscriber) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.digest = s.digest
	w := c.waiting
	if w == nil || w.seen[s.number] || !w.want(s) {
		return
	}
	w.seen[s.number] = true
	if w.at = append(w.at, time.Now()); len(w.at) == len(c.all) {
		c.waiting = nil
		close(w.all)
	}
}

// Expect is called before the change that it waits for; want is called after each synced state.
func (c *Crowd) Expect(want func(*Subscriber) bool) *Arrival {
	a := &Arrival{want: want, seen: make([]bool, len(c.all)), all: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = a
	return a
}

// ExpectChange expects of each any other set than the one that was received last.
func (c *Crowd) ExpectChange() *Arrival {
	before := c.present()
	return c.Expect(func(s *Subscriber) bool { return s.digest != before })
}

// Times are how long after a moment each of a crowd came to be as was wanted, in that order.
type Times []time.Duration

// Half is that by which half of them had.
func (t Times) Half() time.Duration { return t[len(t)/2] }

// Last is that of the last.
func (t Times) Last() time.Duration { return t[len(t)-1] }

// Wait waits for all.
func (c *Crowd) Wait(ctx context.Context, a *Arrival, since time.Time, within time.Duration) (Times, error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-a.all:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.over.Done():
		return nil, fmt.Errorf("a subscriber was not left alone: %w", context.Cause(c.over))
	case <-timer.C:
		c.mu.Lock()
		defer c.mu.Unlock()
		return nil, fmt.Errorf("after %s only %d of %d subscribers are as wanted", within, len(a.at), len(c.all))
	}
	took := make(Times, len(a.at)) // each was noted under the lock, so they are in order
	for i, at := range a.at {
		took[i] = at.Sub(since)
	}
	return took, nil
}

// Come starts all of them at once, and waits until each has a synced state.
func (c *Crowd) Come(ctx context.Context) (Times, error) {
	first := c.Expect(func(*Subscriber) bool { return true })
	living, end := context.WithCancel(context.Background())
	c.end = end
	c.life, c.over = errgroup.WithContext(living)
	began := time.Now()
	for _, s := range c.all {
		c.life.Go(func() error { return s.live(c.over) })
	}
	return c.Wait(ctx, first, began, 3*time.Minute)
}

// Leave ends all of them; they keep what they hold.
func (c *Crowd) Leave() error {
	if c.end == nil {
		return nil
	}
	c.end()
	c.end = nil
	if err := c.life.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (c *Crowd) present() Fingerprint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.digest
}

// Bytes are those that each of them got before it was in step, sorted.
func (c *Crowd) Bytes() []int64 {
	var all []int64
	for _, s := range c.all {
		all = append(all, s.first)
	}
	return slices.Sorted(slices.Values(all))
}

package probes

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/figures"
)

// maxAllowance is how much time a busy machine may add to a bound. On one that is busier a complaint is one all
// the same: to skip a test that complains would hide what is wrong wherever there is much to do.
const maxAllowance = 2 * time.Second

// allowance is what timers that are late by so much, at the 99th percentile, add to a bound of several timers.
func allowance(late time.Duration) time.Duration { return min(10*max(late, 0), maxAllowance) }

// clock measures how late timers are, and collects complaints. Its methods may be called by any number of
// goroutines.
type clock struct {
	t     *testing.T
	stop  chan struct{}
	timer chan []time.Duration

	mu         sync.Mutex
	complaints []string
}

// newClock begins to measure how late timers are.
func newClock(t *testing.T) *clock {
	c := &clock{t: t, stop: make(chan struct{}), timer: make(chan []time.Duration, 1)}
	go func() {
		const every = 5 * time.Millisecond
		var late []time.Duration
		defer func() { c.timer <- late }()
		for {
			due := time.Now().Add(every)
			select {
			case <-c.stop:
				return
			case <-time.After(every):
				late = append(late, time.Since(due))
			}
		}
	}()
	return c
}

// complainf notes what was not as it should be.
func (c *clock) complainf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complaints = append(c.complaints, fmt.Sprintf(format, args...))
}

func (c *clock) complained() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.complaints) > 0
}

// measured ends the measurement, and returns what it adds to a bound.
func (c *clock) measured() time.Duration {
	c.t.Helper()
	close(c.stop)
	late := figures.Percentile(<-c.timer, 99)
	c.t.Logf("timers were late by %v (p99), so %v are added to each bound", late, allowance(late))
	return allowance(late)
}

// judge fails the test for each complaint.
func (c *clock) judge() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, complaint := range c.complaints {
		c.t.Error(complaint)
	}
}

func TestABusyMachineExtendsABoundOnlySoFar(t *testing.T) {
	for late, want := range map[time.Duration]time.Duration{
		-time.Millisecond: 0, 0: 0, 5 * time.Millisecond: 50 * time.Millisecond, time.Second: maxAllowance, time.Hour: maxAllowance,
	} {
		if got := allowance(late); got != want {
			t.Errorf("late by %v: %v, want %v", late, got, want)
		}
	}
}

package probes

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/figures"
)

// tooLate is how late timers may be woken, at the 99th percentile, for the clock to say anything of
// the prober: a hiccup and the probes around it are 50 ms apart.
const tooLate = 25 * time.Millisecond

// clock judges by time, and not on a machine that has too much else to do. Its methods may be called
// by any number of goroutines.
type clock struct {
	t    *testing.T
	stop chan struct{}
	late chan []time.Duration

	mu         sync.Mutex
	complaints []string
}

// newClock begins to measure how late timers are.
func newClock(t *testing.T) *clock {
	c := &clock{t: t, stop: make(chan struct{}), late: make(chan []time.Duration, 1)}
	go func() {
		const every = 5 * time.Millisecond
		var late []time.Duration
		defer func() { c.late <- late }()
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

// judge fails the test for each complaint, or gives it up if the machine was too busy to tell.
func (c *clock) judge() {
	c.t.Helper()
	close(c.stop)
	late := figures.Percentile(<-c.late, 99)
	c.t.Logf("timers were late by %v (p99)", late)
	if len(c.complaints) > 0 && late > tooLate {
		c.t.Skipf("not run: this machine is too busy to judge by the clock: its timers are late by %v (p99); first of %d complaints: %s", late, len(c.complaints), c.complaints[0])
	}
	for _, complaint := range c.complaints {
		c.t.Error(complaint)
	}
}

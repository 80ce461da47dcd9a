package faults

import (
	"sync"
	"time"
)

// maxAllowance is how much a slow machine may add to a bound. On a slower one the row fails: to run it again until it
// passes would hide what fails now and then.
const maxAllowance = 2 * time.Second

// allowance is what is added to a bound when timers were late by lag: the components' timers were late, too.
func allowance(lag time.Duration) time.Duration { return min(max(lag, 0), maxAllowance) }

// lateness measures how late timers are.
type lateness struct {
	once       sync.Once
	done, over chan struct{}

	mu  sync.Mutex
	lag time.Duration
}

func startLateness() *lateness {
	l := &lateness{done: make(chan struct{}), over: make(chan struct{})}
	go func() {
		defer close(l.over)
		const interval = 20 * time.Millisecond
		for {
			start := time.Now()
			select {
			case <-time.After(interval):
				l.mu.Lock()
				l.lag = max(l.lag, time.Since(start)-interval)
				l.mu.Unlock()
			case <-l.done:
				return
			}
		}
	}()
	return l
}

// most is how late a timer was at most so far.
func (l *lateness) most() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lag
}

// stop ends the measurement, and returns how late a timer was at most.
func (l *lateness) stop() time.Duration {
	l.once.Do(func() { close(l.done) })
	<-l.over
	return l.most()
}

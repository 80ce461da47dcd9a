package faults

import (
	"sync/atomic"
	"time"
)

// maxAllowance is how much time a slow machine may add to a bound. On one that is slower than that a row fails
// all the same: to play it again until it passes would hide whatever fails now and then.
const maxAllowance = 2 * time.Second

// allowance is what timers that were late by so much add to a bound of the pair: its timers were late, too.
func allowance(late time.Duration) time.Duration { return min(max(late, 0), maxAllowance) }

// lateness is the longest that a timer was late.
type lateness struct {
	longest atomic.Int64 // nanoseconds
	done    chan struct{}
	over    chan struct{}
}

func watchTheClock() *lateness {
	l := &lateness{done: make(chan struct{}), over: make(chan struct{})}
	go func() { // stop waits for it
		defer close(l.over)
		const every = 20 * time.Millisecond
		for {
			begun := time.Now()
			select {
			case <-time.After(every):
				l.longest.Store(max(l.longest.Load(), int64(time.Since(begun)-every)))
			case <-l.done:
				return
			}
		}
	}()
	return l
}

// sofar is the longest until now.
func (l *lateness) sofar() time.Duration { return time.Duration(l.longest.Load()) }

func (l *lateness) stop() time.Duration {
	close(l.done)
	<-l.over
	return l.sofar()
}

package faults

import "time"

// tolerable is how late a timer may be. A machine on which one is later does not run everybody's probes
// in time, and says nothing of the pair: a row that fails then is played again.
const tolerable = 100 * time.Millisecond

// lateness is the longest that a timer was late.
type lateness struct {
	done chan struct{}
	over chan time.Duration
}

func watchTheClock() *lateness {
	l := &lateness{done: make(chan struct{}), over: make(chan time.Duration)}
	go func() { // stop waits for it
		const every = 20 * time.Millisecond
		var longest time.Duration
		for {
			begun := time.Now()
			select {
			case <-time.After(every):
				longest = max(longest, time.Since(begun)-every)
			case <-l.done:
				l.over <- longest
				return
			}
		}
	}()
	return l
}

func (l *lateness) stop() time.Duration {
	close(l.done)
	return <-l.over
}

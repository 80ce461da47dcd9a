package model

import (
	"math/rand/v2"
	"slices"
	"time"
)

// The simulation of a tree of servers that tell changes on: the inventory at the root, relays below
// it, subscribers as its leaves. A server does what stream.Serve does for each of its readers: it
// sends the newest state to whoever lacks it, one message at a time on each of its cores, in turn; what
// changes while a reader waits is in the message that it gets. All is decided by the times at which
// the changes come, so a server needs to be stepped only after the one above it.

// tree is a shape: how many readers a server has at each level, from the root on.
type tree struct {
	name    string
	readers []int
}

// servers are all of them, the inventory included.
func (t tree) servers() int {
	sum, level := 1, 1
	for _, n := range t.readers[:len(t.readers)-1] {
		level *= n
		sum += level
	}
	return sum
}

// pace is what a message costs a server, and how long it is on its way.
type pace struct {
	send  time.Duration
	cores int
	hop   time.Duration
}

// told is that a state was there as of a time.
type told struct {
	change int // the number of the last change in it
	at     time.Duration
}

// serve returns what each of so many readers of a server is told, when the server itself was
// told so.
func serve(heard []told, readers int, p pace) [][]told {
	all := make([][]told, readers)
	free := make([]time.Duration, p.cores) // when each core has sent what it sends
	type turn struct {
		reader int
		since  time.Duration // it lacks something
	}
	var queue []turn
	knows := make([]int, readers) // the last change that each was sent
	waits := make([]bool, readers)
	done := make([]time.Duration, readers) // when it has got its last message
	for i := range knows {
		knows[i] = -1
	}
	next := 0 // of what it hears
	newest := func(at time.Duration) int {
		i, _ := slices.BinarySearchFunc(heard, at, func(h told, at time.Duration) int {
			if h.at <= at {
				return -1
			}
			return 1
		})
		return i - 1
	}
	for next < len(heard) || len(queue) > 0 {
		core := 0
		for i := range free {
			if free[i] < free[core] {
				core = i
			}
		}
		// Who lacks something as of now waits in turn.
		for next < len(heard) && (len(queue) == 0 || heard[next].at <= max(free[core], queue[0].since)) {
			for i := range readers {
				if !waits[i] && knows[i] < next {
					waits[i] = true
					queue = append(queue, turn{i, max(heard[next].at, done[i])})
				}
			}
			next++
		}
		if len(queue) == 0 {
			break
		}
		one := queue[0]
		queue = queue[1:]
		waits[one.reader] = false
		begins := max(free[core], one.since)
		state := newest(begins)
		if state <= knows[one.reader] {
			continue
		}
		knows[one.reader] = state
		free[core] = begins + p.send
		done[one.reader] = free[core]
		all[one.reader] = append(all[one.reader], told{heard[state].change, free[core] + p.hop})
	}
	return all
}

// spread is how long changes took to reach the leaves, and how many messages that took.
type spread struct {
	delays  []time.Duration // of each change and leaf, sorted
	last    []time.Duration // of each change: the last leaf, sorted
	sent    int
	skipped int // changes that a leaf was told together with a later one
}

// simulate has so many changes come at random, so many a second, and follows each to all leaves.
func (t tree) simulate(changes int, rate float64, p pace, seed uint64) spread {
	random := rand.New(rand.NewPCG(seed, 0))
	came := make([]time.Duration, changes)
	heard := make([]told, changes)
	var now time.Duration
	for i := range came {
		now += seconds(random.ExpFloat64() / rate)
		came[i], heard[i] = now, told{i, now}
	}
	s := spread{last: make([]time.Duration, changes)}
	s.follow(t.readers, heard, came, p)
	slices.Sort(s.delays)
	slices.Sort(s.last)
	return s
}

func (s *spread) follow(readers []int, heard []told, came []time.Duration, p pace) {
	for _, told := range serve(heard, readers[0], p) {
		s.sent += len(told)
		if len(readers) > 1 {
			s.follow(readers[1:], told, came, p)
			continue
		}
		change := 0
		for _, t := range told {
			s.skipped += t.change - change
			for ; change <= t.change; change++ {
				delay := t.at - came[change]
				s.delays = append(s.delays, delay)
				s.last[change] = max(s.last[change], delay)
			}
		}
	}
}

func rank(sorted []time.Duration, percent int) time.Duration {
	return sorted[max((len(sorted)*percent+99)/100, 1)-1]
}

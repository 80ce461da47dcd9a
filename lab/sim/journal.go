package sim

import (
	"math/rand/v2"
	"time"
)

// journal is what an API server or a cloud has had, at any time.
type journal[T any] struct {
	now map[string]T
	log []entry[T]
	rv  uint64
}

// entry is a change.
type entry[T any] struct {
	at   time.Time
	rv   uint64
	name string
	is   T
	gone bool
}

func newJournal[T any]() *journal[T] { return &journal[T]{now: map[string]T{}, rv: 100} }

func (j *journal[T]) put(name string, is T) entry[T] {
	j.now[name] = is
	return j.note(entry[T]{name: name, is: is})
}

func (j *journal[T]) remove(name string) entry[T] {
	was := j.now[name]
	delete(j.now, name)
	return j.note(entry[T]{name: name, is: was, gone: true})
}

func (j *journal[T]) note(e entry[T]) entry[T] {
	j.rv++
	e.at, e.rv = time.Now(), j.rv
	j.log = append(j.log, e)
	return e
}

// asOf is what there was at a time, and the resourceVersion of it.
func (j *journal[T]) asOf(t time.Time) (all map[string]T, rv uint64) {
	all, rv = map[string]T{}, 100
	for _, e := range j.log {
		if e.at.After(t) {
			break
		}
		if rv = e.rv; e.gone {
			delete(all, e.name)
		} else {
			all[e.name] = e.is
		}
	}
	return all, rv
}

// since are the changes after a resourceVersion.
func (j *journal[T]) since(rv uint64) []entry[T] {
	n := len(j.log)
	for n > 0 && j.log[n-1].rv > rv {
		n--
	}
	return j.log[n:]
}

// follower is a watch of a journal: a list, and then the changes, in their order.
type follower[T any] struct {
	of     *journal[T]
	rand   *rand.Rand
	at     func(time.Time, func()) *event // of whoever follows
	behind func() time.Duration           // how far the server is behind its own store
	fails  func() string                  // what a new list meets with; empty: it is answered
	hangs  func() bool                    // whether nothing comes now

	replace func(all map[string]T, rv uint64)
	handle  func(entry[T])
	heard   func(rv uint64) // a bookmark
	failed  func(string)

	connected bool
	life      int // of the connection
	seen      uint64
	failures  int
	arrival   time.Time // of what came last: nothing overtakes
	inbox     []func()  // what has come while nothing gets through
}

// begin lists and then watches. It tries again until it is let.
func (f *follower[T]) begin() {
	f.life++
	life := f.life
	f.at(time.Now().Add(f.latency()), func() {
		if life != f.life {
			return
		}
		if why := f.fails(); why != "" || f.hangs() {
			if why == "" {
				why = "no answer"
			}
			f.stop("list: " + why)
			return
		}
		all, rv := f.of.asOf(time.Now().Add(-f.behind()))
		if rv < f.seen { // a reflector asks for nothing older than it has seen, and then for the newest
			all, rv = f.of.asOf(time.Now())
		}
		f.seen = rv
		f.connected, f.failures, f.arrival = true, 0, time.Now()
		f.replace(all, rv)
		for _, e := range f.of.since(rv) {
			f.changed(e)
		}
		f.mark(life)
	})
}

// stop is the end of a watch; another one is begun.
func (f *follower[T]) stop(why string) {
	f.connected, f.inbox = false, nil
	f.failures++
	f.life++
	life := f.life
	f.failed(why)
	pause := min(500*time.Millisecond<<min(f.failures-1, 4), 5*time.Second)
	f.at(time.Now().Add(time.Duration(float64(pause)*(1+f.rand.Float64()))), func() {
		if life == f.life {
			f.begin()
		}
	})
}

// changed is told of each change of the journal.
func (f *follower[T]) changed(e entry[T]) {
	if f.connected {
		f.bring(e.at.Add(f.behind()), func() {
			f.seen = e.rv
			f.handle(e)
		})
	}
}

// mark brings a bookmark about once a minute.
func (f *follower[T]) mark(life int) {
	if f.heard == nil {
		return
	}
	f.at(time.Now().Add(time.Minute+f.latency()), func() {
		if life != f.life || !f.connected {
			return
		}
		rv := uint64(100)
		for _, e := range f.of.log {
			if !e.at.After(time.Now().Add(-f.behind())) {
				rv = e.rv
			}
		}
		f.bring(time.Now(), func() {
			f.seen = max(f.seen, rv)
			f.heard(rv)
		})
		f.mark(life)
	})
}

// bring delivers something no earlier than at a time, after all that was sent before it.
func (f *follower[T]) bring(t time.Time, what func()) {
	life := f.life
	if now := time.Now(); t.Before(now) {
		t = now
	}
	t = t.Add(f.latency())
	if t.Before(f.arrival) {
		t = f.arrival
	}
	f.arrival = t
	f.at(t, func() {
		if life == f.life {
			f.inbox = append(f.inbox, what)
			f.drain()
		}
	})
}

// drain takes in what has come, unless nothing gets through.
func (f *follower[T]) drain() {
	for len(f.inbox) > 0 && !f.hangs() {
		what := f.inbox[0]
		f.inbox = f.inbox[1:]
		what()
	}
}

func (f *follower[T]) latency() time.Duration {
	return time.Millisecond + time.Duration(f.rand.IntN(20))*time.Millisecond
}

package sim

import (
	"container/heap"
	"time"
)

// queue is what is to happen, in the order of time; what is due at once happens in the order in
// which it was put in.
type queue struct {
	events agenda
	puts   uint64
	done   int

	busy  int  // events since time went on last
	stuck bool // it does not go on any more: something answers itself without end
}

// tooBusy is how many events at one moment nothing has a reason for.
const tooBusy = 20_000

// event is something that is to happen.
type event struct {
	at time.Time
	n  uint64
	do func() // nil: not any more

	within *event // the one of the world that this one, of a process, is put off to
}

// cancel has it not happen. It may be called on nil, and afterwards.
func (e *event) cancel() {
	for ; e != nil; e = e.within {
		e.do = nil
	}
}

func (q *queue) at(t time.Time, do func()) *event {
	q.puts++
	e := &event{at: t, n: q.puts, do: do}
	heap.Push(&q.events, e)
	return e
}

func (q *queue) after(d time.Duration, do func()) { q.at(time.Now().Add(d), do) }

// run has all happen that is due before the end, and comes to it.
func (q *queue) run(end time.Time) {
	for len(q.events) > 0 && !q.stuck && !q.events[0].at.After(end) {
		e := heap.Pop(&q.events).(*event)
		if e.do == nil {
			continue
		}
		if wait := time.Until(e.at); wait > 0 { // by the clock of the bubble: nobody waits
			time.Sleep(wait)
			q.busy = 0
		}
		q.done++
		if q.busy++; q.busy > tooBusy {
			q.stuck = true
			return
		}
		e.do()
	}
	time.Sleep(time.Until(end))
}

// agenda is a heap of events.
type agenda []*event //nolint:recvcheck // as container/heap has it

func (a agenda) Len() int { return len(a) }

func (a agenda) Less(i, j int) bool {
	if !a[i].at.Equal(a[j].at) {
		return a[i].at.Before(a[j].at)
	}
	return a[i].n < a[j].n
}

func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

func (a *agenda) Push(x any) { *a = append(*a, x.(*event)) }

func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return e
}

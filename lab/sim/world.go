package sim

import (
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/slicefeed/slicefeed/lab/sim/oracle"
)

// world is one that runs.
type world struct {
	queue

	script Script
	trace  io.Writer // nil: nobody reads it
	begun  time.Time
	oracle *oracle.Oracle
	result Result

	clusters  []*cluster
	consuming *consuming
	writers   []*writer
	hosts     map[netip.Addr]*host
	inForce   map[Kind]int // faults
	plans     uint64
}

func newWorld(s Script, trace io.Writer) *world {
	w := &world{
		script:  s,
		trace:   trace,
		begun:   time.Now(),
		oracle:  oracle.New(oracle.Setup{Limit: most}),
		result:  Result{Script: s, Covered: map[Cell]int{}},
		hosts:   map[netip.Addr]*host{},
		inForce: map[Kind]int{},
	}
	w.tellf("seed %d: %+v", s.Seed, s.Setup)
	for n := range s.Setup.Sources {
		w.clusters = append(w.clusters, newCluster(w, n))
	}
	w.consuming = newConsuming(w)
	for n := range s.Setup.Writers {
		w.writers = append(w.writers, newWriter(w, n))
	}
	return w
}

// most is how many nodes no cluster of a world has at a time: a view that is larger keeps what is gone.
const most = 40

// chance is a source of random numbers of its own for a part of the world, so that what
// another part draws does not move it.
func (w *world) chance(part string) *rand.Rand {
	sum := fnv.New64a()
	sum.Write([]byte(part))
	return rand.New(rand.NewPCG(w.script.Seed, sum.Sum64()))
}

// tellf writes a line of the story.
func (w *world) tellf(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%9.3f  %s\n", time.Since(w.begun).Seconds(), fmt.Sprintf(format, args...))
	}
}

// see tells the oracle a fact.
func (w *world) see(f oracle.Fact) {
	for _, v := range w.oracle.See(time.Now(), f) {
		w.tellf("VIOLATION %s", v)
		w.result.Violations = append(w.result.Violations, v)
	}
}

// play runs the world to its end.
func (w *world) play() Result {
	for _, c := range w.clusters {
		c.truth()
		for _, r := range c.replicas {
			r.start()
		}
	}
	for _, one := range w.writers {
		one.start()
	}
	trouble := w.begun.Add(w.script.Quiet)
	over := trouble.Add(w.script.Trouble)
	for _, f := range w.script.Faults {
		w.at(trouble.Add(f.At), func() { w.befall(f, over) })
	}
	w.run(over)
	w.tellf("all faults are over")
	w.see(oracle.Over{})
	end := over.Add(w.script.Settle)
	if due := w.oracle.Due(); due.After(end) {
		end = due
	}
	w.run(end)
	if w.stuck {
		w.result.Violations = append(w.result.Violations, oracle.Violation{
			At:        time.Now(),
			Invariant: "I3",
			Rule:      "livelock",
			Sentence:  "the world comes to rest",
			Seen:      "something happens again and again at one moment",
		})
	} else {
		w.see(oracle.End{})
	}
	w.tellf("the end: %d events, %d writes, %d violations", w.done, w.result.Writes, len(w.result.Violations))
	for _, one := range w.writers {
		one.kill()
	}
	w.result.Events, w.result.Lasted = w.done, time.Since(w.begun)
	return w.result
}

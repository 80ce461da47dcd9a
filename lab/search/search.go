// Package search looks at every history of a small world: all that can happen, in any order, up to a
// number of steps. The worlds call the very functions that the product calls. It promises the shortest
// history that breaks a property, told as a story, and figures that say how much was looked at; it
// refuses chance: the same search finds the same.
//
// A simulation (lab/sim) draws long histories of larger worlds from a seed and sees some of them. A search
// sees all of the short ones, and most mistakes have a short one.
package search

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// World is one state of a model. Its methods leave it as it is: several goroutines ask the same one.
type World interface {
	// Steps is how many things can happen next, and Name says in words what one of them is.
	Steps() int
	Name(step int) string
	// Take returns the world after one of them. An error says which property the step broke.
	Take(step int) (World, error)
	// Check holds the world against what is to be true of each. It is asked once of each.
	Check() error
	// Key encodes all that the future depends on: worlds with the same key have the same future.
	Key() []byte
	// String pictures the world in a few words, for stories.
	String() string
}

// Report is what a search saw.
type Report struct {
	States, Transitions, Depth int

	Whole bool // there is no state beyond: what was seen is all that there is
	Took  time.Duration
	Found *Found // nil: no property was broken
}

// Found is a history that breaks a property. There is none that is shorter.
type Found struct {
	Story  []string // of each step and the world after it
	Broken error
}

// String tells the story.
func (f *Found) String() string {
	return fmt.Sprintf("after %d steps: %v\n  %s", len(f.Story)-1, f.Broken, strings.Join(f.Story, "\n  "))
}

// String gives the figures.
func (r Report) String() string {
	bound := fmt.Sprintf("all histories of up to %d steps", r.Depth)
	if r.Whole {
		bound = fmt.Sprintf("all histories: none leads to anything new after %d steps", r.Depth)
	}
	if r.Took > 0 { // time stands still in a bubble
		bound += fmt.Sprintf(", %.1f s", r.Took.Seconds())
	}
	return fmt.Sprintf("%d states, %d transitions, %s", r.States, r.Transitions, bound)
}

// block is how many states are looked at side by side: it bounds what is kept of their successors.
const block = 2048

// origin is how a state was reached first.
type origin struct{ parent, step int32 }

// hunt is a search under way.
type hunt struct {
	first   World
	seen    map[[16]byte]struct{}
	origins []origin // by the number of the state, in the order of discovery
	report  Report
}

// next is what one step leads to.
type next struct {
	world  World
	key    [16]byte
	broken error
}

// Search looks at all histories of up to depth steps, breadth first, and stops at the first that breaks a
// property.
func Search(first World, depth int) Report {
	began := time.Now()
	h := &hunt{first: first, seen: map[[16]byte]struct{}{key(first): {}}, origins: []origin{{-1, 0}}}
	h.run(depth)
	h.report.States, h.report.Took = len(h.origins), time.Since(began)
	return h.report
}

func (h *hunt) run(depth int) {
	if err := h.first.Check(); err != nil {
		h.found(0, -1, err)
		return
	}
	numbers, worlds := []int32{0}, []World{h.first}
	for h.report.Depth < depth && len(worlds) > 0 {
		h.report.Depth++
		last := h.report.Depth == depth
		var numbersThen []int32
		var worldsThen []World
		for from := 0; from < len(worlds); from += block {
			to := min(from+block, len(worlds))
			fresh, at, ok := h.expand(numbers[from:to], worlds[from:to])
			if !ok {
				return
			}
			if !last {
				numbersThen, worldsThen = append(numbersThen, at...), append(worldsThen, fresh...)
			}
		}
		numbers, worlds = numbersThen, worldsThen
		h.report.Whole = !last && len(worlds) == 0
	}
}

// expand takes every step of these worlds, and returns those worlds that were not seen before.
func (h *hunt) expand(numbers []int32, worlds []World) (fresh []World, at []int32, ok bool) {
	ahead := make([][]next, len(worlds))
	side(len(worlds), func(i int) {
		ahead[i] = make([]next, worlds[i].Steps())
		for step := range ahead[i] {
			n := &ahead[i][step]
			w, err := worlds[i].Take(step)
			if err != nil {
				n.broken = err
				continue
			}
			n.key = key(w)
			if _, seen := h.seen[n.key]; !seen {
				n.world = w
			}
		}
	})
	for i := range ahead {
		h.report.Transitions += len(ahead[i])
		for step, n := range ahead[i] {
			if n.broken != nil {
				h.found(numbers[i], step, n.broken)
				return nil, nil, false
			}
			if _, seen := h.seen[n.key]; seen {
				continue
			}
			h.seen[n.key] = struct{}{}
			fresh, at = append(fresh, n.world), append(at, int32(len(h.origins)))
			h.origins = append(h.origins, origin{numbers[i], int32(step)})
		}
	}
	broken := make([]error, len(fresh))
	side(len(fresh), func(i int) { broken[i] = fresh[i].Check() })
	for i, err := range broken {
		if err != nil {
			h.found(at[i], -1, err)
			return nil, nil, false
		}
	}
	return fresh, at, true
}

// side does n things side by side.
func side(n int, do func(i int)) {
	var all sync.WaitGroup
	workers := min(n, runtime.GOMAXPROCS(0))
	for worker := range workers {
		all.Go(func() {
			for i := worker; i < n; i += workers {
				do(i)
			}
		})
	}
	all.Wait()
}

// found tells the story of a state, and of a step from it unless that is negative.
func (h *hunt) found(number int32, step int, broken error) {
	var steps []int32
	for ; number > 0; number = h.origins[number].parent {
		steps = append([]int32{h.origins[number].step}, steps...)
	}
	w := h.first
	story := []string{"   " + w.String()}
	for i, step := range steps {
		name := w.Name(int(step))
		w, _ = w.Take(int(step))
		story = append(story, fmt.Sprintf("%d. %s: %s", i+1, name, w))
	}
	if step >= 0 {
		story = append(story, fmt.Sprintf("%d. %s: broken", len(story), w.Name(step)))
	}
	h.report.Found = &Found{Story: story, Broken: broken}
}

func key(w World) [16]byte {
	sum := sha256.Sum256(w.Key())
	return [16]byte(sum[:16])
}

package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/kube"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// watched is the source of an inventory: what its watch of the Nodes has told, judged as the
// product does it.
type watched struct {
	*follower[node]

	r     *replica
	known map[string]node
	dirty map[string]struct{}
	told  bool // a whole list was taken in
	rv    uint64

	heardAt, said time.Time // when it was last heard, and as said in the last news
	failure       string

	looks   []mark // that it has not caught up with
	last    uint64 // number of a look
	reached uint64
	full    []func() // full looks that wait for it to catch up
}

// mark is a light look and how far the watch has to come.
type mark struct{ number, rv uint64 }

func newWatched(r *replica) *watched {
	w := &watched{r: r, known: map[string]node{}, dirty: map[string]struct{}{}}
	c := r.cluster
	w.follower = &follower[node]{
		of: c.nodes, rand: c.rand, at: r.at, behind: func() time.Duration { return c.lag }, fails: c.fails,
		hangs: func() bool { return c.hanging > 0 },
		replace: func(all map[string]node, rv uint64) {
			for name := range w.known {
				if _, still := all[name]; !still {
					delete(w.known, name)
					w.dirty[name] = struct{}{}
				}
			}
			for name, n := range all {
				w.upsert(name, n)
			}
			w.told = true
			w.hear(rv)
		},
		handle: func(e entry[node]) {
			if e.gone {
				delete(w.known, e.name)
				w.dirty[e.name] = struct{}{}
			} else {
				w.upsert(e.name, e.is)
			}
			w.hear(e.rv)
		},
		heard: func(rv uint64) { w.hear(max(rv, w.rv)) },
		failed: func(why string) {
			w.failure = why
			r.poke()
		},
	}
	return w
}

func (w *watched) upsert(name string, n node) {
	if w.known[name] != n {
		w.known[name] = n
		w.dirty[name] = struct{}{}
	}
}

func (w *watched) hear(rv uint64) {
	w.heardAt, w.rv, w.failure = time.Now(), rv, ""
	waiting := w.full
	w.full = nil
	for _, again := range waiting {
		again()
	}
	w.r.poke()
}

// take is what was told since the last time.
func (w *watched) take() roster.Update {
	n := roster.Update{Failure: w.failure}
	w.failure = ""
	for _, name := range slices.Sorted(maps.Keys(w.dirty)) {
		if is, ok := w.known[name]; ok {
			candidate := kube.EvaluateNode(is.object(), kube.Rules{})
			candidate.Ports = portsOf(is.port).Ports
			n.Changed = append(n.Changed, candidate)
		} else {
			n.Removed = append(n.Removed, name)
		}
	}
	clear(w.dirty)
	before := w.reached
	w.looks = slices.DeleteFunc(w.looks, func(m mark) bool {
		caught := w.rv >= m.rv
		if caught {
			w.reached = max(w.reached, m.number)
		}
		return caught
	})
	if n.Verified = w.reached; !w.heardAt.Equal(w.said) || w.reached != before {
		n.LastContact, w.said = w.heardAt, w.heardAt
	}
	return n
}

// look asks the API server, by quorum, whether the watch can be believed.
func (w *watched) look(look roster.Verification, answer func(mark uint64, err error)) {
	c, began := w.r.cluster, time.Now()
	if c.frozen > 0 || c.hanging > 0 {
		w.at(began.Add(5*time.Second), func() { answer(0, errors.New("context deadline exceeded")) })
		return
	}
	w.at(began.Add(w.latency()), func() {
		if why := c.fails(); why != "" {
			answer(0, errors.New(why))
			return
		}
		number := func() uint64 { w.last++; return w.last }
		if look == roster.LightVerification {
			n := number()
			w.looks = append(w.looks, mark{n, c.nodes.rv})
			answer(n, nil)
			return
		}
		listed, rv := maps.Clone(c.nodes.now), c.nodes.rv
		ended := false
		var compare func()
		compare = func() {
			if ended {
				return
			}
			if differ := w.differing(listed, rv); w.told && differ == 0 {
				ended = true
				answer(number(), nil)
				return
			}
			w.full = append(w.full, compare)
		}
		w.at(began.Add(10*time.Second), func() {
			if !ended {
				ended = true
				w.stop("reading anew")
				answer(0, fmt.Errorf("the watch disagrees with the API server about %d nodes", w.differing(listed, rv)))
			}
		})
		compare()
	})
}

// differing is about how many Nodes the watch does not bear out a listing.
func (w *watched) differing(listed map[string]node, rv uint64) (n int) {
	for name, want := range listed {
		have, known := w.known[name]
		if known && have != want && have.rv <= rv || !known && w.rv <= rv {
			n++
		}
	}
	for name, have := range w.known {
		if _, is := listed[name]; !is && have.rv <= rv {
			n++
		}
	}
	return n
}

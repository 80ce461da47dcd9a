// Package link has worlds of the link between the halves: the real node server over the real
// stores, the real subscriber, gRPC in memory, and a time of their own. It promises that the
// faults of a world come from its seed alone, and that a world which fails tells its seed and
// its story. It refuses to promise the schedule of goroutines, which is not ours: a seed that
// failed may have to be replayed more than once. SLICEFEED_SEED=n replays one, with its story.
package link

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// worlds is how many there are. They run with the race detector: the goroutines are the product's own.
const worlds = 200

// Bounds that the worlds hold the pair to.
const (
	// converged is how long after the last fault the subscriber is synced again, at the latest, if
	// there was no protocol violation. A connection whose peer has vanished takes longest: three
	// heartbeats, an attempt to connect that was under way, and the longest delay of rule R14.
	converged = 15*time.Second + 4*time.Second + 4*time.Second + 2*time.Second

	// deaf is how long a dead link may look alive: three heartbeats, and a moment.
	deaf = 15*time.Second + 100*time.Millisecond
)

// tally is what the worlds went through, all together.
type tally struct {
	mu      sync.Mutex
	steps   map[string]int
	longest time.Duration
	seed    uint64 // of the longest
	lasted  time.Duration
	streams int
	checks  int // of the whole set against the store's
}

func (a *tally) add(w *world) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, n := range w.steps {
		a.steps[name] += n
	}
	if w.took > a.longest {
		a.longest, a.seed = w.took, w.seed
	}
	a.lasted += time.Since(w.began)
	a.streams += len(w.calls.all)
	a.checks += w.checked
}

func TestWorlds(t *testing.T) {
	all := &tally{steps: map[string]int{}}
	began := time.Now()
	t.Run("seed", func(t *testing.T) {
		for seed := range uint64(worlds) {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { all.add(live(t, seed)) })
			})
		}
	})
	for _, one := range steps {
		if all.steps[one.name] == 0 {
			t.Errorf("no world had the step %q", one.name)
		}
	}
	t.Logf(
		"%d worlds of %s together in %s: %d conversations, %d times the whole set was right; in step again at most %s after the last fault (seed %d)",
		worlds,
		all.lasted.Round(time.Minute),
		time.Since(began).Round(time.Millisecond),
		all.streams,
		all.checks,
		all.longest,
		all.seed,
	)
	for _, name := range slices.Sorted(maps.Keys(all.steps)) {
		t.Logf("%6d × %s", all.steps[name], name)
	}
}

func TestReplay(t *testing.T) {
	text := os.Getenv("SLICEFEED_SEED")
	if text == "" {
		t.Skip("SLICEFEED_SEED names no world")
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("SLICEFEED_SEED=%q: want a number", text)
	}
	synctest.Test(t, func(t *testing.T) {
		w := live(t, seed)
		t.Log("\n" + w.tale())
	})
}

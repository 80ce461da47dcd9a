package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// number reads a number from the environment.
func number(t *testing.T, name string, unset uint64) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(cmp.Or(os.Getenv(name), strconv.FormatUint(unset, 10)), 10, 64)
	if err != nil {
		t.Fatalf("%s: want a number: %v", name, err)
	}
	return n
}

// report says what is wrong with a world, and how to see it.
func report(t *testing.T, r Result) {
	t.Helper()
	for n, v := range r.Violations {
		if n < 3 {
			t.Errorf("seed %d: %s", r.Script.Seed, v)
		}
	}
	if n := len(r.Violations); n > 0 {
		t.Errorf("seed %d: %d violations; replay it: make sim SEED=%d", r.Script.Seed, n, r.Script.Seed)
	}
}

func TestReplay(t *testing.T) {
	var story bytes.Buffer
	r := Play(t, Draw(number(t, "SLICEFEED_SEED", 1)), &story)
	if testing.Verbose() {
		fmt.Print(story.String())
	}
	report(t, r)
}

func TestTheSameSeedIsTheSameStory(t *testing.T) {
	for seed := range uint64(8) {
		var once, again bytes.Buffer
		script := Draw(seed)
		Play(t, script, &once)
		Play(t, script, &again)
		if !bytes.Equal(once.Bytes(), again.Bytes()) {
			t.Errorf("seed %d tells two stories", seed)
		}
	}
}

func TestWorlds(t *testing.T) {
	seeds := number(t, "SLICEFEED_SEEDS", 2000)
	from := number(t, "SLICEFEED_FROM", 1)
	var (
		mu     sync.Mutex
		next   = from
		bad    int
		events int
	)
	take := func() (seed uint64, some bool) {
		mu.Lock()
		defer mu.Unlock()
		if seed = next; seed >= from+seeds || bad > 20 {
			return 0, false
		}
		next++
		return seed, true
	}
	began := time.Now()
	t.Run("", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for seed, some := take(); some; seed, some = take() {
					r := Play(t, Draw(seed), nil)
					mu.Lock()
					if events += r.Events; len(r.Violations) > 0 {
						bad++
						report(t, r)
					}
					mu.Unlock()
				}
			})
		}
	})
	took := time.Since(began)
	t.Logf("%d worlds in %s, %.0f a second, %d events", next-from, took.Truncate(time.Millisecond), float64(next-from)/took.Seconds(), events)
}

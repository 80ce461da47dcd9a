package sim

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// few is how many different kinds of violations end a soak: each is shrunk, which takes worlds.
const few = 5

// soak plays one world after the other, on all processors.
type soak struct {
	mu       sync.Mutex
	next     uint64
	end      uint64
	covered  Coverage
	events   int
	writes   int
	bad      int
	failures map[string]Script // the first of each kind
	slowest  time.Duration
}

func (k *soak) take() (seed uint64, some bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next >= k.end || len(k.failures) >= few {
		return 0, false
	}
	k.next++
	return k.next - 1, true
}

func (k *soak) note(r Result, took time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.covered.Add(r)
	k.events += r.Events
	k.writes += r.Writes
	k.slowest = max(k.slowest, took)
	if kind := r.kind(); kind != "" {
		k.bad++
		fmt.Fprintf(os.Stdout, "seed %d: %s\n", r.Script.Seed, r.Violations[0])
		if _, known := k.failures[kind]; !known {
			k.failures[kind] = r.Script
		}
	}
}

func (k *soak) progress(since time.Time) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	took := time.Since(since)
	return fmt.Sprintf("%d worlds in %s, %.0f a second, %d events, %d writes, %d worlds with violations of %d kinds; the slowest took %s",
		k.covered.Worlds, took.Round(time.Second), float64(k.covered.Worlds)/took.Seconds(), k.events, k.writes, k.bad, len(k.failures),
		k.slowest.Round(time.Millisecond))
}

// TestWorlds plays as many worlds as SLICEFEED_SEEDS says (500), from the seed SLICEFEED_FROM on. It
// stops at a few different kinds of violations, and shrinks a world of each.
func TestWorlds(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of worlds")
	}
	from, seeds := number(t, "SLICEFEED_FROM", 1), number(t, "SLICEFEED_SEEDS", 500)
	k := &soak{next: from, end: from + seeds, failures: map[string]Script{}}
	began := time.Now()
	stop := every(10*time.Second, func() { fmt.Fprintln(os.Stdout, k.progress(began)) })
	t.Run("", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for seed, some := k.take(); some; seed, some = k.take() {
					before := time.Now()
					r := Play(t, Draw(seed), nil)
					k.note(r, time.Since(before))
				}
			})
		}
	})
	stop()
	t.Log(k.progress(began))
	t.Log(k.covered.Table())
	for _, kind := range slices.Sorted(maps.Keys(k.failures)) {
		shrunk(t, kind, k.failures[kind])
	}
	if empty := k.covered.Empty(); len(k.failures) == 0 && seeds >= 2000 && len(empty) > 0 {
		t.Errorf("%d cells of the coverage table are empty that could be filled: draw faults so that they meet, or say why they cannot",
			len(empty))
	}
}

// every calls what it is given at an interval, until it is stopped.
func every(interval time.Duration, do func()) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(interval)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				do()
			case <-over:
				return
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// shrunk makes a failing world short, and tells it: the script, which can be played again, and
// its story.
func shrunk(t *testing.T, kind string, s Script) {
	t.Helper()
	short := Shrink(s, 300, func(s Script) bool { return Play(t, s, nil).kind() == kind })
	var story bytes.Buffer
	r := Play(t, short, &story)
	if len(r.Violations) == 0 {
		t.Errorf("seed %d: %s: it cannot be played again: the world does not follow from its script alone", s.Seed, kind)
		return
	}
	file, err := os.CreateTemp("", "slicefeed-world-*.yaml") //nolint:usetesting // it is for people, after the test
	if err != nil {
		t.Fatal(err)
	}
	name := file.Name()
	fmt.Fprintf(file, "# %s\n%s", r.Violations[0], short.Text())
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	t.Errorf("seed %d: %s\n\nshrunk to %d faults, in %s; play it again: SLICEFEED_SCRIPT=%s go test ./lab/sim -run TestReplay -v\n\n%s\n%s",
		s.Seed, r.Violations[0], len(short.Faults), name, name, short.Text(), tail(story.String(), 60))
}

// tail is the end of a story up to its first violation.
func tail(story string, lines int) string {
	all := strings.Split(story, "\n")
	if at := slices.IndexFunc(all, func(l string) bool { return strings.Contains(l, "VIOLATION") }); at >= 0 {
		all = all[:min(at+3, len(all))]
	}
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// script is the world to replay: of the file SLICEFEED_SCRIPT, or of the seed SLICEFEED_SEED.
func script(t *testing.T) Script {
	t.Helper()
	name := os.Getenv("SLICEFEED_SCRIPT")
	if name == "" {
		return Draw(number(t, "SLICEFEED_SEED", 1))
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

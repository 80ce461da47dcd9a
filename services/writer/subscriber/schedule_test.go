package subscriber

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestR14DelaysResetAfterStableStream(t *testing.T) {
	type end struct {
		synced    time.Duration
		violation bool
		maxDelay  time.Duration // with the highest random number
	}
	for name, ends := range map[string][]end{
		"failures": {
			{0, false, time.Second},
			{0, false, 2 * time.Second},
			{time.Second, false, 4 * time.Second},
			{0, false, 4 * time.Second},
			{29 * time.Second, false, 4 * time.Second},
			{30 * time.Second, false, time.Second},
			{0, false, 2 * time.Second},
		},
		"routine ends": {
			{30 * time.Minute, false, time.Second}, {30 * time.Minute, false, time.Second}, {30 * time.Minute, false, time.Second},
		},
		"protocol violations": {
			{0, true, time.Second},
			{0, true, 2 * time.Second},
			{0, true, 4 * time.Second},
			{0, true, 8 * time.Second},
			{0, true, 16 * time.Second},
			{0, true, 32 * time.Second},
			{0, true, 64 * time.Second},
			{0, true, 128 * time.Second},
			{0, true, 256 * time.Second},
			{0, true, 5 * time.Minute},
			{0, true, 5 * time.Minute},
			{0, false, 4 * time.Second}, // the inventory restarts: the delay is as after any outage
			{0, true, 5 * time.Minute},  // and violates the protocol as before
		},
		"protocol violations of stable streams": {
			{time.Minute, true, time.Second},
			{time.Minute, true, 2 * time.Second},
			{time.Minute, true, 4 * time.Second},
			{time.Minute, true, 8 * time.Second},
			{time.Minute, false, time.Second},
			{time.Minute, true, time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			high, low := Schedule{}, Schedule{}
			for i, e := range ends {
				if got := high.Next(e.synced, e.violation, 1); got != e.maxDelay {
					t.Errorf("end %d: at most %s, want %s", i, got, e.maxDelay)
				}
				if got := low.Next(e.synced, e.violation, 0); got != 500*time.Millisecond {
					t.Errorf("end %d: at least %s, want 500ms", i, got)
				}
			}
		})
	}
}

func TestR14DelaysStayWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Schedule
		for range rapid.IntRange(1, 100).Draw(t, "ends") {
			violation, limit := rapid.Bool().Draw(t, "violation"), 4*time.Second
			if violation {
				limit = 5 * time.Minute
			}
			d := s.Next(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "synced")),
				violation, rapid.Float64Range(0, 0.9999).Draw(t, "random"))
			if d < 500*time.Millisecond || d > limit {
				t.Fatalf("violation %t: a delay of %s", violation, d)
			}
		}
	})
}

// firstAttempts returns how long after the end of an outage each of n writers makes its first attempt.
// Their streams end at 0, and an attempt during the outage fails after the given time.
func firstAttempts(random *rand.Rand, n int, outage, attempt time.Duration) (all []time.Duration) {
	for range n {
		var s Schedule
		at := s.Next(time.Hour, false, random.Float64())
		for at < outage {
			at += attempt + s.Next(0, false, random.Float64())
		}
		all = append(all, at-outage)
	}
	slices.Sort(all)
	return all
}

func TestR14HundredWritersReconnectQuickly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 14))
		outage := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "outage"))
		all := firstAttempts(random, 100, outage, time.Millisecond)
		if p99 := all[98]; p99 > 4*time.Second { // a second is left to connect and sync
			t.Fatalf("after an outage of %s: %s until 99 of 100 writers have tried", outage, p99)
		}
	})
}

func TestR14ThousandWritersSpreadReconnects(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 14))
	for _, outage := range []time.Duration{5 * time.Second, time.Minute, time.Hour} {
		all := firstAttempts(random, 1000, outage, time.Millisecond)
		busiest := 0
		for i, from := range all {
			within, _ := slices.BinarySearch(all, from+100*time.Millisecond)
			busiest = max(busiest, within-i)
		}
		t.Logf("after %s: p50 %s, p99 %s, at most %d of 1,000 within 100 ms", outage, all[499], all[989], busiest)
		if busiest > 100 { // an even spread has 44
			t.Errorf("after an outage of %s %d of 1,000 writers connect within 100 ms", outage, busiest)
		}
	}
}

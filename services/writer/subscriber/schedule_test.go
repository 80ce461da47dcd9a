package subscriber

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestR14DelaysGrowAndFallBackAfterAStableStream(t *testing.T) {
	type end struct {
		synced time.Duration
		breach bool
		most   time.Duration // with the random number at its highest
	}
	for name, ends := range map[string][]end{
		"failures": {
			{0, false, 2 * time.Second},
			{0, false, 4 * time.Second},
			{time.Second, false, 8 * time.Second},
			{0, false, 16 * time.Second},
			{0, false, 30 * time.Second},
			{0, false, 30 * time.Second},
			{29 * time.Second, false, 30 * time.Second},
			{30 * time.Second, false, 2 * time.Second},
			{0, false, 4 * time.Second},
		},
		"routine ends": {
			{30 * time.Minute, false, 2 * time.Second}, {30 * time.Minute, false, 2 * time.Second}, {30 * time.Minute, false, 2 * time.Second},
		},
		"breaches after stable streams": {
			{time.Minute, true, 4 * time.Second},
			{time.Minute, true, 8 * time.Second},
			{time.Minute, true, 16 * time.Second},
			{time.Minute, true, 30 * time.Second},
			{time.Minute, false, 2 * time.Second},
			{time.Minute, true, 4 * time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			high, low := Schedule{}, Schedule{}
			for i, e := range ends {
				if got := high.Next(e.synced, e.breach, 1); got != e.most {
					t.Errorf("end %d: at most %s, want %s", i, got, e.most)
				}
				if got := low.Next(e.synced, e.breach, 0); got != time.Second {
					t.Errorf("end %d: at least %s", i, got)
				}
			}
		})
	}
}

func TestR14DelaysStayBetweenOneAndThirtySeconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Schedule
		for range rapid.IntRange(1, 100).Draw(t, "ends") {
			d := s.Next(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "synced")),
				rapid.Bool().Draw(t, "breach"), rapid.Float64Range(0, 0.9999).Draw(t, "random"))
			if d < time.Second || d > 30*time.Second {
				t.Fatalf("a delay of %s", d)
			}
		}
	})
}

package probes

import (
	"testing"
	"time"
)

func TestTheGoalBesideANeighborIsTheWorstHundredthOverTheBound(t *testing.T) {
	const bound = 2 * time.Second
	for _, row := range []struct {
		name string
		took time.Duration // of the slowest of many
		met  bool
	}{
		{"within the bound", bound, true},
		{"a fifth above it", bound * 6 / 5, true},
		{"above that", bound*6/5 + time.Millisecond, false},
		{"not noticed before the end", 25 * time.Second, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			samples := make([]time.Duration, 50)
			for i := range samples {
				samples[i] = time.Second
			}
			samples[0] = row.took
			goal := overBound("refuses", bound, samples)
			if want := row.took.Seconds() / bound.Seconds(); goal.Figure != want || goal.Met() != row.met {
				t.Errorf("%v at most %v: met is %t, want %v and %t", goal.Figure, goal.AtMost, goal.Met(), want, row.met)
			}
		})
	}
}

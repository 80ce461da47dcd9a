package search

import (
	"testing"
	"testing/synctest"
)

// Two writers, in a bubble since appliers read the clock: time stands still in it.
func TestNoShortHistoryBreaksAPropertyOfTwoWriters(t *testing.T) {
	for _, row := range []struct {
		name                  string
		faults                bool
		depth, longer, states int
	}{
		{"nodes come and go, and knowledge is behind", false, 8, 11, 3_000},
		{"requests are lost or late, leaders change, others edit", true, 5, 7, 6_000},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hold(t, row.depth, row.longer, row.states, func() World { return Pair(row.faults) })
			})
		})
	}
}

package fanout

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/lab/load"
)

func TestWhatLeadsUpToTellingIsNotOfTheSubscribers(t *testing.T) {
	f := &found{
		size: size{subscribers: 3, changes: 2},
		lone: []time.Duration{time.Millisecond, time.Millisecond}, loneCPU: 0.010, loneAllocations: 1000,
		ours: side{
			took:      []load.Times{{2 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond}, {2 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond}},
			perChange: 0.014, allocations: 1020, full: load.Memory{Live: 3},
		},
		bare: side{
			took:      []load.Times{{0, 0, 2 * time.Millisecond}, {0, 0, 2 * time.Millisecond}},
			perChange: 0.003, allocations: 15, full: load.Memory{Live: 1.5},
		},
	}
	got := map[string]float64{}
	for _, g := range f.part().Goals {
		got[g.Unit] = g.Figure
		if g.Unit == "×" {
			got[g.Text[:3]] = g.Figure
		}
	}
	want := map[string]float64{"KiB": 512, "": 5, "tim": 1.5, "CPU": 2, "×": 2}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

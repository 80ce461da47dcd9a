package load

import (
	"testing"
	"time"
)

func TestFanoutGoals(t *testing.T) {
	const ms = time.Millisecond
	f := &fanout{
		size: size{subscribers: 3, changes: 2, altered: 5},
		lone: smallCrowd{subscribers: 1, took: []time.Duration{ms, ms}, cpu: 0.010, allocations: 1000},
		few:  smallCrowd{subscribers: 2, cpu: 0.018},
		ours: side{
			took:      []Times{{2 * ms, 3 * ms, 4 * ms}, {2 * ms, 3 * ms, 4 * ms}},
			perChange: 0.014, allocations: 1020, full: Memory{Live: 3},
		},
		bare: side{
			took:      []Times{{0, 0, 2 * ms}, {0, 0, 2 * ms}},
			perChange: 0.003, allocations: 15, full: Memory{Live: 1.5},
		},
		storms: stormKinds{
			bare:      storm{took: []Times{{ms, 2 * ms}}, bytes: []int64{1}},
			fresh:     storm{took: []Times{{ms, 2 * ms}}, bytes: []int64{10000, 20000, 30000}},
			unchanged: storm{took: []Times{{ms, 3 * ms}}, bytes: []int64{100, 200, 300}},
			changed:   storm{took: []Times{{ms, 2 * ms}}, bytes: []int64{400, 600, 500}, resets: 2},
			restarted: storm{took: []Times{{ms, 2 * ms}}, bytes: []int64{50, 60, 40}, resets: 1},
		},
	}
	var got []float64
	for _, g := range f.report().Goals {
		got = append(got, g.Figure)
	}
	for i, want := range []float64{
		512, // KiB of each
		5,   // allocations: what leads up to sending is in none of it
		1.5, // time
		2,   // CPU
		4,   // CPU of a message is 2 ms with 3 subscribers, and 8 ms with 2
		300,
		80, // 600 bytes less the 200 of one to whom nothing changed, for 5 nodes
		0.003,
		3,
		1.5,
	} {
		if diff := got[i] - want; diff > 1e-9 || diff < -1e-9 {
			t.Errorf("goal %d is %v, want %v", i, got[i], want)
		}
	}
}

package propagation

import (
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/figures"
)

// measured is a size with the same figure everywhere.
func measured(nodes int, floor, pair time.Duration, inventory, writer, writes float64) *size {
	s := &size{
		nodes:     nodes,
		inventory: []float64{inventory, inventory * 2},
		writer:    []float64{writer * 2, writer},
		cost:      cost{writes: writes, refused: 1},
		changes:   20,
	}
	for range 9 {
		s.floor, s.pair = append(s.floor, []time.Duration{floor}), append(s.pair, []time.Duration{pair})
	}
	return s
}

func TestGrowthIsFromTheSecondSizeToTheLast(t *testing.T) {
	second := func(n int) []time.Duration { return []time.Duration{time.Duration(n) * time.Second} }
	got := growthPart(plan{services: 1}, []*size{
		measured(10, time.Millisecond, time.Millisecond, 1, 1, 20),
		measured(100, 2*time.Millisecond, 2*time.Millisecond, 1, 2, 20),
		measured(1000, 2*time.Millisecond, 9*time.Millisecond, 9, 9, 21),
		measured(5000, 4*time.Millisecond, 8*time.Millisecond, 3, 2, 20),
	}, &started{nodes: 5000, program: second(1), listed: second(2), cloud: second(3), synced: second(6)})
	for i, want := range []struct {
		figure float64
		met    bool
	}{{2, false}, {3, false}, {1, true}, {1, true}, {1, true}, {1, true}, {1.05, false}, {1, true}} {
		if g := got.Goals[i]; g.Figure != want.figure || g.Met() != want.met {
			t.Errorf("%s: %v, met %t", g.Text, g.Figure, g.Met())
		}
	}
	if n := len(got.Tables[0].Rows); n != 5 { // and the slope
		t.Errorf("%d rows", n)
	}
	if line := got.Plots[0].Series[0].Points; len(line) != 4 || line[3] != [2]float64{5000, 8} {
		t.Errorf("the plot's first line is %v", line)
	}
}

func TestServicesAreJudgedByAllTheirSlices(t *testing.T) {
	s := measured(50, 0, 0, 1, 1, 60)
	s.memory[1] = figures.Usage{Peak: 300 << 20}
	const ms = time.Millisecond
	s.floor = [][]time.Duration{{1 * ms, 2 * ms, 4 * ms}, {1 * ms, 2 * ms, 4 * ms}}
	s.pair = [][]time.Duration{{1 * ms, 3 * ms, 12 * ms}, {1 * ms, 3 * ms, 12 * ms}}
	for i, want := range []struct {
		figure float64
		met    bool
	}{{1.5, true}, {3, false}, {3, true}, {1, false}, {300, false}} {
		if g := servicesPart(plan{services: 3}, s).Goals[i]; g.Figure != want.figure || g.Met() != want.met {
			t.Errorf("%s: %v, met %t", g.Text, g.Figure, g.Met())
		}
	}
}

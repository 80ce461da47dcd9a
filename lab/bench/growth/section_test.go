package growth

import (
	"testing"
	"time"
)

// measured is a size with the same figure everywhere.
func measured(nodes int, floor, pair time.Duration, inventory, writer float64) *size {
	s := &size{nodes: nodes, inventory: []float64{inventory, inventory * 2}, writer: []float64{writer * 2, writer}}
	for range 9 {
		s.floor, s.pair = append(s.floor, floor), append(s.pair, pair)
	}
	return s
}

func TestGrowthIsToldFromTheSecondSizeToTheLast(t *testing.T) {
	second := func(n int) []time.Duration { return []time.Duration{time.Duration(n) * time.Second} }
	f := &findings{
		sizes: []*size{
			measured(10, time.Millisecond, time.Millisecond, 1, 1),
			measured(100, 2*time.Millisecond, 2*time.Millisecond, 1, 2),
			measured(1000, 2*time.Millisecond, 9*time.Millisecond, 9, 9),
			measured(5000, 4*time.Millisecond, 8*time.Millisecond, 3, 2),
		},
		starts: &started{nodes: 5000, program: second(1), listed: second(2), cloud: second(3), synced: second(6)},
	}
	got := f.part()
	for i, want := range []struct {
		figure float64
		met    bool
	}{{2, false}, {3, false}, {1, true}, {1, true}} {
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

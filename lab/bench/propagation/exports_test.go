package propagation

import (
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/figures"
)

// exportsOf is a side with the same figure everywhere.
func exportsOf(services int, took time.Duration, inventory, writer float64, resident int64) *exportSide {
	s := &exportSide{services: services, cpu: [2][]float64{{inventory, inventory * 9, inventory / 9}, {writer, writer, writer}}}
	s.memory = [2]figures.Usage{{Resident: resident << 20}, {Resident: 2 * resident << 20}}
	for range 9 {
		start := time.Unix(0, 0)
		s.took = append(s.took, sample{start, start.Add(took)})
	}
	return s
}

func TestManyExportedServicesAreComparedWithOne(t *testing.T) {
	e := &exportsBench{
		exportsPlan: exportsPlan{rounds: 2, changes: 10},
		one:         exportsOf(1, 2*time.Millisecond, 1, 2, 50), many: exportsOf(101, 3*time.Millisecond, 1, 3, 75),
		cost: cost{writes: 41},
	}
	part := e.part()
	for i, want := range []struct {
		figure float64
		met    bool
	}{{1.5, false}, {1, true}, {1.5, false}, {1.025, false}, {256, true}} {
		if g := part.Goals[i]; g.Figure != want.figure || g.Met() != want.met {
			t.Errorf("%s: %v, met %t", g.Text, g.Figure, g.Met())
		}
	}
	if rows := part.Tables[0].Rows; len(rows) != 2 || len(rows[1]) != len(part.Tables[0].Columns) || rows[1][0] != "101" {
		t.Errorf("rows %v", rows)
	}
}

func TestAChangeTakesNothingOfWhatRestTakes(t *testing.T) {
	s := &exportSide{rest: [2]float64{0.1, 0}}
	s.addRound([2]figures.Usage{}, [2]figures.Usage{{CPU: 2 * time.Second}, {CPU: time.Second}}, 10*time.Second, 100)
	if s.cpu[0][0] != 10 || s.cpu[1][0] != 10 {
		t.Errorf("CPU of a change %v, want 10 ms", s.cpu)
	}
}

package report

import (
	"strings"
	"testing"
)

func TestReportNamesEachMissedGoal(t *testing.T) {
	r := Report{
		Setup: "How it was measured.",
		Goals: []Goal{
			{Text: "time", Figure: 1.1, AtMost: 1.1, Unit: "ms", Noise: 0.5}, {Text: "count"}, {Text: "writes", Figure: 1.01, AtMost: 1},
		},
		Tables: []Table{{Title: "Figures:", Columns: []string{"", "p50"}, Rows: [][]string{{"a", "3"}}}},
	}
	if err := r.Check(); err == nil || err.Error() != "missed a goal: writes is 1.01, want at most 1" {
		t.Errorf("got %v", err)
	}
	if err := (Report{Goals: r.Goals[:2]}).Check(); err != nil {
		t.Error(err)
	}
	text := strings.Join(strings.Fields(r.String()), " ")
	for _, want := range []string{
		"time 1.10 ms ± 0.50 1.10 ms met", "count 0 0 met", "writes 1.01 1 NOT met", "Figures: p50 a 3", "How it was measured.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, r)
		}
	}
}

package report

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGoalIsMetByItsFigureAlone(t *testing.T) {
	for _, tt := range []struct {
		figure, atMost float64
		want           bool
	}{{1, 1.1, true}, {1.1, 1.1, true}, {1.11, 1.1, false}, {0, 0, true}, {1, 0, false}} {
		if got := (Goal{Figure: tt.figure, AtMost: tt.atMost}).Met(); got != tt.want {
			t.Errorf("%v at most %v: met is %t", tt.figure, tt.atMost, got)
		}
	}
}

func TestCheckNamesEachMissedGoalAndFailedSection(t *testing.T) {
	met, missed := Goal{Text: "time", Figure: 1, AtMost: 2}, Goal{Text: "writes", Figure: 3, AtMost: 2}
	section := func(err error, goals ...Goal) *Section {
		return &Section{Name: "churn", Err: err, Parts: []*Part{{}, {Goals: goals}}}
	}
	for _, tt := range []struct {
		name     string
		sections []*Section
		want     []string
	}{
		{"all goals are met", []*Section{section(nil, met), section(nil, met, met)}, nil},
		{"one goal is missed", []*Section{section(nil, met), section(nil, met, missed)}, []string{"churn misses a goal: writes is 3, want at most 2"}},
		{"one section failed", []*Section{section(nil, met), section(errors.New("killed"))}, []string{"churn was not measured: killed"}},
		{"both", []*Section{section(errors.New("killed")), section(nil, missed, missed)}, []string{"killed", "writes", "writes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Check(tt.sections)
			if tt.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("got %q, want %q", lines, tt.want)
			}
			for i, want := range tt.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("line %d is %q, want %q in it", i, lines[i], want)
				}
			}
		})
	}
}

func TestNumbersHaveThreeSignificantDigits(t *testing.T) {
	for _, tt := range []struct {
		of   float64
		want string
	}{{0, "0 ms"}, {500, "500 ms"}, {1234.5, "1234 ms"}, {12.345, "12.3 ms"}, {1.0999, "1.10 ms"}, {0.00123, "0.0012 ms"}} {
		if got := number(tt.of, "ms"); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.of, got, tt.want)
		}
	}
}

func TestSaveWritesThePageAndItsPlots(t *testing.T) {
	dir := t.TempDir()
	s := &Section{Name: "churn", Title: "The title", Origin: "at v1, on 2 cores", Parts: []*Part{
		{
			Title: "A part",
			Setup: "How it was measured.",
			Notes: []string{"A note."},
			Goals: []Goal{
				{Text: "time", Figure: 3, AtMost: 2, Unit: "ms", Noise: 0.5, Remark: "the reason"},
				{Text: "count", AtMost: 1, Remark: "no reason"},
			},
			Tables: []Table{{Title: "Figures:", Columns: []string{"", "p50"}, Rows: [][]string{{"a|b", "3"}}}},
			Plots: []Plot{
				{
					Name:   "curve",
					Title:  "A curve",
					X:      Axis{Log: true},
					Series: []Series{{Name: "one", Points: [][2]float64{{1, 1}, {10, 2}}}},
				},
			},
		},
	}}
	if err := s.Save(dir); err != nil {
		t.Fatal(err)
	}
	for name, texts := range map[string][]string{
		"churn.md": {
			"# The title", "at v1, on 2 cores", "## A part", "How it was measured.", "A note.",
			"| time | 3 ms ± 0.50 | 2 ms | **NOT met** |", "the reason", "| count | 0 | 1 | met |", `| a\|b | 3 |`, "(curve.svg)",
		},
		"curve.svg": {"<svg", "A curve"},
	} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if !strings.Contains(string(content), text) {
				t.Errorf("%s lacks %q:\n%s", name, text, content)
			}
		}
		if strings.Contains(string(content), "no reason") {
			t.Error("a goal that is met has a remark")
		}
	}
}

func TestPlotShowsWhyAPointCannotBeDrawn(t *testing.T) {
	svg := Plot{Name: "curve", X: Axis{Log: true}, Series: []Series{{Name: "one", Points: [][2]float64{{0, 1}}}}}.svg()
	if !strings.Contains(string(svg), "no logarithm") {
		t.Errorf("got %s", svg)
	}
}

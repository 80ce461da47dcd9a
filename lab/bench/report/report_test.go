package report

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAGoalIsMetByItsFigureAlone(t *testing.T) {
	for _, tt := range []struct {
		figure, atMost float64
		want           bool
	}{{1, 1.1, true}, {1.1, 1.1, true}, {1.11, 1.1, false}, {0, 0, true}, {1, 0, false}} {
		if got := (Goal{Figure: tt.figure, AtMost: tt.atMost}).Met(); got != tt.want {
			t.Errorf("%v at most %v: met is %t", tt.figure, tt.atMost, got)
		}
	}
}

func TestAReportMeetsItsGoalsOnlyWhenAllSectionsDo(t *testing.T) {
	met, not := Goal{Figure: 1, AtMost: 2}, Goal{Figure: 3, AtMost: 2}
	for _, tt := range []struct {
		name     string
		sections []*Section
		want     bool
	}{
		{"all met", []*Section{{Name: "a", Goals: []Goal{met}}, {Name: "b", Goals: []Goal{met, met}}}, true},
		{"one goal is not", []*Section{{Name: "a", Goals: []Goal{met}}, {Name: "b", Goals: []Goal{met, not}}}, false},
		{"one section failed", []*Section{{Name: "a", Goals: []Goal{met}}, {Name: "b", Error: "killed"}}, false},
		{"one section is missing", []*Section{{Name: "a", Goals: []Goal{met}}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &Report{}
			r.Take([]string{"a", "b"}, "here", nil, tt.sections)
			if r.GoalsMet != tt.want {
				t.Errorf("goals met: %t", r.GoalsMet)
			}
		})
	}
}

func TestWhatIsMeasuredAgainReplacesItsSectionAndRemembersTheFigure(t *testing.T) {
	names := []string{"a", "b"}
	section := func(name string, figure float64) *Section {
		return &Section{Name: name, Goals: []Goal{{Text: "time", Figure: figure, AtMost: 9}}}
	}
	r := &Report{}
	r.Take(names, "here", nil, []*Section{section("b", 1), section("a", 2), section("was removed since", 3)})
	r.Take(names, "here", nil, []*Section{section("b", 4)})
	r.Take(names, "here", nil, []*Section{section("a", 5)})

	one, two := 1.0, 2.0
	want := []*Section{
		{Name: "a", Goals: []Goal{{Text: "time", Figure: 5, AtMost: 9, Before: &two}}},
		{Name: "b", Goals: []Goal{{Text: "time", Figure: 4, AtMost: 9, Before: &one}}},
	}
	if diff := cmp.Diff(want, r.Sections); diff != "" {
		t.Error(diff)
	}
	r.Take(names, "another machine", nil, []*Section{section("b", 6)})
	if r.Sections[1].Goals[0].Before != nil {
		t.Error("a figure of another machine is compared")
	}
}

func TestNumbersHaveTheDigitsThatCount(t *testing.T) {
	for _, tt := range []struct {
		of   float64
		want string
	}{{0, "0 ms"}, {500, "500 ms"}, {1234.5, "1234 ms"}, {12.345, "12.3 ms"}, {1.0999, "1.10 ms"}, {0.00123, "0.0012 ms"}} {
		if got := number(tt.of, "ms"); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.of, got, tt.want)
		}
	}
}

func TestWhatIsSavedIsLoadedAndHasItsPageAndPlots(t *testing.T) {
	dir := t.TempDir()
	file, page := filepath.Join(dir, "latest.json"), filepath.Join(dir, "performance.md")
	r := &Report{}
	r.Take([]string{"a"}, "here", map[string]string{"Go": "1"}, []*Section{{
		Name: "a", Title: "The title", Goals: []Goal{{Text: "time", Figure: 3, AtMost: 2, Unit: "ms", Noise: 0.5, Remark: "the reason"}, {Text: "count", AtMost: 1, Remark: "no reason"}},
		Tables: []Table{{Title: "Figures:", Columns: []string{"", "p50"}, Rows: [][]string{{"a|b", "3"}}}},
		Plots:  []Plot{{Name: "curve", Title: "A curve", X: Axis{Log: true}, Series: []Series{{Name: "one", Points: [][2]float64{{1, 1}, {10, 2}}}}}},
	}})
	if err := r.Save(file, page); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, loaded); diff != "" {
		t.Error(diff)
	}
	files := loaded.Files("performance")
	if strings.Contains(string(files["performance.md"]), "no reason") {
		t.Error("a goal that is met is excused")
	}
	for name, words := range map[string][]string{
		"performance.md":        {"## The title", "| a | time | 3 ms ± 0.50 | 2 ms |", "**NOT met**", "the reason", `| a\|b | 3 |`, "(performance/curve.svg)"},
		"performance/curve.svg": {"<svg", "A curve"},
	} {
		for _, word := range words {
			if !strings.Contains(string(files[name]), word) {
				t.Errorf("%s lacks %q:\n%s", name, word, files[name])
			}
		}
	}
}

func TestAPointWithoutALogarithmIsSaidNotDrawn(t *testing.T) {
	svg := Plot{Name: "curve", X: Axis{Log: true}, Series: []Series{{Name: "one", Points: [][2]float64{{0, 1}}}}}.svg()
	if !strings.Contains(string(svg), "no logarithm") {
		t.Errorf("got %s", svg)
	}
}

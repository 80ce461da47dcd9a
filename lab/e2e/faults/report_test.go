package faults

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/lab/pair/client"
)

// A whole run writes both. When the page is written anew: go test ./lab/e2e/faults -run TestThePage -update.
func TestThePageHasTheReportOfTheLastWholeRun(t *testing.T) {
	report, err := ReadReport(File)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		render(t, report)
	}
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want, err := report.Render(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("%s does not have the table of %s (run this test with -update) (-want +got):\n%s", page, File, diff)
	}
}

// The rows of the report were judged when they were played, by TestFaults: a file says nothing of the product
// as it is now.
func TestABrokenBoundFailsItsRow(t *testing.T) {
	good := Result{Requests: 100, Writes: 2, MostWrites: 2, Lost: Lost{Beyond: 3}}
	for _, c := range []struct {
		name  string
		alter func(*Result)
		want  string // empty: none is broken
	}{
		{"within all bounds", func(*Result) {}, ""},
		{"lost to a wrong slice", func(r *Result) { r.Lost.Wrong = 1 }, "1 requests lost to a wrong slice"},
		{"lost to a wrong slice, and the table says why", func(r *Result) { r.Lost.Wrong, r.Explain = 1, "a reason" }, ""},
		{"lost for no known reason", func(r *Result) { r.Lost.Other = 1 }, "1 to nobody knows what"},
		{"a write too many", func(r *Result) { r.Writes = 3 }, "3 API writes on slices, 2 are allowed"},
		{"no request", func(r *Result) { r.Requests = 0 }, "no request was sent"},
		{"a slow machine is no excuse", func(r *Result) { r.Lost.Wrong, r.LateMS = 1, 5000 }, "1 requests lost to a wrong slice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := good
			c.alter(&r)
			err := broken(r, nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestASlowMachineExtendsABoundOnlySoFar(t *testing.T) {
	for late, want := range map[time.Duration]time.Duration{
		-time.Millisecond: 0, 0: 0, 300 * time.Millisecond: 300 * time.Millisecond, maxAllowance: maxAllowance, time.Minute: maxAllowance,
	} {
		if got := allowance(late); got != want {
			t.Errorf("late by %s: %s, want %s", late, got, want)
		}
	}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	v := verdicts{allowance: time.Second}
	if got, want := v.due(client.Death{From: start, Bound: 3 * time.Second}), start.Add(4*time.Second); !got.Equal(want) {
		t.Errorf("a death has to be known at %s, want %s", got, want)
	}
}

func TestTheReportHasEachRowOfTheTable(t *testing.T) {
	report, err := ReadReport(File)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(report.Rows); n < 100 {
		t.Errorf("%d rows, want 100 at least", n)
	}
	var table, told []string
	for _, row := range Rows() {
		table = append(table, row.Part+": "+row.Name)
	}
	for _, row := range report.Rows {
		told = append(told, row.Part+": "+row.Name)
	}
	if diff := cmp.Diff(table, told); diff != "" {
		t.Errorf("the table has changed since its rows were played; SLICEFEED_FAULTS=1 go test ./lab/e2e/faults -run TestFaults -args -rows NAME plays one (-table +report):\n%s", diff)
	}
}

func TestRowsHaveNamesOfTheirOwnAndBounds(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range Rows() {
		switch {
		case row.Name == "" || row.Part == "" || row.Fault == nil || row.Within <= 0:
			t.Errorf("%s: %q lacks a name, a part, a fault or a bound", row.Part, row.Name)
		case seen[row.Name]:
			t.Errorf("two rows are called %q", row.Name)
		case strings.ContainsAny(row.Name+row.Part+row.Explain, "|\n"):
			t.Errorf("%q cannot stand in a table", row.Name)
		}
		seen[row.Name] = true
	}
	for _, name := range smoke {
		if !seen[name] {
			t.Errorf("there is no row %q for the short run", name)
		}
	}
}

func TestNewFiguresTakeThePlaceOfOldOnes(t *testing.T) {
	table := Rows()
	first, second := table[0].Name, table[1].Name
	before := Report{Date: "yesterday", Rows: []Result{{Name: "a row of yesteryear"}, {Name: second, Requests: 1}}}
	got := before.With(map[string]Result{second: {Name: second, Requests: 2}, first: {Name: first, Requests: 3}})
	want := Report{Date: "yesterday", Rows: []Result{{Name: first, Requests: 3}, {Name: second, Requests: 2}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

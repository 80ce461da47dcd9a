package faults

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestNoRequestIsLostToAWrongSlice(t *testing.T) {
	report, err := ReadReport(File)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range report.Rows {
		if row.Lost.Wrong > 0 && row.Explain == "" {
			t.Errorf("%s: %s: %d requests, and nothing says why", row.Part, row.Name, row.Lost.Wrong)
		}
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

package model

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// A constant of the model changes tables that the last run has left behind.
func TestTheTablesOfTheLastRunFollowFromItsInputs(t *testing.T) {
	root, err := pair.Root()
	if err != nil {
		t.Fatal(err)
	}
	file, page := filepath.Join(root, "lab/bench/results/latest.json"), filepath.Join(root, "docs/performance.md")
	found, err := report.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range found.Sections {
		if section.Name != Name {
			continue
		}
		in, err := readInputs(section)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []report.Table{in.quantities(), in.limits()} {
			if i := slices.IndexFunc(section.Tables, func(t report.Table) bool { return t.Title == want.Title }); *update && i >= 0 {
				section.Tables[i] = want
			}
			if diff := cmp.Diff(want, tableOf(section, want.Title)); diff != "" {
				t.Errorf("the model gives another table (-) than the last run (+); take it with `go test ./lab/bench/model -update`:\n%s", diff)
			}
		}
		if *update {
			if err := found.Save(file, page); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	t.Fatal("the last run has no section of the model")
}

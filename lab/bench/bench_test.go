package bench

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/pair"
)

var update = flag.Bool("update", false, "render the page again from what the last whole run found")

func TestThePageIsWhatTheLastRunFound(t *testing.T) {
	root, err := pair.Root()
	if err != nil {
		t.Fatal(err)
	}
	found, err := report.Load(filepath.Join(root, results))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := found.Save(filepath.Join(root, results), filepath.Join(root, page)); err != nil {
			t.Fatal(err)
		}
	}
	files := found.Files("performance")
	if len(files) < 2 {
		t.Fatalf("the results make only %d pages", len(files))
	}
	for name, want := range files {
		is, err := os.ReadFile(filepath.Join(root, "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(is)); diff != "" {
			t.Errorf("docs/%s is not what %s says (render it with `go test ./lab/bench -update`):\n%s", name, results, diff)
		}
	}
}

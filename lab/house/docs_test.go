package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every row of the tables of what goes wrong is a test of that name.
func TestEveryRowOfWhatHappensInTheDocsIsATest(t *testing.T) {
	tests := map[string]string{} // text of the test files, by path
	for _, tree := range []string{"services", "lab"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			tests[path] = string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var pages []string
	for _, glob := range []string{"docs/*.md", "docs/*/*.md"} {
		some, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, some...)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range whatHappens(string(text)) {
			found++
			if !named(tests, row) {
				t.Errorf("%s: no test has the name of the row %q", filepath.Base(page), row)
			}
		}
	}
	if found < 80 {
		t.Errorf("only %d rows were found: do the tables still begin with \"what happens\"?", found)
	}
}

// whatHappens returns the first cells of the tables whose first column is "what happens".
func whatHappens(text string) []string {
	var rows []string
	in := false
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		switch {
		case len(cells) < 3:
			in = false
		case strings.TrimSpace(cells[1]) == "what happens":
			in = true
		case in && !strings.HasPrefix(strings.TrimSpace(cells[1]), "---"):
			rows = append(rows, strings.TrimSpace(strings.ReplaceAll(cells[1], "`", "")))
		}
	}
	return rows
}

func named(tests map[string]string, row string) bool {
	for _, text := range tests {
		if strings.Contains(text, `"`+row+`"`) || strings.Contains(text, "`"+row+"`") {
			return true
		}
	}
	return false
}

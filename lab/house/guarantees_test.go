package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var shownBy = regexp.MustCompile(`\[((?:Test|Fuzz)\w+)\]\(\.\./\.\./([^)]+)\)`)

// No promise without a test: every row of what is promised, and of what is not, names tests that
// there are.
func TestEveryPromiseNamesTestsThatThereAre(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/proof/guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, promises, seen := 0, false, map[string]bool{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		first := strings.TrimSpace(cells[0])
		switch {
		case len(cells) == 1:
			promises = false
		case strings.TrimSpace(cells[len(cells)-1]) == "shown by":
			promises = true
		case promises && !strings.HasPrefix(first, "---"):
			rows++
			if seen[first] {
				t.Errorf("promised twice: %q", first)
			}
			seen[first] = true
			tests := shownBy.FindAllStringSubmatch(cells[len(cells)-1], -1)
			if len(tests) == 0 {
				t.Errorf("no test shows %q", first)
			}
			for _, test := range tests {
				if !declared(t, filepath.Join(root, test[2]), test[1]) {
					t.Errorf("%q: there is no %s in %s", first, test[1], test[2])
				}
			}
		}
	}
	if rows < 30 {
		t.Errorf("only %d rows were found: does their last column still say \"shown by\"?", rows)
	}
}

// declared reports whether a directory's tests have one of that name.
func declared(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+name+"(") {
			return true
		}
	}
	return false
}

package house

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	runOption     = regexp.MustCompile(`-run '([\w|]+)'`)
	testDirectory = regexp.MustCompile(`\./[\w./]+\w`)
	testFunction  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// A test that is renamed must not leave the targets of the Makefile that select it by its name.
func TestMakefileSelectsTestsThatExist(t *testing.T) {
	patterns := 0
	for line := range strings.Lines(read(t, filepath.Join(root, "Makefile"))) {
		selected := runOption.FindStringSubmatch(line)
		if selected == nil {
			continue
		}
		var tests strings.Builder
		for _, dir := range testDirectory.FindAllString(line, -1) {
			files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				for _, function := range testFunction.FindAllStringSubmatch(read(t, file), -1) {
					tests.WriteString(function[1] + "\n")
				}
			}
		}
		for pattern := range strings.SplitSeq(selected[1], "|") {
			patterns++
			if !strings.Contains(tests.String(), pattern) {
				t.Errorf("no test has %q in its name, which is selected by: %s", pattern, strings.TrimSpace(line))
			}
		}
	}
	if patterns < 15 {
		t.Errorf("only %d patterns were found: does the Makefile still select tests by -run '...'?", patterns)
	}
}

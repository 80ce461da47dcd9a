// Package docsection writes and checks the generated sections of pages. It guarantees that the text around a section
// stays as it is. Only tests use it.
package docsection

import (
	"fmt"
	"os"
	"strings"
)

// Check compares a section of a page with what the code generates, or writes it with update. The section is between
// the lines <!-- name --> and <!-- /name -->. generate gets its current text, of which it may keep parts.
func Check(file, name string, update bool, generate func(current string) string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- %s -->\n", name), fmt.Sprintf("<!-- /%s -->", name)
	before, rest, found := strings.Cut(string(page), begin)
	current, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s: the lines %q and %q are missing", file, begin, end)
	}
	want := generate(current)
	switch {
	case current == want:
		return nil
	case !update:
		return fmt.Errorf("%s: the section %s differs from the code; run: make generate", file, name)
	}
	//nolint:gosec // G306: a page in the repository, world-readable like the others
	return os.WriteFile(file, []byte(before+begin+want+end+after), 0o644)
}

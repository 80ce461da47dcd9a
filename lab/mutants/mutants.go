// Package mutants holds deliberate bugs: each would harm users, and each must be caught by the
// tests that we have. It promises to say which test catches which bug, and within how many seeds
// the simulation does. It refuses to touch the tree: a bug is laid over it for one run of go test
// by -overlay, so that runs may go side by side.
//
// Rejected: copies of the tree (nothing would be cached), and build tags in the product (a bug must
// never be compiled into what ships, not even asleep).
package mutants

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mutant is one deliberate bug.
type Mutant struct {
	Name string
	Harm string // what it is and what it would do to users, in one sentence

	File  string // from the root of the checkout
	Edits []Edit // at least one; made one after the other

	// Suites are the packages, from the root of the checkout, whose own tests must catch it; the
	// first that does ends the search.
	Suites []string
	// Seeds is within how many worlds the simulation must catch it too; 0: it cannot see it.
	Seeds int
}

// Edit replaces a text that the file holds exactly once.
type Edit struct{ Old, New string }

// All are the bugs, in the order of the flow.
func All() []Mutant { return slices.Concat(shared(), inventory(), writer()) }

// Text is the file of the checkout at root with the bug in it. A text to be replaced that is not
// there exactly once is an error: the source has moved on, and the bug has to follow.
func (m Mutant) Text(root string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	text := string(raw)
	for _, e := range m.Edits {
		if n := strings.Count(text, e.Old); n != 1 {
			return "", fmt.Errorf("mutant %s: %s holds this text %d times, where once is expected; "+
				"if the code has changed, change the mutant with it:\n%s", m.Name, m.File, n, e.Old)
		}
		text = strings.Replace(text, e.Old, e.New, 1)
	}
	return text, nil
}

// one is the usual case of a single edit.
func one(before, after string) []Edit { return []Edit{{before, after}} }

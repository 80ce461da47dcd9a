// Package mutants breaks the product on purpose, one bug at a time, and checks that the tests notice. The bugs are in
// catalogue.yaml, one for each rule, guard or guarantee. The tree is never changed: go test reads the file with the bug
// by -overlay, so runs may go side by side.
//
// Rejected: copies of the tree, since nothing would be cached; build tags in the product, since a bug must never be
// compiled into what ships.
package mutants

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Mutant is one deliberate bug.
type Mutant struct {
	Name string `json:"name"`
	Harm string `json:"harm"` // what it is and what it would do to users, in one sentence

	File  string `json:"file"`  // from the root of the checkout
	Edits []Edit `json:"edits"` // made one after the other

	// Suites are the packages, from the root of the checkout, whose own tests must catch it; the first that does ends
	// the search.
	Suites []string `json:"suites"`
	// Seeds is within how many worlds the simulation must catch it too; 0: it cannot see it.
	Seeds int `json:"seeds,omitempty"`
}

// Edit replaces a text that the file has exactly once.
type Edit struct {
	Old string `json:"old"`
	New string `json:"new"`
}

//go:embed catalogue.yaml
var catalogue []byte

// All are the bugs, in the order of the flow.
func All() (all []Mutant, err error) {
	return all, yaml.UnmarshalStrict(catalogue, &all)
}

// Text is the file of the checkout at root with the bug in it. A text to be replaced that is not there exactly once is
// an error: the source has changed, and the bug has to follow.
func (m Mutant) Text(root string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	text := string(raw)
	for _, e := range m.Edits {
		if n := strings.Count(text, e.Old); n != 1 {
			return "", fmt.Errorf(
				"mutant %s: %s has this text %d times, want once; if the code has changed, change lab/mutants/catalogue.yaml:\n%s",
				m.Name,
				m.File,
				n,
				e.Old,
			)
		}
		text = strings.Replace(text, e.Old, e.New, 1)
	}
	return text, nil
}

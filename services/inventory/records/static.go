package records

import (
	"context"
	"fmt"
)

// NewStaticReader reads the text itself. The text is configuration: a record that would be bad elsewhere
// is an error at once here.
func NewStaticReader(text string) (Reader, error) {
	records, err := parseRecords([]byte(text))
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if r.problem != "" {
			return nil, fmt.Errorf("a record cannot be used: %s", describeProblem(r))
		}
	}
	return staticReader(text), nil
}

type staticReader string

// Read returns the text.
func (s staticReader) Read(context.Context) ([]byte, error) { return []byte(s), nil }

package records

import (
	"context"
	"fmt"
)

// NewStaticReader returns a Reader of the text itself. The text is configuration, so an invalid
// record is an error here.
func NewStaticReader(text string) (Reader, error) {
	records, err := parseRecords([]byte(text))
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if r.problem != "" {
			return nil, fmt.Errorf("invalid record: %s", describeProblem(r))
		}
	}
	return staticReader(text), nil
}

type staticReader string

// Read returns the text.
func (s staticReader) Read(context.Context) ([]byte, error) { return []byte(s), nil }

package records

import (
	"context"
	"fmt"
)

// Static reads the text itself. The text is configuration: a record that would be bad elsewhere
// is an error at once here.
func Static(text string) (Reader, error) {
	records, err := parse([]byte(text))
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if r.bad != "" {
			return nil, fmt.Errorf("a record cannot be used: %s", problem(r))
		}
	}
	return static(text), nil
}

type static string

// Read returns the text.
func (s static) Read(context.Context) ([]byte, error) { return []byte(s), nil }

package roster

import (
	"fmt"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// truncate limits a name or an identifier that someone else chose.
func truncate(text string) string { return display.Truncate(text, 120) }

// joinSome lists the first few of many for a sentence.
func joinSome[T fmt.Stringer](all []T) string {
	const maxListed = 6
	var s []string
	for _, t := range all[:min(len(all), maxListed)] {
		s = append(s, t.String())
	}
	if len(all) > maxListed {
		s = append(s, fmt.Sprintf("%d more", len(all)-maxListed))
	}
	return strings.Join(s, ", ")
}

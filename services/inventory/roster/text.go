package roster

import (
	"fmt"
	"regexp"
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

// credential matches what looks like a credential in the error text of someone else.
var credential = regexp.MustCompile(`(?i)(bearer|basic)\s+\S+|eyJ[\w.-]{8,}|(//)[^/@\s]*@|(token|password|secret)["']?\s*[=:]\s*\S+`)

// sanitize makes one line of limited length of an error text, without what looks like a credential.
func sanitize(text string) string {
	text = strings.Join(strings.Fields(display.Sanitize(text)), " ")
	return display.Truncate(credential.ReplaceAllString(text, "[removed]"), 400)
}

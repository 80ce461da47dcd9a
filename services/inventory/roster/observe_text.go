package roster

import (
	"regexp"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// credential matches what looks like a credential in the error text of someone else.
var credential = regexp.MustCompile(`(?i)(bearer|basic)\s+\S+|eyJ[\w.-]{8,}|(//)[^/@\s]*@|(token|password|secret)["']?\s*[=:]\s*\S+`)

// sanitize makes one line of limited length of an error text, without what looks like a credential.
func sanitize(text string) string {
	text = strings.Join(strings.Fields(display.Sanitize(text)), " ")
	return display.Truncate(credential.ReplaceAllString(text, "[removed]"), 400)
}

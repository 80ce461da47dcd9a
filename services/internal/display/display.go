// Package display prepares text for people: it removes what would control a terminal. It guarantees that text from
// outside cannot leave its line. It does not know what the text is about, except for the conditions of an endpoint.
package display

import (
	"fmt"
	"strings"
	"unicode"
)

// Sanitize replaces control and format characters (Unicode categories Cc and Cf) by spaces: line ends,
// terminal escapes, invisible characters, and those that reverse the direction of text.
func Sanitize(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// Truncate returns valid UTF-8 of at most maxBytes. Text that was cut off ends with an ellipsis.
func Truncate(text string, maxBytes int) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= maxBytes {
		return text
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(text[:max(0, maxBytes-len(ellipsis))], "") + ellipsis
}

// List names the first few of all and counts the others.
func List(all []string) string {
	const maxListed = 3
	if len(all) <= maxListed+1 {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:maxListed], ", "), len(all)-maxListed)
}

// Count formats a number of things, such as "1 node" or "2 nodes".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// EndpointConditions names the state that the conditions of an EndpointSlice's endpoint stand for, or lists them if
// they stand for none that a writer sets.
func EndpointConditions(ready, serving, terminating bool) string {
	switch [...]bool{ready, serving, terminating} {
	case [...]bool{true, true, false}:
		return "ready"
	case [...]bool{false, true, true}:
		return "draining"
	case [...]bool{false, false, false}:
		return "not ready"
	default:
		return fmt.Sprintf("ready=%t serving=%t terminating=%t", ready, serving, terminating)
	}
}

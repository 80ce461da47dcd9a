package stream

import "strings"

// Text makes a text fit to be sent: bounded, and UTF-8, or the whole message is refused.
func Text(text string, most int) string {
	if len(text) > most {
		text = text[:most-len("…")] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

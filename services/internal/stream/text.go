package stream

import "strings"

// TruncateText makes a text fit to be sent: bounded, and UTF-8, or the whole message is refused.
func TruncateText(text string, maxBytes int) string {
	if len(text) > maxBytes {
		text = text[:maxBytes-len("…")] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

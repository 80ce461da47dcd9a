package stream

import "strings"

// TruncateText limits a text to a number of bytes and makes it valid UTF-8: protobuf rejects a
// message with an invalid string.
func TruncateText(text string, maxBytes int) string {
	if len(text) > maxBytes {
		text = text[:maxBytes-len("…")] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

package roster

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// secret is what looks like a credential in someone else's error text.
var secret = regexp.MustCompile(`(?i)(bearer|basic)\s+\S+|eyJ[\w.-]{8,}|(//)[^/@\s]*@|(token|password|secret)["']?\s*[=:]\s*\S+`)

// plain makes one bounded line of someone else's text, without what looks like a credential.
func plain(text string) string {
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(cut(text, 4096), "?"))
	text = strings.Join(strings.Fields(text), " ")
	return cut(secret.ReplaceAllString(text, "[removed]"), 400)
}

// clip bounds a name or an identifier that someone else chose.
func clip(text string) string { return cut(strings.ToValidUTF8(text, "?"), 120) }

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

package display

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSanitizeKeepsTextInItsLine(t *testing.T) {
	if got := Sanitize("a\u202eb\u200bc"); got != "a b c" {
		t.Errorf("Sanitize kept invisible characters: %q", got)
	}
	if got := Sanitize("one\ntwo\x1b[2J\xff"); got != "one two [2J?" {
		t.Errorf("got %q", got)
	}
}

func TestTruncateKeepsValidUTF8(t *testing.T) {
	for most, want := range map[int]string{9: "aüüüü", 8: "aüü…", 7: "aü…", 6: "aü…"} {
		if got := Truncate("aüüüü", most); got != want {
			t.Errorf("to %d: %q, want %q", most, got, want)
		}
	}
	if got := Truncate("a\xffb", 9); got != "a?b" {
		t.Errorf("got %q", got)
	}
}

func TestTruncateIsBoundedAndValidUTF8(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", 2000), "x" + strings.Repeat("é", 2000), "\xff\xfe", ""} {
		if got := Truncate(text, 1024); len(got) > 1024 || !utf8.ValidString(got) {
			t.Errorf("%.20q became %d bytes, valid: %t", text, len(got), utf8.ValidString(got))
		}
	}
	if got := Truncate("as it is", 1024); got != "as it is" {
		t.Errorf("a short text became %q", got)
	}
}

func TestCountHasASingular(t *testing.T) {
	for n, want := range map[int]string{0: "0 nodes", 1: "1 node", 2: "2 nodes"} {
		if got := Count(n, "node", "nodes"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

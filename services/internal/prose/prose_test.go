package prose

import (
	"slices"
	"strings"
	"testing"
)

func TestTheNearestNamesComeFirst(t *testing.T) {
	known := []string{"probe-path", "probe", "probe-port", "paused", strings.Repeat("x", 300)}
	for _, tt := range []struct {
		name   string
		within int
		want   []string
	}{
		{"probe-pot", 2, []string{"probe-port", "probe-path"}},
		{"PROBE", 0, []string{"probe"}},
		{"other", 2, nil},
		{"", 2, nil},
		{strings.Repeat("x", 300), 300, nil}, // too long to be worth it
	} {
		if got := Nearest(tt.name, known, tt.within); !slices.Equal(got, tt.want) {
			t.Errorf("%q is near %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestATextIsWrappedBetweenWords(t *testing.T) {
	for text, want := range map[string]string{
		"one two three":          "one two\n  three",
		"":                       "",
		"a\tline\nand a \x1b[2J": "a line\n  and a\n  [2J",
		"unbreakablebutlong a":   "unbreakablebutlong\n  a",
	} {
		if got := Wrap(text, 10, 2); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestAStrangersTextStaysInItsLine(t *testing.T) {
	if got := Sane("a\u202eb\u200bc"); got != "a b c" {
		t.Errorf("%q turns, or is not seen", got)
	}
	if got := Sane("one\ntwo\x1b[2J\xff"); got != "one two [2J?" {
		t.Errorf("got %q", got)
	}
}

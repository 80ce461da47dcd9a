// Package prose puts text before people: in lines that fit, with nothing in it that steers a
// terminal, and with the name that they may have meant. It promises that a stranger's text stays
// in its place, and refuses to know what is told.
package prose

import (
	"slices"
	"strings"
	"unicode"

	"github.com/agnivade/levenshtein"
)

// longest is up to how many bytes a name is compared with others: the effort grows with the square.
const longest = 256

// Nearest returns those of the known names that are at most so many letters away from one
// (put in, taken out or changed, in any case), the nearest first.
func Nearest(name string, known []string, within int) []string {
	if len(name) > longest {
		return nil
	}
	type ranked struct {
		name string
		far  int
	}
	var near []ranked
	for _, k := range known {
		if len(k) > longest {
			continue
		}
		if far := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(k)); far <= within {
			near = append(near, ranked{k, far})
		}
	}
	slices.SortStableFunc(near, func(a, b ranked) int { return a.far - b.far })
	var names []string
	for _, n := range near {
		names = append(names, n.name)
	}
	return names
}

// Wrap breaks a text into lines of at most so many characters, the first of which begins
// after an indent and the later ones with it.
func Wrap(text string, width, indent int) string {
	var b strings.Builder
	at := indent
	for n, word := range strings.Fields(Sane(text)) {
		long := len([]rune(word))
		switch {
		case n == 0:
		case at+1+long > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteString(" ")
			at++
		}
		b.WriteString(word)
		at += long
	}
	return b.String()
}

// Sane takes out of a stranger's text what steers a terminal, line ends too, and what turns the
// direction of writing or is not seen.
func Sane(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

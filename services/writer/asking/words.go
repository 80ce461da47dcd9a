package asking

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
)

const width = 100 // of what people read

func conditions(b *writerv1.Backend) string {
	switch {
	case b.GetReady():
		return "ready"
	case b.GetServing():
		return "draining"
	default:
		return "out"
	}
}

func guard(g *writerv1.Guard) string {
	said := "the guard " + sane(g.GetRule())
	if g.GetSource() != "" {
		said += ", source " + sane(g.GetSource())
	}
	return fmt.Sprintf("%s, %d in all", said, g.GetHeld())
}

// age is a duration as people read it.
func age(d *durationpb.Duration) string {
	is := d.AsDuration()
	if is < time.Second {
		return is.Round(time.Millisecond).String()
	}
	return is.Round(time.Second).String()
}

// wrap breaks a text into lines that fit, the later ones indented.
func wrap(text string, indent int) string {
	var b strings.Builder
	at := indent
	for n, word := range strings.Fields(sane(text)) {
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

// sane takes out of a stranger's text what steers a terminal.
func sane(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

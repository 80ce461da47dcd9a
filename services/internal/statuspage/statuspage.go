// Package statuspage shows people what a half knows at a moment: as a page for a browser, as text
// for a terminal, and as JSON, which are three forms of the same Page. It promises to be whole in
// itself (no script, nothing from elsewhere), to show a stranger's words as words, and to put what
// is wrong on top. It refuses to change anything, and to know what it shows.
package statuspage

import (
	"fmt"
	"html"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// Grade is how urgently something wants to be looked at.
type Grade string

// The grades. Most of what is said has none.
const (
	None  Grade = ""
	Fine  Grade = "fine"
	Look  Grade = "look"  // somebody or something holds it back, or it is on its way
	Wrong Grade = "wrong" // it is not as it should be
)

// Urgency is a number that is the smaller the more urgent a grade is.
func (g Grade) Urgency() int {
	switch g {
	case Wrong:
		return 0
	case Look:
		return 1
	default:
		return 2
	}
}

// Mark is the word that stands before what has the grade.
func (g Grade) Mark() string {
	if g == Fine {
		return "ok"
	}
	return string(g)
}

// Page is what there is to show at a moment.
type Page struct {
	Half     string    `json:"half"` // the binary's name
	Version  string    `json:"version"`
	Instance string    `json:"instance,omitempty"` // which replica this is
	At       time.Time `json:"at"`
	Asked    string    `json:"asked,omitempty"` // the only one that is shown; empty: all

	Is       Line      `json:"is"`              // whether all is well, in a sentence
	Lines    []Line    `json:"lines,omitempty"` // who speaks, and what that is worth
	Sections []Section `json:"sections"`
}

// Line is a sentence, or a word.
type Line struct {
	Grade Grade  `json:"grade,omitempty"`
	Text  string `json:"text"`
}

// Section is a part of a page.
type Section struct {
	Title   string `json:"title"`
	Lines   []Line `json:"lines,omitempty"`
	Table   *Table `json:"table,omitempty"`
	Items   []Item `json:"items,omitempty"`
	LeftOut string `json:"leftOut,omitempty"` // what there is no room for, and how to see it
}

// Table has a name in the first cell of each row.
type Table struct {
	Columns []string `json:"columns"`
	Rows    [][]Line `json:"rows"`
}

// Item is one thing in a line, with what there is to say of it for whoever unfolds it.
type Item struct {
	Name string `json:"name"`
	Ask  string `json:"ask,omitempty"` // a page can be asked for it alone by this
	Is   Line   `json:"is"`
	Also string `json:"also,omitempty"`
	Open bool   `json:"open,omitempty"`

	Lines   []Line   `json:"lines,omitempty"`
	Facts   []Fact   `json:"facts,omitempty"`
	Diff    []string `json:"diff,omitempty"` // each begins with +, -, ~ or a space
	Table   *Table   `json:"table,omitempty"`
	Items   []Item   `json:"items,omitempty"`
	LeftOut string   `json:"leftOut,omitempty"`
}

// Fact is a question and its answers.
type Fact struct {
	Name   string `json:"name"`
	Values []Line `json:"values"`
}

// Say makes a line without a grade.
func Say(format string, args ...any) Line { return Line{Text: fmt.Sprintf(format, args...)} }

// Folds reports whether there is more to say of an item than its line.
func (i *Item) Folds() bool {
	return len(i.Lines)+len(i.Facts)+len(i.Diff)+len(i.Items) > 0 || i.Table != nil || i.LeftOut != ""
}

// Worst is the more urgent of two grades.
func Worst(a, b Grade) Grade {
	if b.Urgency() < a.Urgency() || a == None {
		return b
	}
	return a
}

// maxText is the most bytes of one text of a stranger.
const maxText = 512

// Text is a stranger's, without what steers, and no longer than there is room for.
func Text(s string) string {
	s = display.Sanitize(s[:min(len(s), 2*maxText)])
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// Count is a number of things in words.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Age is how long ago something was, in words; of a time that nobody knows it says so.
func Age(at, was time.Time) string {
	if was.IsZero() {
		return "an unknown time"
	}
	return Rounded(max(at.Sub(was), 0))
}

// Rounded is a duration without what nobody reads: 0s, 42s, 3m10s, 5h2m, 12d.
func Rounded(d time.Duration) string {
	switch {
	case d < time.Hour:
		return short(d.Truncate(time.Second))
	case d < 48*time.Hour:
		return short(d.Truncate(time.Minute))
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

func short(d time.Duration) string {
	text := d.String()
	if whole, ok := strings.CutSuffix(text, "m0s"); ok {
		text = whole + "m"
	}
	if whole, ok := strings.CutSuffix(text, "h0m"); ok {
		text = whole + "h"
	}
	return text
}

// When is a moment of the last day by the clock, with how long ago it was.
func When(at, was time.Time) string {
	return was.UTC().Format(time.TimeOnly) + ", " + Age(at, was) + " ago"
}

// Room is how much a page still has room for. Its zero value is none.
type Room struct{ Bytes int }

// For takes the room that an item needs, and reports whether there was as much.
func (r *Room) For(i *Item) bool {
	if n := i.size(); n <= r.Bytes {
		r.Bytes -= n
		return true
	}
	r.Bytes = 0 // what is left out is the end of a list, not its longest items
	return false
}

// LeftOut says what of a list there was no room for: the details of some, and more that are not even
// named. It is empty if there is nothing to say.
func LeftOut(folded, more int, what string) string {
	var texts []string
	if folded > 0 {
		texts = append(texts, fmt.Sprintf("The details of %d are left out: choose one to see it alone.", folded))
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("%d more %s are left out.", more, what))
	}
	return strings.Join(texts, " ")
}

// size is about how many bytes of HTML an item makes.
func (i *Item) size() int {
	n := 300 + sizeOf(i.Name)*2 + sizeOf(i.Ask) + sizeOf(i.Is.Text) + sizeOf(i.Also) + sizeOf(i.LeftOut) + linesSize(i.Lines)
	for _, f := range i.Facts {
		n += 40 + sizeOf(f.Name) + linesSize(f.Values)
	}
	for _, line := range i.Diff {
		n += 30 + sizeOf(line)
	}
	if i.Table != nil {
		for _, row := range i.Table.Rows {
			n += 20 + linesSize(row)
		}
	}
	for k := range i.Items {
		n += i.Items[k].size()
	}
	return n
}

func linesSize(all []Line) (n int) {
	for _, line := range all {
		n += 60 + sizeOf(line.Text)
	}
	return n
}

func sizeOf(text string) int { return len(html.EscapeString(text)) }

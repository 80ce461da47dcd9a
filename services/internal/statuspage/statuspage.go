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

// Severity is how urgently something wants to be looked at.
type Severity string

// The grades. Most of what is said has none.
const (
	None    Severity = ""
	OK      Severity = "fine"
	Warning Severity = "look"  // somebody or something holds it back, or it is on its way
	Error   Severity = "wrong" // it is not as it should be
)

// Rank is a number that is the smaller the more urgent a grade is.
func (g Severity) Rank() int {
	switch g {
	case Error:
		return 0
	case Warning:
		return 1
	default:
		return 2
	}
}

// Label is the word that stands before what has the grade.
func (g Severity) Label() string {
	if g == OK {
		return "ok"
	}
	return string(g)
}

// Page is what there is to show at a moment.
type Page struct {
	Component string    `json:"half"` // the binary's name
	Version   string    `json:"version"`
	Instance  string    `json:"instance,omitempty"` // which replica this is
	At        time.Time `json:"at"`
	Filter    string    `json:"asked,omitempty"` // the only one that is shown; empty: all

	Summary  Line      `json:"is"`              // whether all is well, in a sentence
	Lines    []Line    `json:"lines,omitempty"` // who speaks, and what that is worth
	Sections []Section `json:"sections"`
}

// Line is a sentence, or a word.
type Line struct {
	Severity Severity `json:"grade,omitempty"`
	Text     string   `json:"text"`
}

// Section is a part of a page.
type Section struct {
	Title   string `json:"title"`
	Lines   []Line `json:"lines,omitempty"`
	Table   *Table `json:"table,omitempty"`
	Items   []Item `json:"items,omitempty"`
	Omitted string `json:"leftOut,omitempty"` // what there is no room for, and how to see it
}

// Table has a name in the first cell of each row.
type Table struct {
	Columns []string `json:"columns"`
	Rows    [][]Line `json:"rows"`
}

// Item is one thing in a line, with what there is to say of it for whoever unfolds it.
type Item struct {
	Name     string `json:"name"`
	Filter   string `json:"ask,omitempty"` // a page can be asked for it alone by this
	Summary  Line   `json:"is"`
	Detail   string `json:"also,omitempty"`
	Expanded bool   `json:"open,omitempty"`

	Lines   []Line   `json:"lines,omitempty"`
	Facts   []Fact   `json:"facts,omitempty"`
	Diff    []string `json:"diff,omitempty"` // each begins with +, -, ~ or a space
	Table   *Table   `json:"table,omitempty"`
	Items   []Item   `json:"items,omitempty"`
	Omitted string   `json:"leftOut,omitempty"`
}

// Fact is a question and its answers.
type Fact struct {
	Name   string `json:"name"`
	Values []Line `json:"values"`
}

// Linef makes a line without a grade.
func Linef(format string, args ...any) Line { return Line{Text: fmt.Sprintf(format, args...)} }

// HasDetails reports whether there is more to say of an item than its line.
func (i *Item) HasDetails() bool {
	return len(i.Lines)+len(i.Facts)+len(i.Diff)+len(i.Items) > 0 || i.Table != nil || i.Omitted != ""
}

// MoreSevere is the more urgent of two grades.
func MoreSevere(a, b Severity) Severity {
	if b.Rank() < a.Rank() || a == None {
		return b
	}
	return a
}

// maxTextBytes is the most bytes of one text of a stranger.
const maxTextBytes = 512

// SafeText is a stranger's, without what steers, and no longer than there is room for.
func SafeText(s string) string {
	s = display.Sanitize(s[:min(len(s), 2*maxTextBytes)])
	if len(s) <= maxTextBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxTextBytes], "") + "…"
}

// FormatCount is a number of things in words.
func FormatCount(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// FormatAge is how long ago something was, in words; of a time that nobody knows it says so.
func FormatAge(at, was time.Time) string {
	if was.IsZero() {
		return "an unknown time"
	}
	return FormatDuration(max(at.Sub(was), 0))
}

// FormatDuration is a duration without what nobody reads: 0s, 42s, 3m10s, 5h2m, 12d.
func FormatDuration(d time.Duration) string {
	switch {
	case d < time.Hour:
		return trimZeroUnits(d.Truncate(time.Second))
	case d < 48*time.Hour:
		return trimZeroUnits(d.Truncate(time.Minute))
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

func trimZeroUnits(d time.Duration) string {
	text := d.String()
	if whole, ok := strings.CutSuffix(text, "m0s"); ok {
		text = whole + "m"
	}
	if whole, ok := strings.CutSuffix(text, "h0m"); ok {
		text = whole + "h"
	}
	return text
}

// FormatTime is a moment of the last day by the clock, with how long ago it was.
func FormatTime(at, was time.Time) string {
	return was.UTC().Format(time.TimeOnly) + ", " + FormatAge(at, was) + " ago"
}

// Budget is how much a page still has room for. Its zero value is none.
type Budget struct{ Bytes int }

// Reserve takes the room that an item needs, and reports whether there was as much.
func (r *Budget) Reserve(i *Item) bool {
	if n := i.htmlSize(); n <= r.Bytes {
		r.Bytes -= n
		return true
	}
	r.Bytes = 0 // what is left out is the end of a list, not its longest items
	return false
}

// DescribeOmitted says what of a list there was no room for: the details of some, and more that are not even
// named. It is empty if there is nothing to say.
func DescribeOmitted(folded, more int, what string) string {
	var texts []string
	if folded > 0 {
		texts = append(texts, fmt.Sprintf("The details of %d are left out: choose one to see it alone.", folded))
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("%d more %s are left out.", more, what))
	}
	return strings.Join(texts, " ")
}

// htmlSize is about how many bytes of HTML an item makes.
func (i *Item) htmlSize() int {
	n := 300 + escapedSize(i.Name)*2 + escapedSize(i.Filter) + escapedSize(i.Summary.Text) + escapedSize(i.Detail) + escapedSize(i.Omitted) + linesHTMLSize(i.Lines)
	for _, f := range i.Facts {
		n += 40 + escapedSize(f.Name) + linesHTMLSize(f.Values)
	}
	for _, line := range i.Diff {
		n += 30 + escapedSize(line)
	}
	if i.Table != nil {
		for _, row := range i.Table.Rows {
			n += 20 + linesHTMLSize(row)
		}
	}
	for k := range i.Items {
		n += i.Items[k].htmlSize()
	}
	return n
}

func linesHTMLSize(all []Line) (n int) {
	for _, line := range all {
		n += 60 + escapedSize(line.Text)
	}
	return n
}

func escapedSize(text string) int { return len(html.EscapeString(text)) }

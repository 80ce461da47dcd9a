// Package statuspage renders the status of a component: as HTML for a browser, as text for a
// terminal, and as JSON. All three are forms of the same Page. It guarantees that the HTML is
// self-contained (no script, no external resource), and that untrusted text cannot become markup or
// control a terminal. It does not change anything, and does not know what its pages are about.
package statuspage

import (
	"fmt"
	"html"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// Severity says whether something needs attention.
type Severity string

// The severities. Most lines have none.
const (
	None    Severity = ""
	OK      Severity = "ok"
	Warning Severity = "warning" // held, in progress, or to be checked
	Error   Severity = "error"   // needs action
)

// Rank orders severities: the most severe has the smallest rank.
func (s Severity) Rank() int {
	switch s {
	case Error:
		return 0
	case Warning:
		return 1
	default:
		return 2
	}
}

// Label returns the text that marks a line of this severity. It is empty for None.
func (s Severity) Label() string {
	switch s {
	case OK:
		return "OK"
	case Warning:
		return "WARN"
	case Error:
		return "ERROR"
	default:
		return ""
	}
}

// Page is the status of a component at one moment.
type Page struct {
	Component string    `json:"component"` // name of the program
	Version   string    `json:"version"`
	Instance  string    `json:"instance,omitempty"` // replica
	At        time.Time `json:"at"`
	Filter    string    `json:"filter,omitempty"` // name that the page is limited to; empty: all

	Summary  Line      `json:"summary"`         // overall state, in one sentence
	Lines    []Line    `json:"lines,omitempty"` // further sentences, such as the role of the replica
	Sections []Section `json:"sections"`
}

// Line is a sentence or the text of a table cell.
type Line struct {
	Severity Severity `json:"severity,omitempty"`
	Text     string   `json:"text"`
}

// Section is a part of a page.
type Section struct {
	Title   string `json:"title"`
	Lines   []Line `json:"lines,omitempty"`
	Table   *Table `json:"table,omitempty"`
	Items   []Item `json:"items,omitempty"`
	Omitted string `json:"omitted,omitempty"` // what exceeds the page's limits, and how to see it
}

// Table is a table. The first cell of each row is its heading.
type Table struct {
	Columns []string `json:"columns"`
	Rows    [][]Line `json:"rows"`
}

// Item is one entry of a list: a line, and details that can be expanded.
type Item struct {
	Name     string `json:"name"`
	Filter   string `json:"filter,omitempty"` // filter that shows only this item; empty: there is none
	Summary  Line   `json:"summary"`
	Detail   string `json:"detail,omitempty"`
	Expanded bool   `json:"expanded,omitempty"`

	Lines   []Line   `json:"lines,omitempty"`
	Facts   []Fact   `json:"facts,omitempty"`
	Diff    []string `json:"diff,omitempty"` // each line starts with +, -, ~ or a space
	Table   *Table   `json:"table,omitempty"`
	Items   []Item   `json:"items,omitempty"`
	Omitted string   `json:"omitted,omitempty"`
}

// Fact is a named property with its values.
type Fact struct {
	Name   string `json:"name"`
	Values []Line `json:"values"`
}

// Linef formats a line without a severity.
func Linef(format string, args ...any) Line { return Line{Text: fmt.Sprintf(format, args...)} }

// HasDetails reports whether the item has anything to expand.
func (i *Item) HasDetails() bool {
	return len(i.Lines)+len(i.Facts)+len(i.Diff)+len(i.Items) > 0 || i.Table != nil || i.Omitted != ""
}

// MoreSevere returns the more severe of two severities.
func MoreSevere(a, b Severity) Severity {
	if b.Rank() < a.Rank() || a == None {
		return b
	}
	return a
}

// maxTextBytes limits one untrusted text.
const maxTextBytes = 512

// SafeText removes control characters from untrusted text and truncates it.
func SafeText(s string) string {
	return display.Truncate(display.Sanitize(s[:min(len(s), 2*maxTextBytes)]), maxTextBytes)
}

// FormatAge formats the time from then to now. A zero time is "an unknown time".
func FormatAge(now, then time.Time) string {
	if then.IsZero() {
		return "an unknown time"
	}
	return FormatDuration(max(now.Sub(then), 0))
}

// FormatDuration rounds a duration down to what a reader needs: 0s, 42s, 3m10s, 5h2m, 12d.
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
	if minutes, ok := strings.CutSuffix(text, "m0s"); ok {
		text = minutes + "m"
	}
	if hours, ok := strings.CutSuffix(text, "h0m"); ok {
		text = hours + "h"
	}
	return text
}

// FormatTime formats a time of day and its age.
func FormatTime(now, then time.Time) string {
	return then.UTC().Format(time.TimeOnly) + ", " + FormatAge(now, then) + " ago"
}

// Budget is the space that is left on a page. The zero value has none.
type Budget struct{ Bytes int }

// Reserve takes the space that an item needs, and reports whether it fits.
func (b *Budget) Reserve(i *Item) bool {
	if n := i.htmlSize(); n <= b.Bytes {
		b.Bytes -= n
		return true
	}
	b.Bytes = 0 // omit the end of a list, not its longest items
	return false
}

// DescribeOmitted describes what a list omits: the details of some items, and further items. It is
// empty if the list is complete.
func DescribeOmitted(folded, more int, what string) string {
	var texts []string
	if folded > 0 {
		texts = append(texts, fmt.Sprintf("Details of %d omitted. Select one to see them.", folded))
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("%d more %s omitted.", more, what))
	}
	return strings.Join(texts, " ")
}

// htmlSize estimates the size of the item as HTML, in bytes.
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

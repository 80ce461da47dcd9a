// Package statuspage renders the status of a component: as HTML for a browser, as text for a
// terminal, and as JSON. All three are forms of the same Page. It guarantees that the HTML is
// self-contained (no script, no external resource), and that untrusted text cannot become markup or
// control a terminal. It does not change anything, and does not know what its pages are about.
package statuspage

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

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
	return map[Severity]string{OK: "OK", Warning: "WARN", Error: "ERROR"}[s]
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
	Name    string `json:"name"` // camelCase, for programs
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
	Values  []Values `json:"values,omitempty"` // of each row
}

// Values are the values behind a row or an item, for programs: texts, numbers, bools, times, and lists of texts, by
// camelCase names.
type Values map[string]any

// SetTime adds a time unless it is unknown.
func (v Values) SetTime(name string, at time.Time) {
	if !at.IsZero() {
		v[name] = at.UTC()
	}
}

// Item is one entry of a list: a line, and details that can be expanded.
type Item struct {
	Name     string `json:"name"`
	Filter   string `json:"filter,omitempty"` // filter that shows only this item; empty: there is none
	Summary  Line   `json:"summary"`
	Detail   string `json:"detail,omitempty"`
	Expanded bool   `json:"expanded,omitempty"`
	Values   Values `json:"values,omitempty"`

	Lines   []Line   `json:"lines,omitempty"`
	Facts   []Fact   `json:"facts,omitempty"`
	Diff    []string `json:"diff,omitempty"` // each line starts with +, -, ~ or a space
	Items   []Item   `json:"items,omitempty"`
	Omitted string   `json:"omitted,omitempty"`
}

// Fact is a named property with its values.
type Fact struct {
	Name   string `json:"name"`
	Values []Line `json:"values"`
}

// Linef formats a line without a severity.
func Linef(format string, args ...any) Line { return Line{None, fmt.Sprintf(format, args...)} }

// OKf formats a line that says that something is as it should be.
func OKf(format string, args ...any) Line { return Line{OK, fmt.Sprintf(format, args...)} }

// Warnf formats a warning.
func Warnf(format string, args ...any) Line { return Line{Warning, fmt.Sprintf(format, args...)} }

// Errorf formats an error.
func Errorf(format string, args ...any) Line { return Line{Error, fmt.Sprintf(format, args...)} }

// HasDetails reports whether the item has anything to expand.
func (i *Item) HasDetails() bool {
	return len(i.Lines)+len(i.Facts)+len(i.Diff)+len(i.Items) > 0 || i.Omitted != ""
}

// AddFact adds a value to the last fact if that has this name, and else a fact.
func (i *Item) AddFact(name string, value Line) {
	if n := len(i.Facts); n > 0 && i.Facts[n-1].Name == name {
		i.Facts[n-1].Values = append(i.Facts[n-1].Values, value)
		return
	}
	i.Facts = append(i.Facts, Fact{name, []Line{value}})
}

// Headline summarizes a page in one sentence: what its problems are, the most severe first, or that there are none.
func Headline(problems []Line, none Line) Line {
	if len(problems) == 0 {
		return none
	}
	slices.SortStableFunc(problems, func(a, b Line) int { return a.Severity.Rank() - b.Severity.Rank() })
	var texts []string
	for _, p := range problems {
		texts = append(texts, p.Text)
	}
	text := strings.Join(texts, ", ")
	return Line{problems[0].Severity, strings.ToUpper(text[:1]) + text[1:] + "."}
}

// MoreSevere returns the more severe of two severities.
func MoreSevere(a, b Severity) Severity {
	if b.Rank() < a.Rank() || a == None {
		return b
	}
	return a
}

// SortItems sorts items by severity, the most severe first.
func SortItems(all []Item) {
	slices.SortStableFunc(all, func(a, b Item) int { return a.Summary.Severity.Rank() - b.Summary.Severity.Rank() })
}

// DropEmptyColumn removes the last column of a table if it is empty in all rows.
func (t *Table) DropEmptyColumn() {
	last := len(t.Columns) - 1
	if slices.ContainsFunc(t.Rows, func(row []Line) bool { return row[last].Text != "" }) {
		return
	}
	t.Columns = t.Columns[:last]
	for i := range t.Rows {
		t.Rows[i] = t.Rows[i][:last]
	}
}

// maxDetails limits the details of a section's items, in bytes of HTML.
const maxDetails = 4 << 20

// AddItems adds the first items of a list, and the details of as many of them as the page has space for. It
// states how much it omits of what the items are.
func (s *Section) AddItems(all []Item, limit int, what string, addDetails func(nth int, i *Item)) {
	space, folded := maxDetails, 0
	for nth, item := range all[:min(len(all), limit)] {
		if space > 0 {
			detailed := item
			addDetails(nth, &detailed)
			if space -= detailed.htmlSize(); space >= 0 {
				item = detailed
			}
		}
		if space < 0 { // omit the end of a list, not its longest items
			folded++
		}
		s.Items = append(s.Items, item)
	}
	var omitted []string
	if folded > 0 {
		omitted = append(omitted, fmt.Sprintf("Details of %d omitted. Select one to see them.", folded))
	}
	if more := len(all) - len(s.Items); more > 0 {
		omitted = append(omitted, fmt.Sprintf("%d more %s omitted.", more, what))
	}
	s.Omitted = strings.Join(omitted, " ")
}

func (i *Item) htmlSize() int {
	sanitize(reflect.ValueOf(i))
	var html bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&html, "item", i); err != nil {
		return maxDetails + 1
	}
	return html.Len()
}

// maxTextBytes limits one text.
const maxTextBytes = 512

// sanitize removes control characters from every text of a page or an item, and truncates it: any of them may come
// from outside.
func sanitize(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			sanitize(v.Elem())
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				sanitize(field)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			sanitize(v.Index(i))
		}
	case reflect.Interface:
		if !v.IsNil() {
			value := reflect.New(v.Elem().Type()).Elem()
			value.Set(v.Elem())
			sanitize(value)
			v.Set(value)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			sanitize(value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		text := v.String()
		v.SetString(display.Truncate(display.Sanitize(text[:min(len(text), 2*maxTextBytes)]), maxTextBytes))
	}
}

// FormatAge formats the time from then to now as kubectl does. A zero time is "an unknown time".
func FormatAge(now, then time.Time) string {
	if then.IsZero() {
		return "an unknown time"
	}
	return duration.HumanDuration(max(now.Sub(then), 0))
}

// FormatTime formats a time of day and its age.
func FormatTime(now, then time.Time) string {
	return then.UTC().Format(time.TimeOnly) + ", " + FormatAge(now, then) + " ago"
}

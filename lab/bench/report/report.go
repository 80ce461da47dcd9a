// Package report is what a section of the bench measured, as plain data, and the text of it that people read. It measures
// nothing: whether a goal is met follows from its figure alone.
package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Env is what a section is measured with.
type Env struct {
	Out   io.Writer // progress, a line at a time
	Quick bool      // fewer samples and smaller sizes
}

// Measure measures a section.
type Measure func(ctx context.Context, env Env) (Report, error)

// Report is what was measured.
type Report struct {
	Setup  string // what was measured, and what was set other than by default
	Goals  []Goal
	Tables []Table
}

// Goal is a figure that must not exceed a limit.
type Goal struct {
	Text   string
	Figure float64
	AtMost float64
	Unit   string // "×", "ms", "MB"; empty: a count
	// Noise is how far the figure moved between parts of the run; 0: unknown, or a count that is always the same.
	Noise float64
}

// Met reports whether the figure is within its limit.
func (g Goal) Met() bool { return g.Figure <= g.AtMost }

// Table is one of figures, formatted by who measured them.
type Table struct {
	Title   string
	Columns []string
	Rows    [][]string
}

// Check returns an error that names each goal that was missed.
func (r Report) Check() error {
	var missed []error
	for _, g := range r.Goals {
		if !g.Met() {
			missed = append(missed, fmt.Errorf("missed a goal: %s is %s, want at most %s", g.Text, g.figure(), number(g.AtMost, g.Unit)))
		}
	}
	return errors.Join(missed...)
}

// String is the report as text, its goals first.
func (r Report) String() string {
	var b strings.Builder
	goals := Table{Title: "Goals (± is how far a figure moved within the run):", Columns: []string{"", "measured", "at most", ""}}
	for _, g := range r.Goals {
		verdict := "met"
		if !g.Met() {
			verdict = "NOT met"
		}
		goals.Rows = append(goals.Rows, []string{g.Text, g.figure(), number(g.AtMost, g.Unit), verdict})
	}
	for _, t := range slices.Concat([]Table{goals}, r.Tables) {
		fmt.Fprintf(&b, "%s\n", t.Title)
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, row := range slices.Concat([][]string{t.Columns}, t.Rows) {
			fmt.Fprintf(w, "  %s\n", strings.Join(row, "\t"))
		}
		_ = w.Flush()
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "%s\n", r.Setup)
	return b.String()
}

func (g Goal) figure() string {
	text := number(g.Figure, g.Unit)
	if g.Noise > 0 {
		text += " ± " + number(g.Noise, "")
	}
	return text
}

// number has three significant digits, and no more than the figure has.
func number(f float64, unit string) string {
	text := strconv.FormatFloat(f, 'f', -1, 64)
	switch {
	case f == float64(int64(f)):
	case f >= 100 || f <= -100:
		text = strconv.FormatFloat(f, 'f', 0, 64)
	case f >= 10 || f <= -10:
		text = strconv.FormatFloat(f, 'f', 1, 64)
	case f >= 0.1 || f <= -0.1:
		text = strconv.FormatFloat(f, 'f', 2, 64)
	default:
		text = strconv.FormatFloat(f, 'g', 2, 64)
	}
	if unit == "" {
		return text
	}
	return text + " " + unit
}

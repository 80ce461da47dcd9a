// Package report is what a section of the bench measured, as plain data, and how people read it: tables on the
// terminal, and a page with plots. It measures nothing and reads nothing back: whether a goal is met follows from its
// figure alone, and the history of a figure is the history of its page.
package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Env is what a section is measured with.
type Env struct {
	Out   io.Writer // progress, a line at a time
	Quick bool      // fewer samples and smaller sizes; what is measured says how many
}

// Measure measures the parts of a section.
type Measure func(ctx context.Context, env Env) ([]*Part, error)

// Section is one page of the bench. The runner fills in all but the parts.
type Section struct {
	Name   string
	Title  string
	Time   time.Time
	Took   time.Duration
	Origin string // the sources' version, the machine and the versions that the figures depend on
	Err    error  // why it was not measured
	Parts  []*Part
}

// Part is what was measured with one setup.
type Part struct {
	Title  string // empty in a section of one part
	Setup  string // what was measured, and what was set other than by default
	Notes  []string
	Goals  []Goal
	Tables []Table
	Plots  []Plot
}

// Goal is a figure that must not exceed a limit.
type Goal struct {
	Text   string
	Figure float64
	AtMost float64
	Unit   string // "×", "ms", "MB"; empty: a count
	// Noise is how far the figure is from that of the other half of its own samples, or moved between repetitions;
	// 0: unknown, or a count that is always the same.
	Noise float64
	// Remark says why a goal is missed, and what was tried.
	Remark string
}

// Met reports whether the figure is within its limit.
func (g Goal) Met() bool { return g.Figure <= g.AtMost }

// Table is one of figures, formatted by who measured them.
type Table struct {
	Title   string
	Columns []string
	Rows    [][]string
}

// Plot is lines of measured points. Its name is that of its file.
type Plot struct {
	Name   string
	Title  string
	X, Y   Axis
	Series []Series
}

// Axis is the label and the scale of a plot's axis.
type Axis struct {
	Label string
	Log   bool
}

// Series is a line of a plot.
type Series struct {
	Name   string
	Points [][2]float64
}

// Check returns an error that names each section that was not measured, and each goal that was missed.
func Check(sections []*Section) error {
	var failed []error
	for _, s := range sections {
		if s.Err != nil {
			failed = append(failed, fmt.Errorf("%s was not measured: %w", s.Name, s.Err))
		}
		for _, g := range s.goals() {
			if !g.Met() {
				failed = append(
					failed,
					fmt.Errorf("%s misses a goal: %s is %s, want at most %s", s.Name, g.Text, g.figure(), number(g.AtMost, g.Unit)),
				)
			}
		}
	}
	return errors.Join(failed...)
}

func (s *Section) goals() (all []Goal) {
	for _, p := range s.Parts {
		all = append(all, p.Goals...)
	}
	return all
}

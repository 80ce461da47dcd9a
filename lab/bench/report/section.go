// Package report is what a bench found, as plain data, and how people read it: a table on
// the terminal, a JSON file, and a page with plots. It measures nothing, and it promises that
// whether a goal is met follows from its figure alone.
package report

import (
	"context"
	"io"
	"time"
)

// Env is what a section is measured with.
type Env struct {
	Out   io.Writer // progress, a line at a time
	Quick bool      // fewer samples and smaller sizes, for people in a hurry; the section says so
}

// Measure is the door of a section.
type Measure func(ctx context.Context, env Env) (*Section, error)

// Section is what one part of the bench found. The runner fills in the first block.
type Section struct {
	Name    string        `json:"name"`
	Time    time.Time     `json:"time"`
	Took    time.Duration `json:"took_ns"`
	Version string        `json:"version"` // of the sources
	Error   string        `json:"error,omitempty"`

	Title string `json:"title"`
	// Settings says what was measured and what was set other than by default.
	Settings string   `json:"settings"`
	Goals    []Goal   `json:"goals,omitempty"`
	Tables   []Table  `json:"tables,omitempty"`
	Plots    []Plot   `json:"plots,omitempty"`
	Notes    []string `json:"notes,omitempty"` // a paragraph each
}

// Goal is a figure that must not exceed a limit.
type Goal struct {
	Text   string  `json:"text"`
	Figure float64 `json:"figure"`
	AtMost float64 `json:"at_most"`
	Unit   string  `json:"unit,omitempty"` // "×", "ms", "MB"; empty: a count
	// Noise is how far the figure is from that of the other half of its own samples, or moved
	// between repetitions; 0: not known, or a count that is always the same.
	Noise float64 `json:"noise,omitempty"`
	// Before is the figure of the run before on the same machine; nil: there was none.
	Before *float64 `json:"before,omitempty"`
	// Remark says of a goal that is not met by how much, why, and what was tried.
	Remark string `json:"remark,omitempty"`
}

// Met reports whether the figure is within its limit.
func (g Goal) Met() bool { return g.Figure <= g.AtMost }

// Table is one of figures, formatted by who measured them.
type Table struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// Plot is lines of measured points. Its name is that of its file.
type Plot struct {
	Name   string   `json:"name"`
	Title  string   `json:"title"`
	X      Axis     `json:"x"`
	Y      Axis     `json:"y"`
	Series []Series `json:"series"`
}

// Axis is what a plot's axis says.
type Axis struct {
	Label string `json:"label"`
	Log   bool   `json:"log,omitempty"`
}

// Series is a line of a plot.
type Series struct {
	Name   string       `json:"name"`
	Points [][2]float64 `json:"points"`
}

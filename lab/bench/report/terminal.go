package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// String is the section as a terminal shows it.
func (s *Section) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)\n", s.Title, s.Took.Round(time.Second))
	for _, p := range s.Parts {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(p.Title+"\n"+p.Setup))
		for _, t := range p.Tables {
			fmt.Fprintf(&b, "\n%s\n", t.Title)
			w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
			for _, row := range slices.Concat([][]string{t.Columns}, t.Rows) {
				fmt.Fprintf(w, "  %s\n", strings.Join(row, "\t"))
			}
			_ = w.Flush()
		}
	}
	return b.String()
}

// Goals is the table of all goals as a terminal shows it.
func Goals(sections []*Section) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, s := range sections {
		if s.Err != nil {
			fmt.Fprintf(w, "%s\t\t\t\tNOT measured\n", s.Name)
		}
		for _, g := range s.goals() {
			fmt.Fprintf(w, "%s\t%s\t%s\tat most %s\t%s\n", s.Name, g.Text, g.figure(), number(g.AtMost, g.Unit), g.verdict())
		}
	}
	_ = w.Flush()
	return b.String()
}

func (g Goal) verdict() string {
	if g.Met() {
		return "met"
	}
	return "NOT met"
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
